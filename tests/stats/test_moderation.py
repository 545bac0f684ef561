"""Tests of moderated t-tests: against scipy, the rule by which they are used, and their error rate in simulated tables."""

from typing import Any

import numpy
import pytest

from attnlab.stats import joint, paired
from attnlab.stats.compare import summarize_cells
from attnlab.stats.joint import simultaneous_interval
from attnlab.stats.sequential import Looks
from attnlab.stats.variance_prior import are_odd, prior_degrees_of_freedom, table_prior
from tests.support.specs import comparison_spec

Table = list[paired.Difference]


def compare(gaps: numpy.ndarray, *, margin: float | None = None, looks: Looks | None = None) -> list[paired.Difference | None]:
    """Return the uncorrected differences of one table (comparisons x seeds)."""
    zero = dict.fromkeys(range(gaps.shape[1]), 0.0)
    return [paired.difference(dict(enumerate(row)), zero, margin=margin, looks=looks) for row in gaps.tolist()]


def moderate(gaps: numpy.ndarray, *, margin: float | None = None, looks: Looks | None = None) -> Table:
    return [d for d in joint.moderate(compare(gaps, margin=margin, looks=looks)) if d is not None]


def table(comparisons: int, n: int, *, seed: int = 0) -> numpy.ndarray:
    return numpy.random.RandomState(seed).normal(0.3, 1, (comparisons, n))


def written_out(gaps: numpy.ndarray, prior_df: int) -> tuple[numpy.ndarray, numpy.ndarray, int]:
    """Return means, standard errors and degrees of freedom after Smyth (2004), with the prior at the mean variance."""
    n = gaps.shape[1]
    variances = gaps.var(axis=1, ddof=1)
    moderated = (prior_df * variances.mean() + (n - 1) * variances) / (prior_df + n - 1)
    return gaps.mean(axis=1), numpy.sqrt(moderated / n), prior_df + n - 1


@pytest.mark.parametrize(("comparisons", "n", "prior_df"), [(6, 2, 2), (3, 3, 1), (4, 5, 4)])
def test_the_table_has_moderated_t_tests_and_each_comparison_its_own(comparisons: int, n: int, prior_df: int) -> None:
    from scipy import stats as reference

    gaps, margin = table(comparisons, n), 1.5
    means, errors, df = written_out(gaps, prior_df)
    differences = moderate(gaps, margin=margin)
    assert [d.p_moderated for d in differences] == pytest.approx(2 * reference.t.sf(abs(means / errors), df))
    near = reference.t.sf((margin - abs(means)) / errors, df)
    assert [d.p_equivalent_moderated for d in differences] == pytest.approx(near)
    alone: Any = reference.ttest_1samp(gaps, 0, axis=1)
    assert [d.p for d in differences] == pytest.approx(alone.pvalue)
    low, high = alone.confidence_interval(0.95)
    assert [d.interval.low for d in differences] == pytest.approx(low)
    assert [d.interval.high for d in differences] == pytest.approx(high)
    assert [d.interval.sd for d in differences] == pytest.approx(gaps.std(axis=1, ddof=1)), "that of the seeds remains"


def test_the_effect_size_uses_the_moderated_spread() -> None:
    from scipy.special import gamma

    gaps = table(6, 2)
    means, errors, df = written_out(gaps, 2)
    bias = gamma(df / 2) / (numpy.sqrt(df / 2) * gamma((df - 1) / 2))
    expected = means / (errors * 2**0.5) * bias
    assert [d.effect_size for d in moderate(gaps)] == pytest.approx(expected)


def test_simultaneous_intervals_are_the_wider_of_the_moderated_ones_and_those_of_the_comparisons() -> None:
    from scipy import stats as reference

    gaps = table(8, 3)
    means, errors, df = written_out(gaps, 3)
    of_table = reference.t.ppf(1 - 0.05 / 16, df) * errors
    alone = reference.t.ppf(1 - 0.05 / 4, 2) * gaps.std(1, ddof=1) / 3**0.5
    assert (of_table > alone).any() and (alone > of_table).any()
    corrected = [d for d in paired.correct([*moderate(gaps)]) if d is not None]
    assert not any(d.conclusion for d in corrected)
    widths = [(i.half_width or 0) for i in map(simultaneous_interval, corrected) if i]
    assert widths == pytest.approx(numpy.maximum(of_table, alone))


