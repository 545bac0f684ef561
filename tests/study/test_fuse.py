"""Tests of studies whose seeds are trained as one model: records, states, failures and resuming."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnlab import load_runs
from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.study.execution.ending import Ending, of_fused_run
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.run import StudyResult, run
from attnlab.tracking.delivery import TrackingRejected
from attnlab.tracking.tracker import Tracker

QUIET = ProgressDisplay(quiet=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def study(**changes: Any) -> dict[str, Any]:
    base = {
        "task": {"name": "pydocs", "length": 16},
        "model": {"dim": 8, "depth": 1, "heads": 2, "dropout": 0.1},
        "train": {"steps": 20, "batch_size": 2, "eval_every": 10},
        "evaluate": {"valid_limit": 500, "test_limit": 500},
        "machine": {"device": "cpu"},
    }
    return {
        "study": "small",
        "base": base,
        "grid": {"variant": ["no_wo"]},
        "seeds": [0, 1],
        "run": {"fuse": "seeds"},
        **changes,
    }


def go(root: Path, *, retry: tuple[str, ...] = (), **changes: Any) -> StudyResult:
    return run(study(**changes), root=root, display=QUIET, reference_scores=False, retry=retry)


def test_fused_runs_are_recorded_as_the_runs_that_they_are_alone(tmp_path: Path) -> None:
    together = go(tmp_path / "together")
    alone = go(tmp_path / "alone", run={})
    assert [row.state for row in together.rows] == ["completed"] * 2
    for ours, theirs in zip(together.rows, alone.rows, strict=True):
        assert ours.name == theirs.name
        assert ours.summary["bits_per_byte"] == pytest.approx(theirs.summary["bits_per_byte"], rel=1e-5)
    tables = [load_runs("small", tmp_path / kind) for kind in ("together", "alone")]
    assert {*tables[0]["fingerprint"]} == {*tables[1]["fingerprint"]}
    assert [*tables[0]["fused"]] == [2] * 2
    assert all(device.endswith(", 2 seeds as one model") for device in tables[0]["device"])
    assert all(row.reused for row in go(tmp_path / "together", run={}).rows), "a fused run is the run that was planned alone"


FAULTY = """
import os, signal, time
from pathlib import Path
from attnlab.registry import register_task
from attnlab.tasks.pydocs import PyDocs

@register_task("faulty")
class Faulty(PyDocs):
    def __init__(self, *, fault: str = "", length: int = 16) -> None:
        super().__init__(length=length)
        self.fault = fault

    def train_batch(self, step, *, seed, batch_size):
        if (seed, step) == (1, 13):
            faults = {"error": self.fail, "killed_once": self.kill, "hangs": lambda: time.sleep(60)}
            faults.get(self.fault, lambda: None)()
        return super().train_batch(step, seed=seed, batch_size=batch_size)

    def fail(self):
        raise ValueError("no such word")

    def kill(self):
        marker = Path(os.environ["TMPDIR"]) / "killed"
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., StudyResult]:
    """Run the study with a fault in the batch of step 13 of seed 1."""
    file = tmp_path / "faulty.py"
    file.write_text(FAULTY)
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def go_wrong(fault: str, **changes: Any) -> StudyResult:
        base = study()["base"] | {"task": {"name": "faulty", "fault": fault, "length": 16}}
        changes = {"base": base, "seeds": [0, 1, 2], "imports": [str(file)], **changes}
        return go(tmp_path / "runs", **changes)

    return go_wrong


def test_one_failing_seed_does_not_stop_the_others(faulty: Callable[..., StudyResult]) -> None:
    result = faulty("error")
    assert [row.state for row in result.rows] == ["completed", "failed", "completed"]
    assert "no such word" in result.rows[1].reason


def test_a_killed_process_is_tried_again_with_all_of_its_seeds(
    faulty: Callable[..., StudyResult], root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="attnlab")
    result = faulty("killed_once")
    resumed = [message.split(":")[0].split()[-1] for message in caplog.messages if "resuming from step 10" in message]
    assert sorted(resumed) == ["s0", "s1", "s2"], "each notice names its own run"
    assert [row.state for row in result.rows] == ["completed"] * 3
    assert [*load_runs("small", root)["attempt"]] == [2] * 3
    log = next(path.read_text() for path in root.glob("work/*/log.txt") if "resuming" in path.read_text())
    assert log.count("resuming from step 10") == 3


def test_seeds_that_failed_together_resume_alone(faulty: Callable[..., StudyResult], root: Path) -> None:
    assert [row.state for row in faulty("killed_once", retries=0).rows] == ["failed"] * 3
    assert [row.state for row in faulty("killed_once", retries=0, run={}, retry=["failed"]).rows] == ["completed"] * 3
    assert [*load_runs("small", root)["fused"]] == [3] * 3, "a part of its seconds are shares"


def test_the_time_limit_ends_all_seeds_of_a_process(faulty: Callable[..., StudyResult]) -> None:
    result = faulty("hangs", run={"fuse": "seeds", "timeout": 3})
    assert [row.state for row in result.rows] == ["timed_out"] * 3


def test_a_seed_whose_record_is_rejected_is_left_out(
    faulty: Callable[..., StudyResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Tracker.start

    def reject(self: Tracker, run: Any, **options: Any) -> str:
        if run.seed == 0:
            raise TrackingRejected("no such experiment")
        return start(self, run, **options)

    monkeypatch.setattr(Tracker, "start", reject)
    result = faulty("")
    assert [row.state for row in result.rows] == ["failed", "completed", "completed"]
    assert "no such experiment" in result.rows[0].reason


def test_an_interrupted_study_resumes_its_seeds(faulty: Callable[..., StudyResult], monkeypatch: pytest.MonkeyPatch) -> None:
    log, interrupted = Tracker.log_metrics, list[int]()

    def interrupt(self: Tracker, run_id: str, step: int, metrics: dict[str, float]) -> None:
        log(self, run_id, step, metrics)
        if step == 20 and not interrupted:
            interrupted.append(step)
            raise KeyboardInterrupt

    monkeypatch.setattr(Tracker, "log_metrics", interrupt)
    with pytest.raises(KeyboardInterrupt, match="0 of 3 runs are finished"):
        faulty("")
    result = faulty("")
    assert [(row.state, row.reused) for row in result.rows] == [("completed", False)] * 3


def test_memory_that_ran_out_for_several_seeds_is_a_failure() -> None:
    ending = Ending(RunState.OUT_OF_MEMORY, {"host_peak_mib": 7.0}, "no memory")
    assert of_fused_run(ending, 1) is ending
    assert of_fused_run(ending, 3) == Ending(RunState.FAILED, {}, "no memory with 3 seeds (run.fuse)")


def test_trials_train_alone_and_the_runs_that_confirm_them_together(root: Path) -> None:
    search = {"trials": 2, "space": {"train.lr": {"low": 1e-3, "high": 1e-2, "log": True}}, "sampler": "RandomSampler"}
    content = {name: value for name, value in study().items() if name != "seeds"}
    content |= {"search": search, "confirm": {"seeds": [7, 8]}}
    assert run(content, root=root, display=QUIET, reference_scores=False).ok
    runs = load_runs("small", root)
    fused = {phase: [*own["fused"]] for phase, own in runs.groupby("phase")}
    assert fused["confirm"] == [2, 2] and all(math.isnan(number) for number in fused["search"])


def test_another_function_of_training_cannot_be_fused(root: Path) -> None:
    with pytest.raises(UserError, match="expected attnlab's training function"):
        run(study(), root=root, display=QUIET, train="tests.support.study_fakes:good")
