"""Tests of estimands with exact tests: their estimates, intervals, verdicts, and the seeds that they need."""

from typing import Any

import pytest
from scipy.stats import binomtest

from attnlab.config.question import EstimandConfig
from attnlab.stats import paired
from attnlab.stats.compare import summarize_cells
from attnlab.stats.exact import clopper_pearson
from attnlab.stats.exact_estimators import ExactDifference, SolveRate
from attnlab.stats.joint import hides_correction, moderate, simultaneous_interval
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import Reason, Verdict, VerdictKind, judge
from tests.support.specs import comparison_spec

RATE = SolveRate("recall", "max", 0.9)
SOLVED, FAILED = 0.99, 0.2


def scores(text: str) -> dict[int, float]:
    """Return seed -> score: "+" solves the task, "-" does not."""
    return {seed: SOLVED if sign == "+" else FAILED for seed, sign in enumerate(text)}


def compared(cell: dict[int, float], baseline: dict[int, float], estimator: SolveRate, **options: Any) -> ExactDifference:
    difference = estimator.compare(cell, baseline, **options)
    corrected = paired.correct([difference])[0]
    assert isinstance(corrected, ExactDifference)
    return corrected


def verdict_on(difference: ExactDifference) -> Verdict:
    return judge(difference, direction=difference.estimator.direction)


@pytest.mark.parametrize(("count", "n"), [(0, 5), (4, 5), (5, 5), (3, 12)])
def test_the_interval_of_clopper_and_pearson(count: int, n: int) -> None:
    expected = binomtest(count, n).proportion_ci(0.95, "exact")
    assert clopper_pearson(count, n, 0.025) == pytest.approx((expected.low, expected.high))


def test_a_solve_rate_compares_the_seeds_that_reach_the_threshold() -> None:
    difference = compared(scores("+++++"), scores("-----"), RATE)
    assert RATE.solved(difference) == (5, 0) and difference.interval.mean == 1.0
    assert difference.p == pytest.approx(2 / 1024) and difference.conclusion == "higher"
    assert verdict_on(difference).kind is VerdictKind.BETTER
    open_ = compared(scores("+++++"), scores("++---"), RATE)
    assert verdict_on(open_).reason is Reason.EXACT_TEST and open_.conclusion == ""


def test_where_smaller_scores_are_better_a_run_solves_the_task_below_the_threshold() -> None:
    loss = SolveRate("loss", "min", 0.5)
    difference = compared(scores("-----"), scores("+++++"), loss)  # 0.2 is below the threshold
    assert loss.solved(difference) == (5, 0) and difference.conclusion == "lower"
    assert verdict_on(difference).kind is VerdictKind.BETTER
    worse = compared(scores("+++++"), scores("-----"), loss)
    assert worse.conclusion == "higher" and verdict_on(worse).kind is VerdictKind.WORSE


def test_solve_rates_are_equivalent_only_within_a_margin_that_the_seeds_can_show() -> None:
    n = RATE.fewest_equivalent(0.3)
    assert n is not None
    enough, few = (compared(scores("+" * k), scores("+" * k), RATE, margin=0.3) for k in (n, n - 1))
    assert enough.conclusion == "equivalent" and few.conclusion == ""
    assert enough.interval.low is not None and enough.interval.low > -0.35
    without = compared(scores("+" * n), scores("+" * n), RATE)
    assert without.p_equivalent is None and without.conclusion == ""


def test_no_t_test_no_borrowed_variance_and_no_prediction() -> None:
    tables = [compared(scores(cell), scores("--+--"), RATE) for cell in ("+++++", "++-++", "+-+-+", "--+--")]
    assert moderate(tables) == tables
    for difference in tables:
        assert difference.interval.sd is None and difference.effect_size is None and not difference.fragile
        assert verdict_on(difference).prediction is None


