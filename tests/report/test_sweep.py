"""The report on a swept learning rate: its section, its plot, and the figures that it shares with the other tables."""

from collections.abc import Sequence

import pandas
import pytest

from attnlab.report.page import Page, PageSection, make_page
from attnlab.report.section import Table
from attnlab.report.stored import cells_frame
from attnlab.stats.compare import runs_at_best, summarize_cells
from attnlab.study.comparison import StudyInfo
from attnlab.tracking.artifacts import ReferenceScore
from tests.support.specs import changed
from tests.support.sweeps import PATH, RATES, SPEC, sweep_record, sweep_records

WIDE = tuple(10 ** (-3.5 + i / 2) for i in range(5))
YAML = "# Numbers of a test.\nstudy: swept\nbase: {task: pydocs}\ngrid: {variant: [dense, no_wo]}\nbaseline: {variant: dense}\n"


def swept_page(records: list, spec=SPEC, scores: tuple[ReferenceScore, ...] = ()) -> Page:
    fields = {"data": "d", "task": "pydocs", "device": "cpu", "versions": "attnlab", "commit": "0"}
    runs = [fields | {"run_id": f"run-{i}", "name": f"{r['cell']} {r[PATH]:g} s{r['seed']}"} | r for i, r in enumerate(records)]
    points = [
        (r["run_id"], r["name"], f"valid/{spec.metric}", step, r[PATH])
        for r in runs
        for step in (10, 20)
        if r["state"] == "completed"
    ]
    curves = pandas.DataFrame(points, columns=["run_id", "name", "metric", "step", "value"])
    return make_page(StudyInfo(spec, YAML, reference_scores=scores), runs=pandas.DataFrame(runs), curves=curves)


def rows_of(table: Table | None) -> dict[str, Sequence[str]]:
    assert table is not None
    return {row.cells[0]: row.cells for row in table.rows}


def section(page: Page, title: str = "Learning rate") -> PageSection:
    return next(part for part in page.sections if part.title == title)


def test_the_section_has_a_plot_and_a_row_for_each_cell():
    page = swept_page(sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1)}, rates=WIDE, noise=0.003))
    part = section(page)
    assert [figure.file for figure in part.plots] == ["sweep.svg"]
    assert part.table is not None
    headings = [column.heading for column in part.table.columns]
    assert headings == ["cell", "best train.lr", "bits_per_byte", "difference", "sensitivity"]
    rows = rows_of(part.table)
    assert float(rows["dense"][1]) == pytest.approx(3.162e-3) == float(rows["no_wo"][1])
    cell = {cell.name: cell for cell in page.cells}["no_wo"]
    assert cell.difference is not None and rows["no_wo"][3] == cell.difference.format() and not rows["dense"][3]
    assert "a factor of 3.2 apart" in part.paragraphs[0]
    assert not part.warnings


def test_all_tables_have_the_value_at_the_best_rate():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1)})
    page, cells = swept_page(records), summarize_cells(records, SPEC)
    expected = {cell.name: SPEC.estimator.format(cell) for cell in cells}
    assert page.table.columns[1].heading == SPEC.estimator.words.heading == "bits_per_byte at the best train.lr"
    assert {row.cells[0]: row.cells[1] for row in page.table.rows} == expected
    assert {name: row[2] for name, row in rows_of(section(page).table).items()} == expected
    exported = cells_frame(cells, SPEC).set_index("cell")
    value, curve = cells[0].value, cells[0].curve
    assert value and curve
    assert exported.loc["dense", "bits_per_byte"] == value.mean
    assert exported.loc["dense", f"best_{PATH}"] == curve.best


def test_reference_scores_stand_under_the_value_at_the_best_rate():
    score = ReferenceScore("gzip", "pydocs", "d", None, SPEC.metric, 2.5, 0.1, "text by gzip -9")
    page = swept_page(sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1)}), scores=(score,))
    assert rows_of(page.table)["reference: gzip"][1] == "2.5000"


def test_a_cell_at_the_edge_is_named_with_advice():
    page = swept_page(sweep_records({"dense": (3e-3, 2.0), "einsum": (3e-3, 2.0), "no_wo": (0.03, 2.1)}))
    assert len(section(page).warnings) == 1
    warning = section(page).warnings[0]
    assert "no_wo" in warning and "0.01" in warning and "larger" in warning
    rows = rows_of(page.table)
    assert rows["no_wo"][1] == "no best learning rate"
    assert "largest tried" in rows["no_wo"][-1]
    assert "largest tried" in page.summary.text


def test_diverged_runs_are_crosses_and_have_a_column():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.1)}, rates=WIDE)
    kept = [r if r["cell"] == "dense" or r[PATH] < 0.02 else sweep_record("no_wo", r[PATH], r["seed"], None) for r in records]
    part = section(swept_page(kept))
    assert part.plots[0].svg.count(">×<") == 1
    rows = rows_of(part.table)
    assert part.table is not None and part.table.columns[-1].heading == "diverged at"
    assert "(5 runs)" in rows["no_wo"][-1] and not rows["dense"][-1]
    assert rows["no_wo"][-2].startswith("at least")
    assert any("lower bound" in note for note in part.notes)


def test_the_plot_has_a_dot_for_each_run_and_a_ring_at_each_best_rate():
    svg = section(swept_page(sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.1)}))).plots[0].svg
    assert svg.count('r="2.6"') == 2 * len(RATES) * 5
    assert svg.count('r="5" fill="none"') == 2
    assert svg.count("<polyline") == 2 + 2, "two curves, and the two lines of the legend"


def test_learning_curves_are_those_of_the_best_rate_tried():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (1e-3, 2.1)}, rates=WIDE)
    chosen = runs_at_best(records, summarize_cells(records, SPEC), SPEC)
    assert {(r["cell"], round(r[PATH], 5)) for r in chosen} == {("dense", 0.00316), ("no_wo", 0.001)}
    assert runs_at_best(records, [], changed(SPEC, sweep="")) == records
    assert "best learning rate" in section(swept_page(records), "Learning curves").paragraphs[0]
