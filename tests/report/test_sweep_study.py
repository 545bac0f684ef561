"""A study with a sweep, from its runs to the terminal, the page and `load_runs`: all have the same values."""

import csv
from pathlib import Path

import pytest

from attnlab.cli._results import print_results
from attnlab.report.write import write_report as report
from attnlab.stats.compare import summarize_cells
from attnlab.study.comparison import load_info
from attnlab.tracking.runs import load_runs
from tests.study.test_sweep import HIGH, LOW, MIDDLE, go
from tests.support.compared import recorded


def test_the_terminal_the_page_and_load_runs_have_the_same_values(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go(root, LOW, MIDDLE, HIGH, 0.1, seeds=[0, 1])
    cells = {cell.name: cell for cell in recorded("small", root)[1].cells}
    assert {name: cell.value.mean for name, cell in cells.items() if cell.value} == pytest.approx(
        {"dense learned": 2.005, "no_wo learned": 2.005}
    )
    runs = load_runs("small", root)
    spec = load_info("small", root)[0].spec
    assert spec.sweep == "train.lr"
    loaded = {cell.name: cell for cell in summarize_cells(runs.to_dict("records"), spec)}
    folder = report("small", root=root, out=tmp_path / "report")
    with (folder / "cells.csv").open() as file:
        exported = {row["cell"]: row for row in csv.DictReader(file)}
    print_results(*recorded("small", root))
    printed = " ".join(capsys.readouterr().out.split())
    page = (folder / "README.md").read_text()
    assert "bits_per_byte at the best train.lr" in page and "at the best train.lr tried" in printed
    for name, cell in cells.items():
        assert loaded[name].values == cell.values
        assert cell.value is not None and float(exported[name]["bits_per_byte"]) == pytest.approx(cell.value.mean, rel=1e-5)
        assert (text := spec.estimator.format(cell)) in page and text in printed
    assert {name: float(row["best_train.lr"]) for name, row in exported.items()} == {
        "dense learned": 0.01,
        "no_wo learned": 0.003,
    }
