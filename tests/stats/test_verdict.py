"""Tests of verdicts from paired differences: their kind, reason and numbers."""

import pytest

from attnlab.stats import paired
from attnlab.stats.predict import predict, predicted_seeds
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import Reason, VerdictKind, judge
from tests.stats.test_paired import BASE, LOWER


@pytest.mark.parametrize(("direction", "kind"), [("min", VerdictKind.BETTER), ("max", VerdictKind.WORSE)])
def test_the_direction_decides_between_better_and_worse(direction: str, kind: VerdictKind) -> None:
    verdict = judge(paired.difference(LOWER, BASE), direction=direction)
    assert (verdict.kind, verdict.reason, verdict.pairs, verdict.within_margin) == (kind, None, 5, False)


def test_a_small_difference_is_within_the_margin() -> None:
    verdict = judge(paired.difference(LOWER, BASE, margin=0.2), direction="min")
    assert verdict.kind is VerdictKind.BETTER and verdict.within_margin


def test_noise_is_equivalent_only_within_a_margin() -> None:
    noisy = {seed: value + 0.01 * (-1) ** seed for seed, value in BASE.items()}
    assert judge(paired.difference(noisy, BASE, margin=0.05), direction="min").kind is VerdictKind.EQUIVALENT
    without = judge(paired.difference(noisy, BASE), direction="min")
    assert (without.kind, without.reason) == (VerdictKind.INCONCLUSIVE, Reason.MORE_SEEDS)


def test_one_seed_is_inconclusive_and_no_shared_seed_is_no_comparison() -> None:
    verdict = judge(paired.difference({0: 1.0}, {0: 2.0}), direction="min")
    assert (verdict.kind, verdict.reason) == (VerdictKind.INCONCLUSIVE, Reason.ONE_SEED)
    none = judge(paired.difference({0: 1.0}, {1: 2.0}), direction="min")
    assert (none.kind, none.reason) == (VerdictKind.NO_COMPARISON, Reason.NO_SHARED_SEED)


def test_identical_values_need_five_seeds() -> None:
    five = judge(paired.difference(BASE, BASE), direction="min")
    assert (five.kind, five.pairs) == (VerdictKind.IDENTICAL, 5)
    four = judge(paired.difference(BASE, {seed: BASE[seed] for seed in range(4)}, margin=0.1), direction="min")
    assert (four.kind, four.constant, four.pairs, four.needed) == (VerdictKind.INCONCLUSIVE, "value", 4, 5)


@pytest.mark.parametrize("n", [2, 5, 6, 20])
def test_a_constant_difference_is_no_verdict(n: int) -> None:
    base = {seed: 0.3 + 0.1 * seed for seed in range(n)}
    verdict = judge(paired.difference({seed: value + 0.01 for seed, value in base.items()}, base), direction="max")
    assert (verdict.kind, verdict.reason, verdict.needed) == (VerdictKind.INCONCLUSIVE, Reason.CONSTANT, None)
    assert verdict.constant == "difference"


@pytest.mark.parametrize("n", [2, 3])
def test_few_seeds_have_no_prediction(n: int) -> None:
    difference = paired.difference({seed: BASE[seed] + 0.1 * (-1) ** seed for seed in range(n)}, BASE)
    verdict = judge(difference, direction="min")
    assert (verdict.kind, verdict.reason) == (VerdictKind.INCONCLUSIVE, Reason.FEW_SEEDS)
    assert verdict.needed is None and verdict.prediction is None


def test_an_inconclusive_verdict_predicts_that_with_more_seeds() -> None:
    difference = paired.difference(
        {seed: BASE[seed] + noise for seed, noise in enumerate([0.01, 0.05, -0.02, 0.03, 0.04])}, BASE
    )
    verdict = judge(difference, direction="min")
    assert (verdict.kind, verdict.reason, verdict.constant) == (VerdictKind.INCONCLUSIVE, Reason.MORE_SEEDS, "")
    assert difference is not None and verdict.prediction == predict(difference, 6)
    assert verdict.needed == predicted_seeds(difference)


def test_before_the_first_look_the_verdict_is_inconclusive() -> None:
    difference = paired.difference({0: 1.0, 1: 1.1}, BASE, looks=Looks(3, 12))
    assert difference is not None and difference.conclusion == ""
    verdict = judge(difference, direction="min")
    assert (verdict.reason, verdict.pairs, verdict.first_look) == (Reason.BEFORE_FIRST_LOOK, 2, 3)
