"""Tests of runs whose records were withdrawn: deleted in MLflow, or replaced at the user's request. They are trained again."""

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from attnlab._util.files import file_lock
from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.result import StudyResult
from attnlab.study.run import run
from attnlab.study.withdrawal import withdraw
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tracker import Tracker
from tests.study.test_study import SEARCHED, every_record, seconds, study, trials


class Lines(ProgressDisplay):
    """Collects the printed lines."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def print(self, text: str) -> None:
        self.lines.append(text)

    def about(self, *words: str) -> list[str]:
        return [line for line in self.lines if all(word in line for word in words)]


def go(root: Path, display: ProgressDisplay | None = None, **changes: Any) -> StudyResult:
    """Run a study of two seeds with the real trainer."""
    return run(study(grid={"variant": ["dense"]}, **changes), root=root, display=display or Lines(), reference_scores=False)


def delete_record(root: Path, run_id: str) -> None:
    """Delete a record as MLflow's UI does."""
    MlflowClient(f"sqlite:///{root / 'mlflow.db'}").delete_run(run_id)


def test_a_run_that_was_deleted_in_mlflow_is_trained_again(root: Path) -> None:
    first = go(root)
    delete_record(root, first.rows[0].run_id)
    assert list(load_runs("small", root)["name"]) == ["dense s1"]
    display = Lines()
    second = go(root, display)
    assert [(row.state, row.reused) for row in second.rows] == [("completed", False), ("completed", True)]
    assert seconds(second)[0] != seconds(first)[0] and seconds(second)[1] == seconds(first)[1]
    assert len(display.about("dense s0", "deleted", "train")) == 1, display.lines
    assert second.rows[0].run_id != first.rows[0].run_id and sorted(load_runs("small", root)["name"]) == [
        "dense s0",
        "dense s1",
    ]
    third = go(root)
    assert all(row.reused for row in third.rows) and seconds(third) == seconds(second)
    assert trials(root) == ["COMPLETE"] * 3, "one of the deleted run, which counts no longer"


def test_an_attempt_that_its_successor_replaced_was_not_deleted_by_the_user(root: Path) -> None:
    fields = study(grid={"variant": ["dense"]}, seeds=[0])
    run(fields, root=root, display=Lines(), train="tests.support.study_fakes:killed_once")
    replaced = [record for record in every_record(root) if record.info.lifecycle_stage == "deleted"]
    assert len(replaced) == 1
    display = Lines()
    assert run(fields, root=root, display=display).rows[0].reused and not display.about("deleted")


