"""Tests of intervals on the page and on the terminal: simultaneous ones, and the mark of chosen estimates."""

import math
from dataclasses import replace
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from attnlab.cli._results import print_results
from attnlab.config.question import EstimandConfig
from attnlab.planning.plan import plan
from attnlab.report import figures
from attnlab.report.notes import notes_on_intervals
from attnlab.report.plots.rows import ForestRow, SeedRow, forest_plot, seed_plot
from attnlab.report.stored import cells_frame
from attnlab.report.summary import summarize
from attnlab.report.verdicts import notes, verdict_table
from attnlab.report.wording import CHOSEN_MARK, SIMULTANEOUS_MARK, format_difference
from attnlab.stats.compare import CellSummary
from attnlab.stats.joint import hides_correction, simultaneous_interval
from attnlab.stats.verdict import VerdictKind
from tests.report.test_summary import ONE, STEADY, study
from tests.support.compared import fake_record, of_rows
from tests.support.drawings import parse
from tests.support.specs import changed

NOISE = {
    "hidden": [0.010, 0.030, 0.002, 0.014, 0.024],
    "far": [0.101, 0.100, 0.102, 0.099, 0.101],
    "near": [0.001, -0.03, 0.02, -0.01, 0.03],
    "nearer": [0.02, -0.02, 0.03, -0.03, 0.001],
}
VALUES = {"dense": STEADY} | {
    name: [base + value for base, value in zip(STEADY, noise, strict=True)] for name, noise in NOISE.items()
}
SPEC = changed(ONE, margin=0.001)


def test_an_effect_size_is_the_difference_in_the_spread_that_the_page_names() -> None:
    cells = [cell for cell in table().values() if cell.difference]
    for cell in cells:
        difference: Any = cell.difference
        interval = difference.interval
        n, weight, common = interval.n, 0, 0.0
        if prior := interval.prior:
            weight, common = prior.degrees_of_freedom, prior.variance
        freedom = n - 1 + weight
        variance = (interval.sd**2 * (n - 1) + common * weight) / freedom
        hedges = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(freedom / 2)
        assert difference.effect_size == pytest.approx(hedges * interval.mean / math.sqrt(variance), rel=0.01)


@pytest.mark.parametrize("estimand", [None, EstimandConfig(name="solve_rate", threshold=2.0)])
def test_the_page_of_a_task_says_that_verdicts_are_corrected_over_all_tasks(estimand: EstimandConfig | None) -> None:
    spec = changed(SPEC, **({"estimand": estimand} if estimand else {}))
    cells = study(VALUES, spec)
    for task, family in (("", "of the table"), ("a", "of all tasks of the study")):
        texts = notes(cells, replace(spec, task=task))
        (level,) = [text for text in texts if "corrected by Holm's method over all comparisons" in text]
        assert f"comparisons {family}" in level


def table() -> dict[str, CellSummary]:
    """Return a table with one interval that excludes zero beside an inconclusive verdict, and one better or worse cell."""
    return {cell.name: cell for cell in study(VALUES, SPEC)}


def test_an_interval_that_excludes_zero_beside_an_open_verdict_has_the_simultaneous_one_beside_it() -> None:
    cells = table()
    hidden, far, near = (cells[name].difference for name in ("hidden", "far", "near"))
    assert hidden and far and near and hides_correction(hidden) and cells["hidden"].is_inconclusive
    outer = simultaneous_interval(hidden)
    assert outer is not None and outer.half_width is not None and hidden.interval.half_width is not None
    expected = f"± {outer.format_half_width()} {SIMULTANEOUS_MARK}"
    assert outer.half_width > abs(hidden.interval.mean) > hidden.interval.half_width
    rows = {row.cells[0]: " | ".join(row.cells) for row in verdict_table(list(cells.values()), SPEC).rows}
    assert expected in rows["hidden"] and sum(SIMULTANEOUS_MARK in row for row in rows.values()) == 1
    (note,) = (note for note in notes(list(cells.values()), SPEC) if note.startswith(SIMULTANEOUS_MARK))
    assert f"hidden {hidden.format()}." in note, "the note has the other interval"
    summary = summarize(list(cells.values()), SPEC).text
    assert f", simultaneous ± {outer.format_half_width()}, " in summary and summary.count("simultaneous") == 1


