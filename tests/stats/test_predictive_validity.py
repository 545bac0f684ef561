"""Tests of the agreement of verdicts at a low level with signs at a higher one, and of its interval."""

from itertools import combinations
from typing import Any

import pytest
from scipy import stats

from attnlab.stats.compare import summarize_cells
from examples.my_analysis.validity import SignAgreement, share_interval, summarize_agreement
from tests.support.levels import made_up_levels

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


def test_verdicts_at_one_level_do_not_depend_on_the_results_at_others() -> None:
    """The study at the low level alone has the same verdicts."""
    quiet, loud = (agreements_of({n: [g[0], g[1], f * g[2]] for n, g in GAPS.items()}) for f in (1, 30))
    assert quiet[500, 1500] == loud[500, 1500]


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


def test_nearly_tied_verdicts_are_the_nearest_third() -> None:
    agreement = agreements_of(GAPS)[500, 1500]
    assert (agreement.near, agreement.near_kept) == (5, 4), "c and d are among them"
    assert agreement.near_size == pytest.approx(0.04, abs=0.005)