def test_a_verdict_needs_the_tests_of_the_table_and_of_the_comparison_alone() -> None:
    """Worked by hand: two quiet comparisons lend a noisy one a variance with which the table alone would call it different."""
    quiet = [[1.00, 1.02, 0.98], [1.01, 0.99, 1.00]]  # variances 0.0004 and 0.0001
    noisy = [0.10, 0.35, 0.30]  # mean 0.25, variance 0.0175: t = 3.273, p = 0.082 with 2 degrees of freedom
    plain, with_margin = (
        [d for d in paired.correct([*moderate(numpy.array([*quiet, noisy]), margin=margin)]) if d is not None]
        for margin in (None, 0.5)
    )
    # prior of 1 degree of freedom at 0.006: variance (0.006 + 2 x 0.0175) / 3 = 0.013667, t = 3.704, p = 0.0342
    last = plain[2]
    assert (last.p, last.p_moderated, last.p_table) == pytest.approx((0.0820, 0.0342, 0.0342), abs=5e-5)
    assert last.p_holm == last.p and last.conclusion == "" and [d.conclusion for d in plain[:2]] == ["higher"] * 2
    # equivalence: the distance 0.5 - 0.25 has the same t-values, and its tests have one side
    near = with_margin[2]
    assert (near.p_equivalent, near.p_equivalent_moderated) == pytest.approx((0.0410, 0.0171), abs=5e-5)
    assert near.alone == (1, 2), "its p-value is the largest of the table, but not of the tests of equivalence"
    assert near.p_equivalent_holm == 2 * (near.p_equivalent or 0) and near.conclusion == ""


@pytest.mark.parametrize("margin", [None, 2.0])
def test_no_verdict_of_a_difference_has_an_interval_that_contains_zero(margin: float | None) -> None:
    random = numpy.random.RandomState(3)
    verdicts = 0
    for gaps in random.standard_normal((300, 6, 3)) * random.choice([0.3, 1, 3], (300, 6, 1)) + 1.5:
        for d in paired.correct([*moderate(gaps, margin=margin)]):
            outer = simultaneous_interval(d) if d else None
            assert d is not None and outer is not None and d.interval.low is not None and d.interval.high is not None
            assert outer.low is not None and outer.high is not None and d.p_holm is not None
            assert (d.p_holm < paired.LEVEL) is d.is_significant is not (outer.low < 0 < outer.high)
            assert not (d.is_significant and d.interval.low <= 0 <= d.interval.high)
            verdicts += d.is_significant
    assert verdicts > 100


@pytest.mark.parametrize("comparisons", [1, 2])
def test_small_tables_are_not_moderated(comparisons: int) -> None:
    differences = compare(table(comparisons, 5))
    assert joint.moderate(differences) == differences


def test_the_weight_of_the_prior_grows_with_the_table() -> None:
    weights = {n: [prior_degrees_of_freedom(n, comparisons) for comparisons in range(8)] for n in (1, 2, 3, 4, 5, 6, 12)}
    assert weights[1] == [0] * 8
    assert weights[2] == [0, 0, 0, 1, 1, 1, 2, 2]
    assert weights[3] == [0, 0, 0, 1, 2, 3, 3, 3]
    assert weights[4] == [0, 0, 0, 2, 3, 4, 4, 4]
    assert weights[5] == [0, 0, 0, 3, 4, 4, 4, 4]
    assert weights[6] == weights[12] == [0, 0, 0, 4, 4, 4, 4, 4]


def test_the_comparison_with_the_fewest_pairs_decides() -> None:
    prior = table_prior([1.0, 2.0, 6.0], [5, 3, 5])
    assert prior is not None and (prior.degrees_of_freedom, prior.variance) == (1, 3.0)
    assert table_prior([], []) is None


def test_a_twin_of_the_baseline_borrows_nothing_and_lends_nothing() -> None:
    gaps = table(6, 8)
    gaps[2] *= 0.05
    others = moderate(gaps[[0, 1, 3, 4, 5]])
    twin = moderate(gaps)
    assert twin.pop(2) == compare(gaps)[2]
    assert twin == others
    assert are_odd([1.0, 1.0, 0.0025], [8, 8, 8]) == [False, False, True]
    assert are_odd([1.0, 1.0, 0.0025], [3, 3, 3]) == [False] * 3  # as small a variance is probable with three pairs
    assert are_odd([1.0, 1.2, 0.9, 30.0], [8] * 4) == [False, False, False, True]  # a cell that is not paired
    assert are_odd([1.0], [8]) == are_odd([0.0, 0.0], [8, 8])[:1] == [False]