def test_a_deleted_run_is_trained_from_the_start_even_if_the_parent_dies_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call empties the folder, although the run has an active record again."""
    first = go(root, seeds=[0])
    delete_record(root, first.rows[0].run_id)
    (folder,) = root.glob("work/*")
    (folder / "result.json").rename(folder / "checkpoint.pt")  # no result, and what looks like a checkpoint
    start = Tracker.start

    def start_and_end(*args: Any, **kwargs: Any) -> str:
        start(*args, **kwargs)
        raise KeyboardInterrupt

    with (
        monkeypatch.context() as patched,
        file_lock(folder / "lock", activity="the run is being trained"),  # the child empties nothing
        pytest.raises(KeyboardInterrupt),
    ):
        patched.setattr(Tracker, "start", start_and_end)
        go(root, seeds=[0])
    again = go(root, seeds=[0])
    assert again.ok and not again.rows[0].reused and "checkpoint" not in (folder / "log.txt").read_text()


def test_a_trial_that_was_deleted_is_trained_again_with_its_parameters(root: Path) -> None:
    fields = {key: value for key, value in study(**SEARCHED).items() if key != "seeds"}
    fields = {**fields, "grid": {"variant": ["dense"]}, "confirm": {"seeds": [100]}}
    options: dict[str, Any] = {"root": root, "reference_scores": False, "sets": {"machine.threads": 1}}
    first = run(fields, display=Lines(), **options)
    (old,) = [row for row in first.rows if row.name == "dense t01"]
    (confirmed,) = [row for row in first.rows if row.phase == "confirm"]
    delete_record(root, old.run_id)
    delete_record(root, confirmed.run_id)
    display = Lines()
    second = run(fields, display=display, **options)
    assert {row.name for row in second.rows if not row.reused} == {"dense t01", confirmed.name}
    assert {row.name: row.params for row in second.rows} == {row.name: row.params for row in first.rows}
    assert len(display.about("deleted", "train")) == 2
    assert all(row.reused for row in run(fields, display=Lines(), **options).rows)


def test_a_result_that_another_study_left_is_announced(root: Path) -> None:
    first = go(root, seeds=[0])
    display = Lines()
    again = run(study(study="another", grid={"variant": ["dense"]}, seeds=[0]), root=root, display=display)
    assert seconds(again) == seconds(first)
    assert len(display.about("dense s0", "not trained again")) == 1, display.lines


# ---------------------------------------------------------------- attnlab redo, attnlab delete


@pytest.fixture
def finished(root: Path, monkeypatch: pytest.MonkeyPatch) -> StudyResult:
    """The study `small` with two finished runs of the cell `dense`, in the runs folder of the commands."""
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    return go(root)


def names(root: Path) -> list[str]:
    return sorted(load_runs("small", root)["name"])


def test_redo_trains_a_run_again_and_keeps_its_old_record(
    finished: StudyResult, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = finished.rows[0]
    assert main.main(["redo", "small", "dense s0"]) == 0
    printed = capsys.readouterr().out
    assert f"dense s0 ({old.run_id[:8]}, completed)" in printed and "no longer counts" in printed
    assert names(root) == ["dense s1"]
    (kept,) = [row for row in load_runs("small", root, every=True).to_dict("records") if row["run_id"] == old.run_id]
    assert kept["bits_per_byte"] == old.summary["bits_per_byte"] and [*Path(kept["folder"]).glob("model.*")]
    display = Lines()
    again = go(root, display)
    assert [row.reused for row in again.rows] == [False, True] and len(display.about("dense s0", "redo", "training")) == 1
    assert names(root) == ["dense s0", "dense s1"] and seconds(again)[0] != seconds(finished)[0]
    assert [*Path(kept["folder"]).glob("model.*")], "still that of the old attempt"
    assert all(row.reused for row in go(root).rows), "once"
    with pytest.raises(UserError, match="withdrawn before") as caught, withdraw("small", [old.run_id], root=root) as runs:
        runs.redo()
    assert old.run_id[:8] in caught.value.where


def test_delete_removes_a_whole_cell(finished: StudyResult, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["delete", "small", "dense", "--yes"]) == 0
    printed = capsys.readouterr().out
    assert all(row.name in printed and row.run_id[:8] in printed for row in finished.rows)
    assert load_runs("small", root).empty and not [path for path in root.glob("work/*") if path.is_dir()]
    assert all(record.info.lifecycle_stage == "deleted" for record in every_record(root))
    again = go(root)
    assert again.ok and not any(row.reused for row in again.rows) and names(root) == ["dense s0", "dense s1"]


def test_delete_asks_first(
    finished: StudyResult, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main.main(["delete", "small", "dense s0"]) == 2 and "--yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "n")
    assert main.main(["delete", "small", "dense s0"]) == 130 and names(root) == ["dense s0", "dense s1"]
    monkeypatch.setattr("builtins.input", lambda question: "y")
    assert main.main(["delete", "small", finished.rows[0].run_id[:12]]) == 0 and names(root) == ["dense s1"]


def test_a_folder_that_serves_another_study_stays(finished: StudyResult, root: Path) -> None:
    fields = study(study="another", grid={"variant": ["dense"]}, seeds=[0])
    run(fields, root=root, display=Lines(), reference_scores=False)
    with withdraw("small", ["dense s0", "dense s1"], root=root) as runs:
        assert [runs.shared_with(run) for run in runs.runs] == [["another"], []]
        runs.delete()
    assert [len([*path.glob("model.*")]) for path in root.glob("work/*") if path.is_dir()] == [1]


@pytest.mark.parametrize("verb", ["redo", "delete"])
def test_withdrawing_is_refused_while_something_runs(
    verb: str, finished: StudyResult, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [verb, "small", "dense s0", *(["--yes"] if verb == "delete" else [])]
    with file_lock(root / "locks" / "small.lock", activity="the study 'small' is being run"):
        assert main.main(words) == 2 and "is being run" in capsys.readouterr().err
    (folder,) = [Path(row["folder"]) for row in load_runs("small", root).to_dict("records") if row["name"] == "dense s0"]
    with file_lock(folder / "lock", activity="the run is being trained"):  # by another study
        assert main.main(words) == 2 and "is being trained" in capsys.readouterr().err
    store = f"sqlite:///{root / 'mlflow.db'}"
    MlflowClient(store).update_run(finished.rows[1].run_id, status="RUNNING")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)  # where parents on other machines may be at work
    assert main.main(words) == 2 and "dense s1" in capsys.readouterr().err
    assert names(root) == ["dense s0", "dense s1"]


def test_a_withdrawn_record_is_deleted_with_its_own_folder(finished: StudyResult, root: Path) -> None:
    with withdraw("small", ["dense s0"], root=root) as runs:
        (kept,) = runs.redo().values()
    assert kept.is_dir()
    with withdraw("small", [finished.rows[0].run_id], root=root) as runs:
        runs.delete()
    assert not kept.exists() and len([path for path in root.glob("work/*") if path.is_dir()]) == 1
