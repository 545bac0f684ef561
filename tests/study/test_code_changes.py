"""Tests of the notes on runs that a change of the user's code invalidates."""

from pathlib import Path

import pytest

from attnlab.cli import main
from attnlab.planning.plan import Plan
from attnlab.planning.plan import plan as make_plan
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.plan import code_change_notes
from attnlab.study.run import run
from attnlab.tracking import client
from tests.support.studies import COSINE, SEARCH, STUDY, write

GOOD = "tests.support.study_fakes:good"


def made(folder: Path, text: str = STUDY) -> Plan:
    return make_plan(write(folder, text.replace("no_wo", "mine.py:Cosine").replace(", {name: strided_sparse, stride: 7}", "")))


def trained(plan: Plan, root: Path, *, train: str = GOOD) -> None:
    run(plan, root=root, display=ProgressDisplay(quiet=True), reference_scores=False, train=train)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    write(tmp_path, "POWER = 3\n", name="helper.py")
    return write(tmp_path, "import helper\n" + COSINE, name="mine.py")


def test_runs_of_changed_code_are_counted(mine: Path, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_change_notes(made(tmp_path), tmp_path / "nowhere") == code_change_notes(made(tmp_path), root) == []
    trained(made(tmp_path), root)
    assert code_change_notes(made(tmp_path), root) == []
    mine.write_text("# a comment\n" + mine.read_text(encoding="utf-8"), encoding="utf-8")
    assert code_change_notes(made(tmp_path), root) == []
    write(tmp_path, "POWER = 4\n", name="helper.py")
    (note,) = code_change_notes(made(tmp_path), root)
    assert "mine.py" in note and "2 runs" in note, "not the two of dense"
    (note,) = code_change_notes(made(tmp_path, STUDY.replace("[3, 5]", "[5, 6]")), root)
    assert "1 run " in note
    assert code_change_notes(make_plan(write(tmp_path, STUDY.replace("no_wo, ", ""))), root) == []
    trained(made(tmp_path), root)
    assert code_change_notes(made(tmp_path), root) == []
    write(tmp_path, "POWER = 3\n", name="helper.py")
    assert code_change_notes(made(tmp_path), root) == [], "the first runs serve again"


def test_runs_of_a_search_are_counted(mine: Path, root: Path, tmp_path: Path) -> None:
    text = SEARCH.replace("trials: 8", "trials: 1").replace("[100, 101]", "[100]")
    trained(made(tmp_path, text), root, train="tests.support.study_fakes:valued")
    assert code_change_notes(made(tmp_path, text), root) == []
    mine.write_text("x = 1\n" + mine.read_text(encoding="utf-8"), encoding="utf-8")
    (note,) = code_change_notes(made(tmp_path, text), root)
    assert "mine.py" in note and "2 runs" in note


def test_the_plan_prints_them(
    mine: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(made(tmp_path), root)
    mine.write_text("x = 1\n" + mine.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    searches, search = [], client._search_runs
    monkeypatch.setattr(client, "_search_runs", lambda *words: searches.append(words) or search(*words))
    assert main.main(["plan", str(tmp_path / "s.yaml"), "--tflops", "1"]) == 0
    assert "note: mine.py" in capsys.readouterr().out
    assert len(searches) == 1, "one search also serves the number of finished runs"
