"""Every check of the contract catches the variants that break its property, and passes those that break another one."""

from collections.abc import Collection

import pytest

from attnlab.testing.checks import CHECKS
from attnlab.testing.checks.sizes import DRAWS, LENGTH, MEMORY, PADDING, PREFIX, draw_heads, draw_sizes
from attnlab.testing.contract import CheckResult
from attnlab.testing.contract import check_variant as check
from attnlab.variants import Variant
from tests.mutants import MUTANTS, Mutant
from tests.mutants.base import ByHand, Causal, Hooked, Plain
from tests.mutants.blind_spots import Differential, LeaksWithFourHeads
from tests.testing.test_contract import check_fewer_sizes

CASES = [(name, mutant) for name, mutants in MUTANTS.items() for mutant in mutants]


def _id(value: object) -> str:
    if not isinstance(value, Mutant):
        return str(value).replace(" ", "_")
    return (value.position or value.variant).__name__


def _failures(mutant: Mutant, only: Collection[str]) -> dict[str, CheckResult]:
    results = check(mutant.variant, position=mutant.position, only=only)
    return {result.check: result for result in results if result.status == "failed"}


@pytest.mark.parametrize(("name", "mutant"), CASES, ids=_id)
def test_a_mutant_is_caught_by_its_check(name: str, mutant: Mutant) -> None:
    _caught(name, mutant, {"shapes", name} | mutant.also)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "mutant"), CASES, ids=_id)
def test_a_mutant_is_caught_by_its_check_alone(name: str, mutant: Mutant) -> None:
    _caught(name, mutant, {check for check in CHECKS if check != "compile" or name == "compile"})


def _caught(name: str, mutant: Mutant, only: Collection[str]) -> None:
    failures = _failures(mutant, only)
    assert set(failures) == {name} | mutant.also, failures
    assert not failures[name].traceback, "the property must fail, not the variant raise"
    assert failures[name].detail and failures[name].advice


def test_every_check_has_a_mutant_of_its_own() -> None:
    assert set(MUTANTS) == set(CHECKS)
    assert all(any(not mutant.also for mutant in mutants) for mutants in MUTANTS.values())


@pytest.mark.parametrize("base", [Plain, Causal, ByHand, Hooked])
def test_the_base_classes_of_mutants_pass_every_check(base: type[Variant], monkeypatch: pytest.MonkeyPatch) -> None:
    check_fewer_sizes(monkeypatch, slice(1))
    assert not _failures(Mutant(base), CHECKS)


def test_differential_attention_whose_norm_follows_dropout_passes() -> None:
    results = {result.check: result for result in check(Differential, only=["dropout", "dropout share"])}
    assert results["dropout"].status != "failed" and "not linear" in results["dropout"].detail
    assert results["dropout share"].status == "passed" and "expected 30 %" in results["dropout share"].detail


@pytest.mark.parametrize("seed", [0, 7])
def test_a_failure_at_drawn_sizes_states_the_seed_and_repeats(seed: int) -> None:
    first, second = (check(LeaksWithFourHeads, seed=seed, only=["causality by value"])[0] for _ in range(2))
    assert first.status == "failed" and first.detail == second.detail
    assert f"seed {seed}, draw 0: 4 heads" in first.detail and "memory" in first.detail


def test_drawn_sizes_cover_each_range_and_repeat_with_their_seed() -> None:
    for seed in range(20):
        draws = [draw_sizes(seed, number, heads=4) for number in range(DRAWS)]
        assert draws == [draw_sizes(seed, number, heads=4) for number in range(DRAWS)]
        assert draw_heads(seed, 0)[0] == 4
        for name, (low, high) in {"length": LENGTH, "memory": MEMORY, "padding": PADDING, "prefix": PREFIX}.items():
            values = sorted(getattr(sizes, name) for sizes in draws)
            third = (high / low) ** (1 / DRAWS)
            assert low <= values[0] <= low * third + 1 and high / third - 1 <= values[-1] <= high, (seed, name)
        assert max(sizes.batch for sizes in draws) >= 8
    assert draw_sizes(0, 0, heads=4) != draw_sizes(1, 0, heads=4)
