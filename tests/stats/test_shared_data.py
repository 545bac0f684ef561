"""Tests of what the data of two cells or two studies have in common."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.config.comparability import identity_of_test
from attnlab.planning.plan import Plan, plan
from attnlab.report.notes import notes_on_files
from attnlab.report.wording import describe_verdict
from attnlab.stats.compare import summarize_cells
from tests.support.specs import comparison_spec

DIGEST = "0123456789abcdef" * 4


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import sys")
    for name, text in {"a.txt": "one", "b.txt": "two", "copy.txt": "one", "a.yaml": "x: 1", "b.yaml": "x: 2"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def planned(command: str, axis: str, values: list[str], **base: Any) -> Plan:
    study = {"study": "program", "command": command, "grid": {axis: values}, "base": base, "baseline": {axis: values[0]}}
    return plan({**study, "files": ["*"], "seeds": [0, 1, 2, 3], "metric": {"name": "loss", "direction": "min"}})


def runs_of(planned: Plan, gap: float, **columns: Any) -> list[dict[str, Any]]:
    return [
        {"cell": cell.name, **cell.axes, "seed": seed, "state": "completed", "test": identity_of_test(cell.settings)}
        | {"loss": 1 + gap * number + 0.1 * seed + 0.001 * (seed * (number + 1) % 3), **columns}
        for number, cell in enumerate(planned.cells)
        for seed in range(4)
    ]


def test_cells_of_a_program_that_read_other_files_are_marked(folder: Path) -> None:
    study = planned("python train.py --data={data} {seed}", "data", ["a.txt", "b.txt"])
    assert any("on other files: b.txt instead of a.txt" in note for note in study.notes)
    spec = comparison_spec("program", ("data",), "loss", "min", {"data": "a.txt"})
    cells = summarize_cells(runs_of(study, 0.3), spec)
    assert describe_verdict(cells[1].verdict) == "worse, not on the same files (b.txt instead of a.txt)"
    (note,) = notes_on_files(cells)
    assert "b.txt" in note


@pytest.mark.parametrize(
    ("command", "axis", "values"),
    [
        ("python train.py --data {data} {seed}", "data", ["a.txt", "copy.txt"]),  # the same content
        ("python train.py --config {config} a.txt {seed}", "config", ["a.yaml", "b.yaml"]),
        ("python train.py a.txt {gate} {seed}", "gate", ["off", "on"]),
        ("python {script} a.txt {seed}", "script", ["train.py", "other.py"]),
    ],
)
def test_cells_that_read_the_same_data_are_not(command: str, axis: str, values: list[str], folder: Path) -> None:
    (folder / "other.py").write_text("import os")
    study = planned(command, axis, values)
    assert not any("other files" in note for note in study.notes)
    cells = summarize_cells(runs_of(study, 0.3), comparison_spec("program", (axis,), "loss", "min", {axis: values[0]}))
    assert describe_verdict(cells[1].verdict) == "worse" and notes_on_files(cells) == []