def test_holm_s_method_corrects_exact_tests() -> None:
    baseline = scores("------")
    texts = ["++++++", "+++++-", "+++---", "------"]
    differences = [RATE.compare(scores(text), baseline) for text in texts]
    corrected = [d for d in paired.correct(differences) if d]
    assert [d.p_holm for d in corrected] == paired.holm([d.p if d else None for d in differences])
    assert [d.conclusion for d in corrected] == ["higher", "higher", "", ""]


def test_announced_looks_correct_exact_tests() -> None:
    looks = Looks(5, 8)
    once, often = (compared(scores("+++++"), scores("----+"), RATE, looks=judged) for judged in (None, looks))
    assert once.p is not None and often.p is not None and 1 < often.p / once.p <= looks.count
    assert compared(scores("++++"), scores("----"), RATE, looks=looks).p is None
    assert verdict_on(compared(scores("++++"), scores("----"), RATE, looks=looks)).reason is Reason.BEFORE_FIRST_LOOK
    for difference in (once, often):
        low = difference.interval.low
        assert low is not None and (low > 0) == (difference.conclusion == "higher")


def test_simultaneous_intervals_agree_with_the_verdicts() -> None:
    baseline = scores("-----")
    texts = ["++++-", "+++++", "-----", "+----"]
    differences = [RATE.compare(scores(text), baseline) for text in texts]
    for difference in paired.correct(differences):
        assert difference is not None
        outer = simultaneous_interval(difference)
        assert outer is not None and outer.low is not None and outer.high is not None
        assert difference.interval.low is not None and outer.low <= difference.interval.low
        assert outer.low < 0 if not difference.is_significant else outer.low >= 0
    first = paired.correct(differences)[0]
    assert first is not None and hides_correction(first) == (not first.is_significant)


def test_a_cell_has_its_rate_and_no_t_interval() -> None:
    rate = RATE.summarize([SOLVED, SOLVED, FAILED, SOLVED, SOLVED])
    assert (rate.solved, rate.n, rate.mean) == (4, 5, 0.8)
    assert (rate.low, rate.high) == pytest.approx((0.2836, 0.9949), abs=1e-4)
    assert rate.half_width is None
    spec = comparison_spec(
        "s", ("variant",), "recall", "max", {"variant": "dense"}, estimand=EstimandConfig(name="solve_rate", threshold=0.9)
    )
    runs = [
        {"variant": variant, "seed": seed, "state": "completed", "recall": value}
        for variant, text in (("dense", "-----"), ("gru", "+++++"))
        for seed, value in scores(text).items()
    ]
    dense, gru = summarize_cells(runs, spec)
    assert dense.value is not None and dense.value.low is None and dense.value.mean == pytest.approx(FAILED)
    assert dense.estimate is not None and dense.estimate.solved == 0
    assert gru.verdict is not None and gru.verdict.kind is VerdictKind.BETTER


def test_the_smallest_number_of_seeds_that_can_be_conclusive() -> None:
    for comparisons, n in zip((1, 6, 7), (3, 4, 5), strict=True):
        assert RATE.fewest_seeds(comparisons=comparisons) == n
        assert comparisons * RATE.smallest_p(n) < paired.LEVEL <= comparisons * RATE.smallest_p(n - 1)
    later = RATE.fewest_seeds(looks=Looks(5, 12), numbers=range(5, 13))
    assert later is not None and later >= 3
    assert RATE.fewest_seeds(comparisons=100, looks=Looks(3, 4), numbers=range(3, 5)) is None


def test_too_few_seeds_are_named_with_the_number_that_can_decide() -> None:
    difference = compared(scores("++"), scores("--"), RATE)
    verdict = verdict_on(difference)
    assert (verdict.reason, verdict.needed) == (Reason.NO_SIGNIFICANT_RESULT, 3)
    one = verdict_on(compared(scores("+"), scores("-"), RATE))
    assert one.kind is VerdictKind.INCONCLUSIVE and one.needed == 3