def test_differences_without_a_t_test_lend_nothing_and_borrow_nothing() -> None:
    """Identical values, a constant difference and a single pair have no variance; a table of two others is too small."""
    gaps = table(3, 4)
    constant, same = numpy.full((1, 4), 0.1), numpy.zeros((1, 4))
    single = paired.difference({0: 1.0}, {0: 2.0})
    others = [*compare(constant), *compare(same), single, None]
    moderated = joint.moderate([*others, *compare(gaps)])
    assert moderated[:4] == others
    assert moderated[4:] == moderate(gaps)
    assert joint.moderate([*others, *compare(gaps[:2])]) == [*others, *compare(gaps[:2])]


def test_pairs_before_the_first_look_lend_nothing() -> None:
    looks = Looks(3, 8)
    early = compare(table(1, 2), looks=looks)
    assert early[0] is not None and early[0].p is None
    gaps = table(3, 4)
    assert joint.moderate([*early, *compare(gaps, looks=looks)]) == [*early, *moderate(gaps, looks=looks)]


def test_looks_correct_the_moderated_p_value() -> None:
    gaps, looks = table(4, 5), Looks(3, 12)
    for plain, looked in zip(moderate(gaps), moderate(gaps, looks=looks), strict=True):
        assert plain.p_moderated is not None and looked.p_moderated is not None
        assert looked.p_moderated == pytest.approx(2 * looks.adjust(plain.p_moderated / 2))
        assert plain.interval.half_width is not None and looked.interval.half_width is not None
        assert looked.interval.half_width > plain.interval.half_width


@pytest.mark.parametrize(("n", "comparisons", "spread"), [(2, 6, 1), (2, 6, 2), (3, 3, 1), (3, 3, 2), (5, 4, 2)])
def test_false_verdicts_are_at_most_six_percent(n: int, comparisons: int, spread: int) -> None:
    """Nothing differs; with a spread of 2 the shared baseline scatters twice as much as the cells, the worst case of x2."""
    random, tables = numpy.random.RandomState(1), 2_000
    cells = random.standard_normal((tables, comparisons, n))
    gaps = cells - spread * random.standard_normal((tables, 1, n))
    corrected = [paired.correct([*moderate(rows)]) for rows in gaps]
    wrong = sum(any(d and d.conclusion in ("lower", "higher") for d in differences) for differences in corrected)
    assert wrong / tables < 0.06 + 2 * 0.0053  # two Monte-Carlo standard errors


def test_each_group_borrows_from_its_own_comparisons() -> None:
    gaps = numpy.concatenate([table(3, 4, seed=1), 10 * table(4, 4, seed=2)])
    moderated = joint.moderate(compare(gaps), groups=["a"] * 3 + ["b"] * 4)
    for rows, part in ((slice(0, 3), gaps[:3]), (slice(3, 7), gaps[3:])):
        means, errors, df = written_out(part, 2)
        tests = [d.interval for d in moderated[rows] if d is not None]
        assert [(i.moderated_sd or 0) / 2 for i in tests] == pytest.approx(errors) and {
            i.degrees_of_freedom for i in tests
        } == {df}
        assert [i.mean for i in tests] == pytest.approx(means)
    alone = joint.moderate(compare(gaps), groups=["a"] * 7)
    assert alone == joint.moderate(compare(gaps)), "one group is the whole table"
    assert all(d == plain for d, plain in zip(joint.moderate(compare(gaps), groups=range(7)), compare(gaps), strict=True))


def test_comparisons_borrow_within_their_level_and_test() -> None:
    """Levels that scatter differently, and cells on other data, have variances of their own."""
    random = numpy.random.RandomState(5)
    runs = [
        {
            **{"variant": variant, "train.steps": str(steps), "loss": float(random.normal(0, scale)), "test": test},
            **{"seed": seed, "state": "completed"},
        }
        for variant in ("dense", "a", "b", "c")
        for steps, scale, test in ((500, 5.0, '{"data": 1}'), (1500, 1.0, '{"data": 1}'), (4500, 1.0, '{"data": 2}'))
        for seed in range(4)
    ]
    spec = comparison_spec("levels", ("variant", "train.steps"), "loss", "min", {"variant": "dense"}, over="train.steps")
    cells = summarize_cells(runs, spec)
    compared = [cell for cell in cells if cell.difference]
    for steps in ("500", "1500", "4500"):
        intervals = [c.difference.interval for c in compared if c.difference and c.axes["train.steps"] == steps]
        mean = numpy.mean([(interval.sd or 0) ** 2 for interval in intervals])
        assert [i.prior and i.prior.variance for i in intervals] == pytest.approx([mean] * 3)
