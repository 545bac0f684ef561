"""Tests of the section on trends: the differences by level, their change in words, the plot and the summary."""

import re
from pathlib import Path
from typing import Any

import pandas
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.report import write
from attnlab.report.stored import load
from attnlab.report.summary import summarize
from attnlab.report.trend import describe_trend, draw_trends, trend_notes, with_trends
from attnlab.report.wording import SIMULTANEOUS_MARK
from attnlab.stats.compare import summarize_cells
from attnlab.stats.trend import Trend, summarize_trends
from attnlab.study.comparison import StudyInfo
from tests.support.levels import made_up_levels
from tests.support.pages import changed_files

GAPS = {"no_wo": [-0.05, -0.03, -0.01], "wide": [0.02] * 3, "gru": [0.05, 0.0, -0.05]}
CURVES = pandas.DataFrame(columns=["run_id", "name", "metric", "step", "value"])


def written(folder: Path, runs: list[dict[str, Any]], info: StudyInfo) -> str:
    write.write(folder, info=info, runs=pandas.DataFrame(runs), curves=CURVES)
    return (folder / "README.md").read_text()


def test_the_page_has_the_differences_by_level_and_the_trends_in_words(tmp_path: Path) -> None:
    runs, spec = made_up_levels(GAPS, margin=0.02)
    text = written(tmp_path, runs, StudyInfo(spec))
    section = text.partition("## Trend over steps")[2].partition("\n## ")[0]
    rows = {
        line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:-1]] for line in section.splitlines() if "| " in line
    }
    assert rows["cell"][:3] == ["at 500", "at 1,500", "at 4,500"]
    assert rows["no_wo"][-1] == "shrinks" and rows["gru"][-1] == "changes sign"
    assert rows["wide"][-1] == "steady within the margin" and "(equivalence)" in rows["wide"][-2]
    assert rows["no_wo"][0].startswith("-0.0497 ± 0.00") and rows["no_wo"][3].startswith("+0.01")
    assert "![difference in bits_per_byte over steps](trend.svg)" in section
    assert section.index("trend.svg") < section.index("| cell")
    assert "[trends.csv](trends.csv)" in text


def test_the_differences_by_level_are_those_of_the_verdicts(tmp_path: Path) -> None:
    runs, spec = made_up_levels(GAPS)
    written(tmp_path, runs, StudyInfo(spec))
    trends = pandas.read_csv(tmp_path / "trends.csv").set_index(["cell", "train.steps"])
    cells = pandas.read_csv(tmp_path / "cells.csv").set_index("cell")
    for variant in GAPS:
        for level in (500, 1500, 4500):
            row, cell = trends.loc[(variant, level)], cells.loc[f"{variant} steps={level}"]
            for column in ("difference", "difference_low", "difference_high"):
                assert row[column] == cell[column]


def test_the_summary_states_conclusive_trends_and_counts_the_others() -> None:
    runs, spec = made_up_levels(GAPS, noise=0.002)
    cells = summarize_cells(runs, spec)
    text = with_trends(summarize(cells, spec), summarize_trends(cells, spec), spec).text
    assert "From 500 to 4,500 steps, the difference shrinks for no_wo (" in text
    assert "the difference changes sign for gru" in text and "1 of 3 trends is inconclusive" in text
    flat, spec = made_up_levels({"wide": [0.02] * 3})
    cells = summarize_cells(flat, spec)
    text = with_trends(summarize(cells, spec), summarize_trends(cells, spec), spec).text
    assert text.endswith("the trend of the difference is inconclusive.")


def test_a_page_with_trends_is_rendered_again_from_its_stored_tables(tmp_path: Path) -> None:
    runs, spec = made_up_levels(GAPS, margin=0.02)
    first, again = tmp_path / "first", tmp_path / "again"
    written(first, runs, StudyInfo(spec))
    write.write(again, **load(first))
    assert changed_files(first, again) == [] and (again / "trends.csv").read_text() == (first / "trends.csv").read_text()


def trends_of(gaps: dict[str, list[float]], **options: Any) -> tuple[list[Trend], Any]:
    runs, spec = made_up_levels(gaps, **options)
    return summarize_trends(summarize_cells(runs, spec), spec), spec


