"""Tests of cells with equal configurations: one run for all of them, and every comparison kept."""

from pathlib import Path

from attnlab.report.methods import load_study_info
from attnlab.stats.compare import summarize_cells
from attnlab.stats.verdict import VerdictKind
from attnlab.tracking.runs import load_runs
from tests.study.test_study import go

GRID = {"variant": ["dense", "gru"], "position": ["none"], "model.heads": [1, 2]}


def test_cells_are_compared_with_the_cell_that_is_run_for_their_baseline(tmp_path: Path) -> None:
    """The number of heads changes nothing for gru: its cell with two heads is that with one."""
    result = go(tmp_path, grid=GRID, baseline={"variant": "gru"})
    runs = load_runs("small", tmp_path)
    spec = load_study_info(runs, root=tmp_path).spec
    assert dict(spec.doubles) == {"gru none heads=2": "gru none heads=1"}
    tables = [
        summarize_cells(result.records(), result.comparison()),
        summarize_cells(runs.to_dict("records"), spec),  # type: ignore[arg-type]
    ]
    for cells in tables:
        by_name = {cell.name: cell for cell in cells}
        assert set(by_name) == {"dense none heads=1", "dense none heads=2", "gru none heads=1"}
        assert by_name["gru none heads=1"].is_baseline
        for heads in (1, 2):
            cell = by_name[f"dense none heads={heads}"]
            assert cell.baseline == "gru none heads=1" and cell.difference is not None
            assert cell.verdict is not None and cell.verdict.kind is not VerdictKind.NO_COMPARISON


def test_a_double_is_no_baseline_of_an_earlier_question(tmp_path: Path) -> None:
    go(tmp_path, grid=GRID, baseline={"variant": "gru"})
    go(tmp_path, grid=GRID, baseline={"variant": "dense"})
    assert not load_study_info(load_runs("small", tmp_path), root=tmp_path).spec.doubles