def test_no_table_shows_an_interval_that_contradicts_its_verdict() -> None:
    """An interval excludes zero only if the difference is significant, or if the simultaneous interval is shown too."""
    for cell in table().values():
        if cell.difference is not None:
            low, high = cell.difference.interval.low, cell.difference.interval.high
            assert low is not None and high is not None
            decided = cell.verdict is not None and cell.verdict.kind in (VerdictKind.BETTER, VerdictKind.WORSE)
            assert low <= 0 <= high or decided or SIMULTANEOUS_MARK in format_difference(cell)


def test_a_difference_called_better_or_worse_is_marked() -> None:
    cells = table()
    marked = [name for name, cell in cells.items() if CHOSEN_MARK in format_difference(cell)]
    assert marked == ["far"]


def test_the_forest_draws_the_simultaneous_interval_of_each_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, ForestRow] = {}
    monkeypatch.setattr(figures, "forest_plot", lambda rows, **_: drawn.update({row.label: row for row in rows}) or "")
    cells = table()
    figures.draw_differences(list(cells.values()), SPEC, figures.cell_colors(list(cells.values())))
    assert drawn.keys() == NOISE.keys()
    for name, row in drawn.items():
        difference = cells[name].difference
        assert difference is not None and (outer := simultaneous_interval(difference)) is not None
        assert (row.outer_low, row.outer_high) == (outer.low, outer.high) and "simultaneous" not in row.text
    single = study({"dense": STEADY, "near": VALUES["near"]}, SPEC)
    figures.draw_differences(single, SPEC, figures.cell_colors(single))
    assert (drawn["near"].outer_low, drawn["near"].outer_high) == (None, None), "one comparison has one interval"


def test_28_seeds_leave_the_mean_and_its_interval_free() -> None:
    values = {seed: seed / 280 for seed in range(28)}
    rows = forest_plot([ForestRow("a", "#123456", [*values.values()], 0.05, 0.04, 0.06, "")], title="t", direction="min")
    for drawing in (rows, seed_plot([SeedRow("a", "#123456", values, 0.05, 0.04, 0.06)], title="t")):
        shapes = list(parse(drawing))
        tops = [float(shape.attrib["cy"]) - float(shape.attrib["r"]) for shape in shapes if shape.tag.endswith("circle")]
        levels = [float(shape.attrib["y1"]) for shape in shapes if _is_level(shape)]
        assert len(tops) == 28 and levels and max(levels) < min(tops)


def _is_level(shape: Element) -> bool:
    """Whether a shape is a level line of a row."""
    return shape.get("stroke") == "#123456" and "y1" in shape.attrib and shape.attrib["y1"] == shape.attrib["y2"]


def test_the_terminal_has_the_differences_and_the_notes_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    names = {"dense": "dense", "hidden": "no_wo", "far": "basic", "near": "narrow", "nearer": "wide"}
    made = plan(
        {
            "study": "s",
            "base": {
                "task": {"name": "pydocs", "length": 17},
                "model": {"dim": 12, "depth": 1, "heads": 2},
                "train": {"steps": 2},
            },
            "grid": {"variant": list(names.values())},
            "seeds": list(range(5)),
            "baseline": {"variant": "dense"},
            "margin": SPEC.margin,
        }
    )
    rows = [
        fake_record(cell.name, seed, {"bits_per_byte": value})
        for cell, values in zip(made.cells, VALUES.values(), strict=True)
        for seed, value in enumerate(values)
    ]
    info, compared = of_rows(made, rows)
    print_results(info, compared)
    text = capsys.readouterr().out
    cells = compared.cells
    page = verdict_table(cells, SPEC)
    at = [column.heading for column in page.columns].index("difference")
    shown = [row.cells[at] for row in page.rows if row.cells[at]]
    assert len(shown) == 4 and all(difference in text for difference in shown)
    for mark in (SIMULTANEOUS_MARK, CHOSEN_MARK):
        assert sum(mark in difference for difference in shown) == 1
    page_notes = notes(cells, SPEC)
    for note in notes_on_intervals(cells):
        assert note in text and note in page_notes


def test_exported_tables_have_the_simultaneous_intervals() -> None:
    cells = table()
    frame = cells_frame(list(cells.values()), SPEC).set_index("cell")
    for name in NOISE:
        difference = cells[name].difference
        assert difference is not None and (outer := simultaneous_interval(difference)) is not None
        assert (frame["simultaneous_low"][name], frame["simultaneous_high"][name]) == (outer.low, outer.high)
