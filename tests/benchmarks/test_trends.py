"""Tests of the error rates of trends in a few hundred simulated tables (``benchmarks.validity`` simulates more)."""

import pytest

from attnlab.stats import trend
from attnlab.stats.trend import TrendKind
from benchmarks import simulate, trends, validity_page

STUDIES = 500
MOST = 0.05 + 3 * (0.05 * 0.95 / STUDIES) ** 0.5  # 5 % plus three standard errors in this many tables


@pytest.mark.parametrize("case", ["false trend", "false steady", "false word"])
def test_at_most_one_table_in_twenty_has_a_false_trend(case: str) -> None:
    assert trends.simulate(trends.CASES[case], "normal", 5, studies=STUDIES, seed=1).value <= MOST


def test_trends_without_holm_would_break_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trend.paired, "holm", list)
    for case in ("false trend", "false steady"):
        assert trends.simulate(trends.CASES[case], "normal", 5, studies=STUDIES, seed=1).value > MOST


def test_words_from_the_slope_alone_would_break_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference that changes sign has a significant slope; the sign of its middle is chance."""
    monkeypatch.setattr(trend.Trend, "p_size", property(lambda trend: trend.slope.p))
    assert trends.simulate(trends.CASES["false word"], "normal", 5, studies=100, seed=1).value > 0.5


def test_a_change_is_found_with_enough_seeds() -> None:
    few, many = (trends.simulate(trends.CASES["found"], "normal", n, studies=150, seed=1).value for n in (3, 12))
    assert few < 0.3 and many > 0.5


def test_a_table_of_large_changes_has_each_word() -> None:
    gaps = ((0, 0, 0), (3, 2, 1), (0, 50, 100), (-9, 0, 9.0), (5, 5, 5))
    noise = (0.02, -0.01, 0.03, -0.04, 0.01)
    table = [
        [[gap + noise[(seed + level + 2 * number) % 5] for seed in range(5)] for level, gap in enumerate(by_level)]
        for number, by_level in enumerate(gaps)
    ]
    kinds = [judged.kind for judged in trends.judge(table, margin=0.5)]
    assert kinds[:2] == [TrendKind.SHRINKS, TrendKind.GROWS] and kinds[3] is TrendKind.STEADY


def test_the_page_names_the_settings_that_break_a_bound() -> None:
    lines = [
        simulate.Line("trend", noise, "5", quantity, value, 0.005, 500)
        for noise, value in (("normal", 0.05), ("mild_gap", 0.123))
        for quantity in trends.CASES
    ]
    text = validity_page._trends_section(lines)
    assert "broken by mild_gap (12.3% at 5)" in text and "broken by normal" not in text
    assert validity_page._trends_section([]) == ""
