"""Tests of the page on several studies, and of the copy of a report in MLflow."""

import shutil
from pathlib import Path

import pytest

from attnlab._util.run_state import RunState
from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.report.write import merge_notes
from attnlab.report.write import write_report as report
from attnlab.tracking.client import connect
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tracker import Tracker
from tests.support.studies import STUDY, write
from tests.support.surroundings import read_only

QUESTIONS = {"first": "Does the output projection matter?", "second": "Does it matter on other text?"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the runs folder of two small studies in MLflow, without training."""
    folder = tmp_path_factory.mktemp("several")
    for i, (name, question) in enumerate(QUESTIONS.items()):
        text = f"# {question}\n#\n# Two seeds of a toy say little about a large model.\n{STUDY}"
        made = plan(write(folder, text.replace("study: s", f"study: {name}"), name=f"{name}.yaml"))
        tracker = Tracker(made, folder / "runs")
        tracker.log_study()
        for run in made.runs:
            value = 2.0 + run.seed / 100 + 0.25 * (run.cell.name == "no_wo") * (1 + i + run.seed / 1e4)
            tracker.finish(tracker.start(run), RunState.COMPLETED, summary={"bits_per_byte": value, "parameters": 1000.0})
    return folder / "runs"


def test_one_page_holds_what_a_reader_cites_and_each_study_its_report(root: Path, tmp_path: Path) -> None:
    folder = report(list(QUESTIONS), root, tmp_path / "both")
    for name in ("index.html", "README.md"):
        text = (folder / name).read_text()
        for question in QUESTIONS.values():
            assert question in text
        for words in ("Background and limitations", "Two seeds of a toy", "is worse", "pydocs length=24", "--out reports/both"):
            assert words in text, (name, words)
    page = (folder / "index.html").read_text()
    assert page.count("<svg") == 6 and "http" not in page.replace("http://www.w3.org/2000/svg", "")
    for study in QUESTIONS:
        assert (folder / study / "index.html").is_file() and (folder / study / "runs.csv").is_file()
        assert f"({study}/forest.svg)" in (folder / "README.md").read_text() and (folder / study / "forest.svg").is_file()


def test_notes_that_are_not_said_of_all_studies_begin_with_whom_they_are_said_of() -> None:
    notes = {"a": ["both", "within ±0.02", "two"], "b": ["both", "within ±0.01"], "c": ["both", "two"]}
    assert merge_notes(notes) == ["both", "a: within ±0.02", "a, c: two", "b: within ±0.01"]
    assert merge_notes({"a": ["alone"]}) == ["alone"]


def test_several_studies_need_a_folder(root: Path) -> None:
    with pytest.raises(UserError, match="expected --out FOLDER for the page of several studies .first, second., got none"):
        report(list(QUESTIONS), root)


def test_a_report_on_a_read_only_store_is_written_with_a_warning(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store"
    shutil.copytree(root, store)
    monkeypatch.setenv("ATTNLAB_RUNS", str(store))
    with read_only(store):
        assert main.main(["report", "first", "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "index.html").is_file()
    (warning,) = [record.message for record in caplog.records if "no copy" in record.message]
    assert str(tmp_path / "out") in warning and "\n" not in warning


def test_mlflow_keeps_the_latest_report_and_nothing_takes_it_for_a_run(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        report("first", root, tmp_path / "out")
    client = connect(root)
    experiment = client.get_experiment_by_name("first")
    assert experiment is not None
    kept = client.search_runs([experiment.experiment_id], "tags.`attnlab.phase` = 'report'")
    assert [item.info.run_name for item in kept] == ["report"] and kept[0].info.status == "FINISHED"
    files = {item.path for item in client.list_artifacts(kept[0].info.run_id)}
    assert {"index.html", "README.md", "forest.svg", "cells.csv"} <= files
    assert "is worse" in kept[0].data.tags["mlflow.note.content"]
    frame = load_runs("first", root, every=True)
    assert len(frame) == 6 and "report" not in set(frame["name"])
    tracker = Tracker(plan({"study": "first", "base": {"task": "pydocs", "variant": "dense", "train": {"steps": 1}}}), root)
    assert kept[0].info.run_id not in {item.info.run_id for item in tracker.reconcile().values()}
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    assert main.main(["runs", "first"]) == 0 and " report " not in capsys.readouterr().out
