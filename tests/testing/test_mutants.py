"""Every check of the contract catches the variants that break its property, and passes those that break another one."""

import pytest

from attnlab.models.backbone import Backbone
from attnlab.testing.checks import CHECKS
from attnlab.testing.contract import CheckResult, check
from attnlab.variants import Variant
from tests.mutants import MUTANTS, Mutant
from tests.mutants.base import ByHand, Causal, Hooked, Plain

CASES = [(name, mutant) for name, mutants in MUTANTS.items() for mutant in mutants]


def _id(value: object) -> str:
    if not isinstance(value, Mutant):
        return str(value).replace(" ", "_")
    return (value.keep or value.position or value.variant).__name__


def _failures(mutant: Mutant, *, compile: bool) -> dict[str, CheckResult]:
    only = [name for name in CHECKS if compile or name != "compile"]
    results = check(mutant.variant, position=mutant.position, only=only)
    return {result.check: result for result in results if result.status == "failed"}


@pytest.mark.parametrize(("name", "mutant"), CASES, ids=_id)
def test_a_mutant_is_caught_by_its_check_alone(name: str, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant.keep is not None:
        monkeypatch.setattr(Backbone, "_update_memory", lambda self, x, before: mutant.keep(self, x, before))
    failures = _failures(mutant, compile=name == "compile")
    assert set(failures) == {name} | mutant.also, failures
    assert not failures[name].traceback, "the property must fail, not the variant raise"
    assert failures[name].detail and failures[name].advice


def test_every_check_has_a_mutant_of_its_own() -> None:
    assert set(MUTANTS) == set(CHECKS)
    assert all(any(not mutant.also for mutant in mutants) for mutants in MUTANTS.values())


@pytest.mark.parametrize("base", [Plain, Causal, ByHand, Hooked])
def test_the_base_classes_of_mutants_pass_every_check(base: type[Variant]) -> None:
    assert not _failures(Mutant(base), compile=True)
