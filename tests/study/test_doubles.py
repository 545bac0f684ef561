"""Tests of cells with equal configurations: one run for all of them, and every comparison kept."""

from pathlib import Path

from attnlab.stats.verdict import VerdictKind
from attnlab.study.comparison import load_info
from tests.study.test_study import go
from tests.support.compared import recorded

GRID = {"variant": ["dense", "gru"], "position": ["none"], "model.heads": [1, 2]}


def test_cells_are_compared_with_the_cell_that_is_run_for_their_baseline(tmp_path: Path) -> None:
    """The number of heads changes nothing for gru: its cell with two heads is that with one."""
    go(tmp_path, grid=GRID, baseline={"variant": "gru"})
    spec = load_info("small", tmp_path)[0].spec
    assert dict(spec.doubles) == {"gru none heads=2": "gru none heads=1"}
    tables = [recorded("small", tmp_path)[1].cells]
    for cells in tables:
        by_name = {cell.name: cell for cell in cells}
        assert set(by_name) == {"dense none heads=1", "dense none heads=2", "gru none heads=1"}
        assert by_name["gru none heads=1"].is_baseline
        for heads in (1, 2):
            cell = by_name[f"dense none heads={heads}"]
            assert cell.baseline == "gru none heads=1" and cell.difference is not None
            assert cell.verdict is not None and cell.verdict.kind is not VerdictKind.NO_COMPARISON
