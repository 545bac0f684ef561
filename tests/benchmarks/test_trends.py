"""Tests of the error rates of trends in a few thousand simulated tables (``benchmarks.validity`` simulates more)."""

from collections.abc import Iterable

import numpy
import pytest

from attnlab.stats.cells import CellSummary
from attnlab.stats.paired import Difference, Interval
from attnlab.stats.trend import Trend, TrendKind, summarize_trends
from benchmarks import table_tests, trends
from tests.support.specs import comparison_spec

STUDIES = 4_000
MOST = 0.05 + 3 * (0.05 * 0.95 / STUDIES) ** 0.5  # 5 % plus three standard errors in this many tables
SHRINKS_OR_GROWS = (TrendKind.SHRINKS, TrendKind.GROWS)


def judge(table: list[list[list[float]]], *, margin: float | None) -> list[Trend]:
    """Return the trends of a table: a value for each cell, level and seed; the first cell is the baseline."""
    axes = ("variant", "train.steps")
    spec = comparison_spec("simulated", axes, "loss", "min", {"variant": "0"}, margin=margin, over="train.steps")
    return summarize_trends(_cells(table), spec)


def _cells(table: list[list[list[float]]]) -> Iterable[CellSummary]:
    """Yield summaries whose differences have no test: no trend of these tables is called "changes sign"."""
    for number, cell in enumerate(table):
        for level, values, baseline in zip(trends.LEVELS, cell, table[0], strict=True):
            mean = numpy.mean(values) - numpy.mean(baseline)
            yield CellSummary(
                name=f"{number} {level}",
                axes={"variant": str(number), "train.steps": str(level)},
                values=dict(enumerate(values)),
                value=None,
                costs={},
                states={},
                baseline=f"0 {level}" if number else "",
                difference=Difference(Interval(len(values), float(mean))) if number else None,
            )


@pytest.mark.parametrize("gaps", [(1.0, 1.0, 1.0), (-4.0, 0.0, 4.0), (6.0, 3.0, 0.5), (0.0, 0.0, 0.0)])
def test_the_simulated_trends_are_those_of_a_report(gaps: tuple[float, ...]) -> None:
    differences = trends.draw("normal", 6, gaps, studies=30, seed=2)
    changes, steady = trends.changes(differences), trends.is_steady(differences, 3.0)
    words = trends.shrinks_or_grows(differences)
    for i, table in enumerate(differences.tolist()):
        baseline = [[0.0] * 6] * len(trends.LEVELS)
        kinds = [trend.kind for trend in judge([baseline, *table], margin=3.0)]
        assert [kind in (*SHRINKS_OR_GROWS, TrendKind.CHANGES) for kind in kinds] == list(changes[i])
        assert [kind is TrendKind.STEADY for kind in kinds] == list(steady[i])
        assert [kind in SHRINKS_OR_GROWS for kind in kinds] == list(words[i])


def test_at_most_one_table_in_twenty_has_a_false_trend() -> None:
    shares = trends.trends("normal", 5, STUDIES, seed=1)
    assert max(shares[name].value for name in ("false", "false steady", "false word")) <= MOST


def test_trends_without_holm_would_break_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (table_tests, trends):
        monkeypatch.setattr(module, "holm", lambda p: p)
    shares = trends.trends("normal", 12, STUDIES, seed=1)
    assert shares["false"].value > MOST and shares["false steady"].value > MOST


def test_words_from_the_slope_alone_would_break_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference that changes sign has a significant slope; the sign of its middle is chance."""
    monkeypatch.setattr(trends, "holm", numpy.zeros_like)
    assert trends.trends("normal", 5, 1_000, seed=1)["false word"].value > 0.5


def test_a_change_is_found_with_enough_seeds() -> None:
    few, many = (trends.trends("normal", n, 1_000, seed=1)["power"].value for n in (3, 12))
    assert few < 0.3 and many > 0.5


def test_a_table_of_large_changes_has_each_word() -> None:
    gaps = ((0, 0, 0), (3, 2, 1), (0, 50, 100), (-9, 0, 9.0), (5, 5, 5))
    noise = (0.02, -0.01, 0.03, -0.04, 0.01)
    table = [
        [[gap + noise[(seed + level + 2 * number) % 5] for seed in range(5)] for level, gap in enumerate(by_level)]
        for number, by_level in enumerate(gaps)
    ]
    kinds = [judged.kind for judged in judge(table, margin=0.5)]
    assert kinds[:2] == [TrendKind.SHRINKS, TrendKind.GROWS] and kinds[3] is TrendKind.STEADY
