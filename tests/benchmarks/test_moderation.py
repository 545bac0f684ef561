"""Tests of the error rates of moderated t-tests."""

import pytest

from benchmarks.looks import Added, added_by_hand, until_conclusive
from benchmarks.moderation import MARGIN, MODERATION, moderated_tables
from benchmarks.simulate import FAR, judge, unequal_tables
from benchmarks.simulation import FALSE

STUDIES = 20_000
BOUND = (FALSE.limit or 0) + 3 * 0.0017  # three Monte-Carlo standard errors


@pytest.mark.parametrize("spread", ["equal", "baseline x4", "one cell x2"])
@pytest.mark.parametrize(("seeds", "comparisons"), [(2, 6), (3, 3), (3, 5)])
def test_the_promised_bound_holds_where_nothing_differs(spread: str, seeds: int, comparisons: int) -> None:
    shares = moderated_tables(spread, seeds, comparisons, False, STUDIES, seed=7)
    assert shares["false"].value < BOUND and shares["false equivalence"].value < BOUND and shares["covered"].value > 0.94
    if spread == "equal" and seeds > 2:
        assert shares["power"].value > shares["power, plain"].value + 0.1


@pytest.mark.parametrize(("spread", "alone"), [("one cell x2", 0.09), ("one cell x4", 0.14), ("one unpaired", 0.15)])
def test_the_promised_bound_holds_where_the_others_really_differ(spread: str, alone: float) -> None:
    """The table's test alone breaks it: Holm's method no longer counts the others, which lend a variance that is too small."""
    shares = moderated_tables(spread, 3, 6, True, STUDIES, seed=8)
    assert shares["false"].value < 0.055 < alone < shares["false, table alone"].value
    assert shares["false equivalence"].value < 0.055 and shares["covered"].value > 0.94


@pytest.mark.parametrize("spread", ["two cells x4", "two unpaired"])
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_promised_bound_holds_with_two_odd_cells(spread: str, seeds: int) -> None:
    for others in (False, True):
        shares = moderated_tables(spread, seeds, 12, others, 6_000, seed=9)
        assert max(shares["false"].value, shares["false equivalence"].value) < 0.06 + 3 * 0.003


def test_two_odd_cells_have_few_false_verdicts_in_the_tables_of_a_report() -> None:
    """With a factor of 1 on the p-values of the comparisons alone, 9 % of the tables have one."""
    differences = unequal_tables("two cells x4", 5, 6, studies=600, seed=3)
    differences[:, 2:] += FAR
    wrong = sum(any(d.conclusion for d in judge(table, moderated=True)[:2]) for table in differences.tolist())
    assert wrong <= 600 * 0.06 + 2 * (600 * 0.06 * 0.94) ** 0.5


def test_a_noisy_cell_costs_the_others_little_power() -> None:
    alone, beside = (moderated_tables(spread, 5, 6, False, 4_000, seed=1) for spread in ("equal", "one unpaired"))
    assert beside["power"].value > alone["power"].value - 0.1


def test_every_setting_with_at_most_two_odd_cells_is_promised() -> None:
    assert all(bool(s.not_promised) == s.name.startswith(("three", "half")) for s in MODERATION.settings)


@pytest.mark.parametrize("margin", [None, 2.0])
@pytest.mark.parametrize("last", [8, 20])
def test_moderated_looks_err_at_most_as_often_as_promised(margin: float | None, last: int) -> None:
    outcome = until_conclusive(Added(first=3, last=last, margin=margin, moderated=True), 2_000, seed=5)
    assert outcome["false"].value < 0.05 + 2 * 0.005  # type: ignore[union-attr] # two Monte-Carlo standard errors
    assert outcome["covered"].value > 0.94  # type: ignore[union-attr]


@pytest.mark.parametrize("margin", [None, MARGIN])
def test_added_seeds_err_at_most_as_often_as_promised_where_the_others_really_differ(margin: float | None) -> None:
    design = Added(first=3, last=8, margin=margin, moderated=True, comparisons=6, spread="one unpaired", others=True)
    for simulate in (until_conclusive, added_by_hand):
        assert simulate(design, 4_000, seed=6)["false"].value < 0.06 + 3 * 0.0035  # type: ignore[union-attr]