def test_a_trend_in_one_line() -> None:
    trends, spec = trends_of(GAPS, margin=0.02)
    line = describe_trend(trends[0], spec)
    assert line.startswith("no_wo against dense: shrinks: -0.0") and "at 4,500 steps; +0.0" in line
    assert "per doubling, p < 0.001" in line


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    gaps=st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=2, max_size=5),
    noise=st.sampled_from([0.0, 1e-3, 0.02]),
    margin=st.sampled_from([None, 0.05]),
    scale=st.sampled_from([1.0, 1e-4]),
)
def test_words_of_a_trend_agree_with_its_numbers(gaps: list[float], noise: float, margin: float | None, scale: float) -> None:
    """The verb of the summary is checked against the numbers that are printed after it."""
    levels, gaps = [500 * 2**i for i in range(len(gaps))], [scale * gap for gap in gaps]
    margin = margin and scale * margin
    runs, spec = made_up_levels({"no_wo": gaps}, levels=levels, noise=scale * noise, margin=margin, seeds=4)
    cells = summarize_cells(runs, spec)
    text = "".join(with_trends(summarize(cells, spec), summarize_trends(cells, spec), spec).conclusive)
    found = re.search(r"the difference ([a-z ]+) for no_wo \((\S+) to ([^ ,)]+)(.*)\)\.$", text)
    if found is None:
        return
    verb, first, last, rest = found[1], float(found[2]), float(found[3]), found[4]
    match verb:
        case "shrinks":
            assert abs(last) < abs(first)
        case "grows":
            assert abs(last) > abs(first)
        case "changes sign":
            assert first * last < 0
        case "changes":
            assert first != last and ("shrinks" not in rest or abs(last) < abs(first) or first * last < 0)
        case "is the same at every level":
            assert first == last
        case _:
            assert verb == "is steady within the margin" and margin is not None and abs(last - first) <= margin


def test_lost_seeds_are_part_of_the_words() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.05, -0.03, -0.01]})
    runs = [run for run in runs if (run["cell"], run["seed"]) != ("no_wo steps=1500", 2)]
    trends = summarize_trends(summarize_cells(runs, spec), spec)
    assert "on 4 of 5 seeds" in describe_trend(trends[0], spec)


def test_the_plot_has_a_line_per_cell_zero_and_the_margin() -> None:
    trends, spec = trends_of(GAPS, margin=0.02)
    colors = {trend.ends[1].name: f"#00000{i}" for i, trend in enumerate(trends)}
    (figure,) = draw_trends(trends, spec, colors=colors)
    assert figure.svg.count("<polyline") == 3
    assert all(f'fill="{color}"' in figure.svg for color in colors.values()) and "#1D9AE1" in figure.svg
    assert all(f">{text}</text>" in figure.svg for text in ("500", "1,500", "4,500", "steps", "no_wo", "gru"))
    many, spec = trends_of({f"v{i}": [0.01 * i] * 3 for i in range(9)})
    assert [figure.file for figure in draw_trends(many, spec, colors={})] == ["trend-0.svg", "trend-1.svg"]


def test_an_interval_that_only_the_correction_makes_inconclusive_has_the_simultaneous_one() -> None:
    gaps = {"a": [0.0, 0.006, 0.012], "b": [0.0] * 3, "c": [0.0] * 3, "d": [0.0] * 3}
    one, several = (trends_of({name: gaps[name] for name in names}, noise=0.0025) for names in ("a", "abcd"))
    assert "simultaneous" not in describe_trend(one[0][0], one[1])
    trend, spec = several[0][0], several[1]
    assert trend.slope is not None and trend.slope.p is not None and trend.slope.p < 0.05
    line = describe_trend(trend, spec)
    assert "inconclusive" in line and "(simultaneous ± 0.0" in line
    assert any(note.startswith(SIMULTANEOUS_MARK) for note in trend_notes(several[0], spec))
    assert not any(note.startswith(SIMULTANEOUS_MARK) for note in trend_notes(one[0], one[1]))
