"""Tests of estimands with exact tests: their estimates, intervals, verdicts, and the seeds that they need."""

import math
from statistics import median
from typing import Any

import pytest
from scipy.stats import binomtest

from attnlab.config.question import EstimandConfig
from attnlab.stats import paired
from attnlab.stats.compare import summarize_cells
from attnlab.stats.exact import clopper_pearson, median_interval, sign_test_p
from attnlab.stats.exact_estimators import Exact, ExactDifference, Median, SolveRate, Superiority
from attnlab.stats.joint import hides_correction, moderate, simultaneous_interval
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import Reason, Verdict, VerdictKind, judge
from tests.support.specs import comparison_spec

RATE = SolveRate("recall", "max", 0.9)
MEDIAN = Median("recall", "max")
SUPERIORITY = Superiority("recall", "max")
SOLVED, FAILED = 0.99, 0.2


def scores(text: str) -> dict[int, float]:
    """Return seed -> score: "+" solves the task, "-" does not."""
    return {seed: SOLVED if sign == "+" else FAILED for seed, sign in enumerate(text)}


def compared(cell: dict[int, float], baseline: dict[int, float], estimator: Exact, **options: Any) -> ExactDifference:
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


def test_the_sign_test_and_the_interval_of_a_median() -> None:
    assert sign_test_p(9, 10) == pytest.approx(binomtest(9, 10, alternative="greater").pvalue)
    assert sign_test_p(0, 0) == 1
    values = [3.0, 1.0, 2.0, 5.0, 4.0, 6.0, 8.0, 7.0]
    assert median_interval(values, 0.025) == (1.0, 8.0)  # the level of the second and seventh is 2 x 9/256 = 0.07
    assert median_interval(values[:5], 0.025) is None  # 2 x 1/32 = 0.0625
    assert median_interval([*values, 9.0], 0.025) == (2.0, 8.0)  # 2 x 10/512 = 0.039


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


def test_superiority_counts_the_seeds_in_which_the_runs_differ() -> None:
    cell = {0: 0.9, 1: 0.8, 2: 0.7, 3: 0.6, 4: 0.5, 5: 0.4, 6: 0.3}
    baseline = {seed: value - 0.1 for seed, value in cell.items()} | {6: 0.3}  # one tie
    difference = compared(cell, baseline, SUPERIORITY)
    assert difference.wins == (6, 0) and difference.interval.mean == 1.0
    assert difference.p == pytest.approx(2 / 64)
    assert (difference.interval.low, difference.interval.high) == pytest.approx((0.025 ** (1 / 6), 1.0))
    assert difference.conclusion == "higher" and verdict_on(difference).kind is VerdictKind.BETTER
    lower = compared(cell, baseline, Superiority("loss", "min"))
    assert lower.wins == (0, 6) and lower.conclusion == "higher" and verdict_on(lower).kind is VerdictKind.WORSE
    assert compared(cell, baseline, SUPERIORITY, margin=0.2).p_equivalent is None


def test_the_median_of_the_differences_has_the_sign_test() -> None:
    gaps = [0.3, 0.1, 0.2, 0.5, 0.4, 0.6, 0.8, 0.7, -0.1]
    difference = compared(dict(enumerate(gaps)), dict.fromkeys(range(9), 0.0), MEDIAN)
    assert difference.interval.mean == pytest.approx(median(gaps))
    assert difference.p == pytest.approx(binomtest(8, 9).pvalue) and difference.conclusion == "higher"
    assert (difference.interval.low, difference.interval.high) == pytest.approx((0.1, 0.7))
    near = compared(dict(enumerate(gaps)), dict.fromkeys(range(9), 0.0), Median("loss", "min"), margin=0.9)
    assert near.p_equivalent == pytest.approx(1 / 512) and near.conclusion == "higher"
    assert verdict_on(near).within_margin and verdict_on(near).kind is VerdictKind.WORSE


def test_equal_differences_do_not_count_for_the_median() -> None:
    difference = compared(dict.fromkeys(range(12), 0.5), dict.fromkeys(range(12), 0.5), MEDIAN)
    assert difference.p == 1.0 and difference.conclusion == "" and not difference.identical


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


def test_a_cell_has_its_rate_or_its_median_and_no_t_interval() -> None:
    rate = RATE.summarize([SOLVED, SOLVED, FAILED, SOLVED, SOLVED])
    assert (rate.solved, rate.n, rate.mean) == (4, 5, 0.8)
    assert (rate.low, rate.high) == pytest.approx((0.2836, 0.9949), abs=1e-4)
    assert rate.half_width is None
    middle = MEDIAN.summarize([0.1, 0.9, 0.5])
    assert middle.mean == 0.5 and middle.low is None
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


@pytest.mark.parametrize(
    ("estimator", "needed"),
    [(RATE, (3, 4, 5)), (MEDIAN, (6, 8, 9)), (SUPERIORITY, (6, 8, 9))],
    ids=lambda x: getattr(x, "name", ""),
)
def test_the_smallest_number_of_seeds_that_can_be_conclusive(estimator: Exact, needed: tuple[int, ...]) -> None:
    """With 5 pairs the sign test reaches 2 / 2^5 = 0.0625 at best, and Holm's method over 6 comparisons needs 0.05 / 6."""
    for comparisons, n in zip((1, 6, 7), needed, strict=True):
        assert estimator.fewest_seeds(comparisons=comparisons) == n
        assert comparisons * estimator.smallest_p(n) < paired.LEVEL <= comparisons * estimator.smallest_p(n - 1)
    looks = Looks(5, 12)
    later = estimator.fewest_seeds(looks=looks, numbers=range(5, 13))
    assert later is not None and later >= needed[0]
    assert SUPERIORITY.fewest_seeds(looks=Looks(3, 6), numbers=range(3, 7)) is None


def test_too_few_seeds_are_named_with_the_number_that_can_decide() -> None:
    difference = compared(scores("+++++"), scores("-----"), SUPERIORITY)
    assert math.isclose(difference.p or 0, 0.0625)
    verdict = verdict_on(difference)
    assert (verdict.reason, verdict.needed) == (Reason.NO_SIGNIFICANT_RESULT, 6)
    one = verdict_on(compared(scores("+"), scores("-"), RATE))
    assert one.kind is VerdictKind.INCONCLUSIVE and one.needed == 3
