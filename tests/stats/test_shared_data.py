"""Tests of what the data of two cells or two studies have in common."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.config.comparability import files_of_test, identity_of_test
from attnlab.planning.plan import Plan, plan
from attnlab.report.answer import make_answer
from attnlab.report.notes import notes_on_files
from attnlab.report.wording import describe_verdict
from attnlab.stats.compare import summarize_cells
from attnlab.stats.contrasts import StudyTable, combine
from tests.support.several import made_up_study
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


def table(name: str, study: Plan, command: str, **values: str) -> StudyTable:
    columns = {"command": command, "files.train.py": DIGEST, **{f"values.{key}": value for key, value in values.items()}}
    spec = comparison_spec(name, ("gate",), "loss", "min", {"gate": "off"})
    return StudyTable(name, spec, summarize_cells(runs_of(study, 0.3 + 0.01 * int(name[1:]), **columns), spec))


def sentences(tables: list[StudyTable]) -> str:
    answer = make_answer(combine(tables))
    assert answer is not None
    return " ".join("".join(paragraph) for paragraph in answer.paragraphs)


def test_studies_of_one_program_with_the_same_data_and_seeds_count_as_one(folder: Path) -> None:
    command = "python train.py {gate} {data} {seed}"
    of_file = [planned(command, "gate", ["off", "on"], data=name) for name in ("a.txt", "copy.txt", "a.txt")]
    assert files_of_test(identity_of_test(of_file[0].cells[0].settings)).keys() == {"a.txt"}
    text = sentences([table(f"s{i}", study, command) for i, study in enumerate(of_file)])
    assert "on average" not in text.lower() and "there is 1" in text
    unknown = planned("python train.py {gate} {seed}", "gate", ["off", "on"])
    same = [table(f"s{i}", unknown, "python train.py {gate} {seed}", gate="on") for i in range(3)]
    assert "there is 1" in sentences(same)
    named = [table(f"s{i}", unknown, "python train.py {gate} {set} {seed}", set=f"corpus{i}") for i in range(3)]
    assert "over 3 studies" in sentences(named), "other texts may name other data"


def test_tasks_that_read_copies_of_one_file_count_as_one() -> None:
    data = [f"text sha256:{DIGEST}", f"tokens uint8 sha256:{DIGEST}", f"imdb sha256:{DIGEST} wordpiece 800 of x"]
    copies = [made_up_study(f"s{i}", {"no_wo": 0.1}, data=identity) for i, identity in enumerate(data)]
    assert "there is 1" in sentences(copies)
    table_of_bytes = f"token_bytes sha256:{DIGEST}"
    others = [f"tokens uint16 sha256:{DIGEST.replace('0', str(i))} {table_of_bytes}" for i in range(1, 4)]
    several = [made_up_study(f"s{i}", {"no_wo": 0.1}, data=identity) for i, identity in enumerate(others)]
    assert "over 3 studies" in sentences(several), "one vocabulary of several texts"
    assert json.loads(several[0].cells[0].test)["data"].endswith(DIGEST)
