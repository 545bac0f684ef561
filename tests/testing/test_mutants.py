"""Every check of the contract catches the variants that break its property, and leaves alone those that break another."""

import pytest

from attnlab.models.backbone import Backbone
from attnlab.testing.checks import CHECKS
from attnlab.testing.contract import check
from attnlab.variants import Variant
from tests.mutants import MUTANTS, Mutant
from tests.mutants.base import ByHand, Causal, Hooked, Plain

CASES = [(name, mutant) for name, mutants in MUTANTS.items() for mutant in mutants]


def _id(value: object) -> str:
    if not isinstance(value, Mutant):
        return str(value).replace(" ", "_")
    return (value.keep or value.position or value.variant).__name__


def _failed(mutant: Mutant, *, compile: bool) -> dict[str, str]:
    only = [name for name in CHECKS if compile or name != "compile"]
    results = check(mutant.variant, position=mutant.position, only=only)
    return {each.check: f"{each.detail} | {each.advice}" for each in results if each.status == "failed"}


@pytest.mark.parametrize(("name", "mutant"), CASES, ids=_id)
def test_a_mutant_is_caught_by_its_check_alone(name: str, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant.keep is not None:
        monkeypatch.setattr(Backbone, "_update_memory", lambda self, x, before: mutant.keep(self, x, before))
    failed = _failed(mutant, compile=name == "compile")
    assert set(failed) == {name} | mutant.also, failed
    assert "raises" not in failed[name], "it must be the property that fails"
    assert failed[name].partition(" | ")[2], "a failure says what to change"


def test_every_check_has_a_mutant_of_its_own() -> None:
    assert set(MUTANTS) == set(CHECKS)
    assert all(any(not mutant.also for mutant in mutants) for mutants in MUTANTS.values())


@pytest.mark.parametrize("base", [Plain, Causal, ByHand, Hooked])
def test_what_mutants_start_from_is_right(base: type[Variant]) -> None:
    assert not _failed(Mutant(base), compile=True)
