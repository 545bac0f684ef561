"""Tests that cells are compared only if they are tested alike, and that the page says what the runs of one seed share."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attnlab import load_runs
from attnlab.cli._results import print_results
from attnlab.planning.plan import Plan, plan
from attnlab.report.plots.scatter import TradeoffPoint, pareto_front
from attnlab.report.verdicts import notes
from attnlab.report.write import write_report as report
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.stats.verdict import Reason, VerdictKind
from attnlab.study.run import run
from attnlab.tracking.client import connect
from tests.report.test_summary import ONE
from tests.study.test_study import QUIET, study
from tests.support.compared import fake_record, of_rows, recorded

OTHER_TESTS = {  # axis -> values with different tests
    "task": [{"name": "text", "path": "a.txt", "length": 16}, {"name": "text", "path": "b.txt", "length": 16}],
    "task.length": [16, 32],
    "evaluate.test_limit": [500, 400],
    "evaluate": [{"protocol": "segment"}, {"protocol": "sliding", "stride": 4}],
}
OTHER_BATCHES = {  # axis -> values with the same test but other batches
    "train.batch_size": [2, 4],
    "task.sampling": ["random", "contiguous"],
    "train.steps": [20, 30],
}
ALIKE = {"train.lr": [1e-3, 1e-4], "model.dim": [8, 16]}  # the same test and the same batches


def _study(tmp_path: Path, axis: str, values: list[Any], *, variants: list[str], baseline: str = "") -> dict[str, Any]:
    """Return a study over an axis and variants, compared with the first value of `baseline`."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"The text of {name}. " * 40)
    values = [{**v, "path": str(tmp_path / v["path"])} if isinstance(v, dict) and "path" in v else v for v in values]
    grid = {axis: values, "variant": variants}
    return study(grid=grid, baseline={baseline or axis: grid[baseline or axis][0]}, seeds=[0, 1, 2, 3], margin=5.0)


def _made_up(planned: Plan) -> Sequence[CellSummary]:
    """Return the result of a study without training."""
    values = {run.name: 2.0 + run.seed + 0.01 * (i % 3) for i, run in enumerate(planned.runs)}
    rows = [fake_record(run.cell.name, run.seed, {"bits_per_byte": values[run.name]}) for run in planned.runs]
    return of_rows(planned, rows)[1].cells


@pytest.mark.parametrize("axis", OTHER_TESTS)
def test_cells_with_different_tests_are_not_compared(axis: str, tmp_path: Path) -> None:
    planned = plan(_study(tmp_path, axis, OTHER_TESTS[axis], variants=["dense"]))
    assert any("not the same test" in note for note in planned.notes)
    baseline, other = _made_up(planned)
    assert baseline.is_baseline
    assert other.verdict is not None and other.difference is None and other.value is not None
    assert (other.verdict.kind, other.verdict.reason) == (VerdictKind.NO_COMPARISON, Reason.OTHER_TEST)
    assert not any("same batches" in note for note in notes([baseline, other], ONE))


def test_no_output_compares_cells_with_different_tests(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = _study(tmp_path, "task", OTHER_TESTS["task"], variants=["dense"])
    run(source, root=root, display=QUIET, train="tests.support.study_fakes:settling")
    print_results(*recorded("small", root))
    folder = report("small", root, tmp_path / "page")
    for text in [capsys.readouterr().out, *((folder / name).read_text() for name in ("README.md", "index.html", "cells.csv"))]:
        assert "not the same test" in text and "other data" in text
        assert not re.search(r"\b(better|worse) than|\| (better|worse)|same batches", text)
    runs = load_runs("small", root)
    assert len(set(runs["test"])) == len(set(runs["cell"])) == 2
    client = connect(root)
    assert {client.get_run(run_id).data.tags["attnlab.test"] for run_id in runs["run_id"]} == set(runs["test"])


@pytest.mark.parametrize("axis", ["task.length", "evaluate.test_limit"])
def test_the_baseline_with_the_same_test_is_the_partner(axis: str, tmp_path: Path) -> None:
    source = _study(tmp_path, axis, OTHER_TESTS[axis], variants=["dense", "no_wo"], baseline="variant")
    cells = _made_up(plan(source))
    compared = {cell.name: cell.baseline for cell in cells if cell.difference}
    assert compared == {cell.name: cell.name.replace("no_wo", "dense") for cell in cells if "no_wo" in cell.name}
    assert len(compared) == 2 and not any("batches" in note for note in notes(cells, ONE))


@pytest.mark.parametrize(("axis", "same"), [*((axis, False) for axis in OTHER_BATCHES), *((axis, True) for axis in ALIKE)])
def test_the_note_on_other_batches_appears_only_where_it_is_true(axis: str, same: bool, tmp_path: Path) -> None:
    values = (ALIKE if same else OTHER_BATCHES)[axis]
    planned = plan(_study(tmp_path, axis, values, variants=["dense"]))
    assert not any("not the same test" in note for note in planned.notes)
    cells = _made_up(planned)
    assert cells[1].difference is not None and cells[1].verdict is not None
    assert cells[1].verdict.kind != VerdictKind.NO_COMPARISON
    text = " ".join(notes(cells, ONE))
    assert (f"Not trained on the batches of their baseline: {cells[1].name} (" in text) is not same


def test_cells_that_see_other_batches_are_named_beside_those_that_do_not(tmp_path: Path) -> None:
    source = _study(tmp_path, "train.batch_size", [2, 4], variants=["dense", "no_wo"])
    cells = _made_up(plan({**source, "baseline": {"variant": "dense", "train.batch_size": 2}}))
    text = " ".join(notes(cells, ONE))
    names = ", ".join(cell.name for cell in cells if "batch_size=4" in cell.name)
    assert f"their baseline: {names} (train.batch_size 4 instead of 2);" in text


def test_only_real_comparisons_are_corrected_for() -> None:
    records = [
        {"variant": name, "seed": seed, "state": "completed", "bits_per_byte": value + seed / 10, "test": test}
        for name, value, test in (("dense", 2.0, "{}"), ("a", 2.1, "{}"), ("b", 1.0, '{"length": 8}'))
        for seed, value in enumerate((value, value + 0.01, value + 0.03, value - 0.02))
    ]
    dense, a, b = summarize_cells(records, ONE)
    assert dense.is_baseline and a.difference is not None and a.difference.p_holm == a.difference.p
    assert b.difference is None and b.verdict is not None and b.verdict.detail == "length 8 instead of none"


def test_the_front_compares_only_cells_with_the_same_test() -> None:
    points = [TradeoffPoint("a", "#000000", 1, 1, test="x"), TradeoffPoint("b", "#000000", 2, 2, test="y")]
    assert pareto_front(points, direction="min") == [0, 1]
