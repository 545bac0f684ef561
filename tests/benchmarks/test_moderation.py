"""Tests of the error rates of moderated t-tests."""

import pytest

from benchmarks import table_tests
from benchmarks.looks import Added, until_conclusive
from benchmarks.moderation import FACTOR_FOUR, MODERATION, moderated_tables
from benchmarks.simulation import FALSE

STUDIES = 40_000
BOUND = (FALSE.limit or 0) + 3 * 0.0012  # three Monte-Carlo standard errors


@pytest.mark.parametrize("spread", ["equal", "baseline x2", "one cell x2"])
@pytest.mark.parametrize(("seeds", "comparisons"), [(2, 3), (2, 6), (3, 3), (3, 5), (5, 3)])
def test_the_promised_bound_holds(spread: str, seeds: int, comparisons: int) -> None:
    shares = moderated_tables(spread, seeds, comparisons, STUDIES, seed=7)
    assert shares["false"].value < BOUND
    assert shares["power"].value > shares["power, plain"].value + 0.03


def test_settings_with_a_factor_of_four_are_not_promised() -> None:
    reasons = {setting.name: setting.not_promised for setting in MODERATION.settings}
    assert {name for name, reason in reasons.items() if reason == FACTOR_FOUR} == {"baseline x4", "one cell x4"}
    assert not any(reasons[name] for name in ("equal", "baseline x2", "one cell x2"))


@pytest.mark.parametrize("margin", [None, 2.0])
@pytest.mark.parametrize("last", [8, 20])
def test_moderated_looks_err_at_most_as_often_as_promised(margin: float | None, last: int) -> None:
    outcome = until_conclusive(Added(first=3, last=last, margin=margin, moderated=True), 2_000, seed=5)
    assert outcome["false"].value < 0.05 + 2 * 0.005  # type: ignore[union-attr] # two Monte-Carlo standard errors
    assert outcome["covered"].value > 0.95  # type: ignore[union-attr]


def test_a_prior_of_four_would_break_the_bound_with_two_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_tests, "prior_degrees_of_freedom", lambda pairs, comparisons: 4)
    assert moderated_tables("baseline x2", 2, 6, STUDIES, seed=7)["false"].value > 0.08
