"""Tests of the agreement of verdicts at a low level with signs at a higher one, and of its interval."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from scipy import stats

from attnlab.config.question import EstimandConfig
from attnlab.stats.compare import summarize_cells
from examples.my_analysis.validity import MIN_CELLS, SignAgreement, share_interval, summarize_agreement
from tests.support.levels import made_up_levels
from tests.support.specs import changed

# "dense" is at 0. At 1,500, c and d change places; at 4,500, a is on the other side of all others, and e ties with d.
GAPS = {
    "a": [-0.05, -0.05, 0.09],
    "b": [0.02, 0.02, 0.02],
    "c": [0.04, 0.06, 0.04],
    "d": [0.06, 0.04, 0.06],
    "e": [0.08, 0.08, 0.06],
}


def agreements_of(gaps: dict[str, list[float]], **options: Any) -> dict[tuple[float, float], SignAgreement]:
    runs, spec = made_up_levels(gaps, **options)
    return {(a.lower, a.higher): a for a in summarize_agreement(summarize_cells(runs, spec), spec)}


def test_pairs_are_counted_at_each_two_levels() -> None:
    agreements = agreements_of(GAPS)
    assert list(agreements) == [(500, 1500), (500, 4500), (1500, 4500)]
    first, last = agreements[500, 1500], agreements[500, 4500]
    assert (first.cells, first.pairs, first.verdicts) == (6, 15, 15)
    assert (first.kept, first.confirmed, first.reversed) == (14, 14, 1)  # c and d
    assert last.verdicts - last.reversed - last.confirmed == 1, "d and e have no verdict at 4,500 steps"
    assert last.reversed == 5 and last.kept in (9, 10), "a with each of the others; d and e by chance"
    assert (
        first.share == pytest.approx(14 / 15) and first.interval is not None and first.interval[0] < 14 / 15 < first.interval[1]
    )


@pytest.mark.parametrize("seeds", [3, 5])
def test_a_metric_that_is_better_when_larger_counts_alike(seeds: int) -> None:
    runs, spec = made_up_levels(GAPS, seeds=seeds)
    reversed_ = [run | {"bits_per_byte": -run["bits_per_byte"]} for run in runs]
    loss, score = (
        summarize_agreement(summarize_cells(rows, changed(spec, direction=direction)), spec)
        for rows, direction in ((runs, "min"), (reversed_, "max"))
    )
    assert loss == score and loss[0].verdicts > 0


def test_a_noisy_study_without_verdicts_has_no_probability() -> None:
    for agreement in agreements_of({name: [0.0] * 3 for name in GAPS}, seeds=3, noise=0.05).values():
        assert agreement.verdicts == 0 and agreement.share is None and agreement.interval is None


def test_one_seed_has_no_verdicts() -> None:
    assert {agreement.verdicts for agreement in agreements_of(GAPS, seeds=1).values()} == {0}


def test_verdicts_at_one_level_do_not_depend_on_the_results_at_others() -> None:
    """The study at the low level alone has the same verdicts."""
    quiet, loud = (agreements_of({n: [g[0], g[1], f * g[2]] for n, g in GAPS.items()}) for f in (1, 30))
    assert quiet[500, 1500] == loud[500, 1500]


def test_studies_without_enough_cells_levels_or_means_have_no_agreement() -> None:
    few = {name: GAPS[name] for name in list(GAPS)[: MIN_CELLS - 2]}  # and dense
    assert agreements_of(few) == {}
    runs, spec = made_up_levels(GAPS)
    cells = summarize_cells(runs, spec)
    assert summarize_agreement(cells, spec)
    assert summarize_agreement(cells, changed(spec, over="")) == []
    assert summarize_agreement(cells, replace(spec, estimand=EstimandConfig(name="solve_rate", threshold=1.0))) == []
    assert {a.cells for a in summarize_agreement(cells, replace(spec, control={"variant": "a"}))} == {5}


def test_cells_that_lack_a_level_are_left_out_there() -> None:
    runs, spec = made_up_levels(GAPS)
    runs = [run for run in runs if run["cell"] != "e steps=4500"]
    agreements = {(a.lower, a.higher): a for a in summarize_agreement(summarize_cells(runs, spec), spec)}
    assert agreements[500, 1500].cells == 6 and agreements[500, 4500].cells == agreements[1500, 4500].cells == 5


@pytest.mark.parametrize("same", [True, False])
def test_pairs_that_all_agree_count_as_one_less_than_their_cells(same: bool) -> None:
    cells = [str(i) for i in range(10)]
    exact = stats.binomtest(9 * same, 9).proportion_ci(0.95, "exact")
    assert share_interval(dict.fromkeys(combinations(cells, 2), same), cells) == pytest.approx((exact.low, exact.high))
    few = stats.binomtest(int(same), 1).proportion_ci(0.95, "exact")
    assert share_interval({("0", "1"): same, ("2", "3"): same}, cells) == pytest.approx((few.low, few.high))


@pytest.mark.parametrize("same", [True, False])
def test_two_families_that_change_places_count_as_one_pair(same: bool) -> None:
    """Cells without verdicts on each other may be one family."""
    cells = [str(i) for i in range(10)]
    between = {(a, b): same for a in cells[:5] for b in cells[5:]}
    assert share_interval(between, cells) == pytest.approx((0.025, 1) if same else (0, 0.975))


def test_reversals_between_two_families_widen_the_interval_as_far_as_the_odds() -> None:
    cells = [str(i) for i in range(10)]
    kept = {pair: (pair[0] < "2") == (pair[1] < "2") for pair in combinations(cells, 2)}
    share = sum(kept.values()) / len(kept)
    low, high = share_interval(kept, cells)
    number = share / (1 - share)
    assert low < 0.05 and high > 0.98 and 1 < number < 2


def test_nearly_tied_verdicts_are_the_nearest_third() -> None:
    agreement = agreements_of(GAPS)[500, 1500]
    assert (agreement.near, agreement.near_kept) == (5, 4), "c and d are among them"
    assert agreement.near_size == pytest.approx(0.04, abs=0.005)
