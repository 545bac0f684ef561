"""Tests of the page on several studies, and of the answer in MLflow."""

import shutil
from pathlib import Path

import pytest

from attnlab._util.run_state import RunState
from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.report.write import merge_notes
from attnlab.report.write import write_report as report
from attnlab.study.comparison import comparison_of, to_json
from attnlab.tracking.client import connect
from attnlab.tracking.experiment import log_answer
from attnlab.tracking.record import CELL_RUN
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
        tracker.log_study(to_json(comparison_of(made)))
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
    (warning,) = [record.message for record in caplog.records if "does not show the answer" in record.message]
    assert "first" in warning and "\n" not in warning


def test_mlflow_shows_the_latest_answer_above_the_plan_and_has_no_run_of_it(root: Path, tmp_path: Path) -> None:
    client = connect(root)
    plans = []
    for _ in range(2):
        report("first", root, tmp_path / "out")
        experiment = client.get_experiment_by_name("first")
        assert experiment is not None
        answer, rule, text = experiment.tags["mlflow.note.content"].partition("\n\n---\n\n")
        assert "is worse" in answer and rule and text.startswith("attnlab study **first**") and rule not in text
        plans.append(text)
    assert plans[0] == plans[1]
    records = client.search_runs([experiment.experiment_id])
    cells = [record.data.tags[CELL_RUN] for record in records if "attnlab.fingerprint" not in record.data.tags]
    assert len(records) == 9 and len(set(cells)) == 3, "six runs of seeds, and one of each cell after two answers"


def test_an_answer_of_any_length_is_one_that_mlflow_takes(root: Path) -> None:
    for answer in ("word " * 2_000, "no"):
        log_answer("first", [answer], root=root)
        experiment = connect(root).get_experiment_by_name("first")
        assert experiment is not None and experiment.tags["mlflow.note.content"].startswith(f"{answer[:3]}")
    assert experiment.tags["mlflow.note.content"] == "no\n\n---\n\n"  # the long answer left no room for the plan
