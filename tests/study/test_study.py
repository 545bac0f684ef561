"""Tests of the runner: every run once, even if it or its parent fails or the study file changes."""

import io
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from attnlab._util import process
from attnlab._util.files import file_lock
from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.study.execution import progress
from attnlab.study.execution.child import Worker
from attnlab.study.execution.job import Job
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.result import StudyResult
from attnlab.study.run import run
from attnlab.tracking.record import CELL_RUN
from attnlab.tracking.runs import load_curves, load_runs
from attnlab.tracking.tracker import Tracker
from attnlab.training import costs
from attnlab.training.result import Result
from tests.support.paths import ROOT
from tests.support.processes import alive
from tests.support.small_runs import tiny

QUIET = ProgressDisplay(quiet=True)


def study(**changes: Any) -> dict[str, Any]:
    base = {
        "task": {"name": "pydocs", "length": 16},
        "model": {"dim": 8, "depth": 1, "heads": 2},
        "train": {"steps": 20, "batch_size": 2, "eval_every": 10},
        "evaluate": {"valid_limit": 500, "test_limit": 500},
        "machine": {"device": "cpu"},
    }
    grid = {"variant": ["dense", "no_wo"], "position": ["learned"]}
    return {"study": "small", "base": base, "grid": grid, "seeds": [0, 1], **changes}


def go(root: Path, fate: str = "good", **changes: Any) -> StudyResult:
    options = {key: changes.pop(key) for key in ("workers", "only", "sets", "retry") if key in changes}
    return run(study(**changes), root=root, display=QUIET, train=f"tests.support.study_fakes:{fate}", **options)


def trained(root: Path) -> list[str]:
    return (root / "work" / "trained.txt").read_text().split()


def trials(root: Path, name: str = "small") -> list[str]:
    import optuna

    queue = optuna.load_study(study_name=name, storage=f"sqlite:///{root / 'optuna.db'}")
    return sorted(trial.state.name for trial in queue.trials)


def every_record(root: Path, name: str = "small") -> list[Any]:
    from mlflow.entities import ViewType

    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], run_view_type=ViewType.ALL)
    return [run for run in runs if CELL_RUN not in run.data.tags]


def test_each_run_is_trained_once_and_a_second_call_trains_none(root: Path) -> None:
    first = go(root, workers=2)
    assert first.ok and [row.state for row in first.rows] == ["completed"] * 4
    assert [row.name for row in first.rows][:2] == ["dense learned s0", "dense learned s1"]
    second = go(root)
    assert second.ok and all(row.reused for row in second.rows)
    assert [row.run_id for row in second.rows] == [row.run_id for row in first.rows]
    assert second.rows[1].summary["bits_per_byte"] == pytest.approx(2.1)
    assert len(trained(root)) == len(set(trained(root))) == 4
    assert trials(root) == ["COMPLETE"] * 4
    assert len(every_record(root)) == 4


def test_the_table_and_the_curves_read_back(root: Path) -> None:
    result = go(root)
    frame = load_runs("small", root)
    assert list(frame["name"]) == [
        "dense learned s0",
        "no_wo learned s0",
        "dense learned s1",
        "no_wo learned s1",
    ]
    assert set(frame["run_id"]) == {row.run_id for row in result.rows}
    row = frame.iloc[1]
    assert (row["variant"], row["position"], row["seed"], row["state"]) == (
        "no_wo",
        "learned",
        0,
        "completed",
    )
    assert (row["train.steps"], row["model.dim"], row["bits_per_byte"]) == (20, 8, 2.0)
    assert Path(row["folder"]).is_dir() and "torch" in row["versions"] and row["seconds"] > 0
    curves = load_curves("small", root)
    mine = curves[(curves["name"] == "dense learned s1") & (curves["metric"] == "valid/bits_per_byte")]
    assert list(mine["step"]) == [10, 20] and list(mine["value"]) == [0.2, 0.1]


def test_scores_at_other_lengths_and_why_there_are_none(root: Path) -> None:
    config = study(grid={"variant": ["dense"], "position": ["learned", "rotary"]}, seeds=[0])
    config["base"]["evaluate"]["lengths"] = [8, 32]
    first = run(config, root=root, display=QUIET)
    summary = {row.cell: row.summary for row in first.rows}
    rows = {row["cell"]: row for row in load_runs("small", root).to_dict("records")}
    for cell, length in (("dense rotary", 32), ("dense rotary", 8), ("dense learned", 8)):
        assert rows[cell][f"bits_per_byte_at/{length}"] == summary[cell][f"bits_per_byte_at/{length}"]
    assert "bits_per_byte_at/32" not in summary["dense learned"]
    assert rows["dense learned"]["length.32"] == "learned positions: trained up to 16"
    assert not load_curves("small", root)["metric"].str.contains("_at/").any(), "a score is no curve"
    again = run(config, root=root, display=QUIET)
    assert {row.cell: row.summary for row in again.rows} == summary


def test_one_failing_run_does_not_stop_the_others(root: Path) -> None:
    grid = {"variant": ["dense", "einsum", "no_wo", "wide", "narrow", "basic"], "position": ["learned"]}
    result = go(root, "by_variant", grid=grid, seeds=[0], workers=2)
    endings = {row.name.split()[0]: (row.state, row.reason) for row in result.rows}
    assert endings["dense"] == ("completed", "")
    assert endings["einsum"] == ("failed", "the process was ended by SIGSEGV")
    assert endings["no_wo"] == ("failed", "the process ended with exit code 3")
    assert endings["wide"][0] == "failed" and "IndexError" in endings["wide"][1]
    assert endings["narrow"] == ("diverged", "the loss became nan at step 5")
    assert endings["basic"][0] == "out_of_memory"
    assert not result.ok and {row.name.split()[0] for row in result.failed} == {"einsum", "no_wo", "wide"}
    attempts = dict(zip(load_runs("small", root)["variant"], load_runs("small", root)["attempt"], strict=True))
    assert attempts == {"dense": 1, "einsum": 2, "no_wo": 2, "wide": 1, "narrow": 1, "basic": 1}
    again = go(root, "good", grid=grid, seeds=[0])
    assert [row.name.split()[0] for row in again.rows if not row.reused] == ["wide"]  # the others had two attempts
    assert "failed 2 times; --retry failed" in again.rows[1].reason
    retried = go(root, "good", grid=grid, seeds=[0], retry=["failed"])
    assert retried.ok and [row.name.split()[0] for row in retried.rows if not row.reused] == ["einsum", "no_wo"]


def test_an_error_with_any_message_ends_only_its_own_run(root: Path) -> None:
    result = go(root, "says_strange_things", grid={"variant": ["no_wo", "wide", "dense"]}, seeds=[0])
    endings = {row.cell: (row.state, row.reason.partition(" (")[0]) for row in result.rows}
    assert endings["dense"] == ("completed", "")
    assert endings["no_wo"] == ("failed", r"ValueError: bad \udc80\x00")
    assert endings["wide"] == ("failed", "OSError: [Errno 30] Read-only file system: '/nowhere/kernel.bin'")
    (text,) = root.glob(f"artifacts/small/{result.rows[0].run_id}/artifacts/traceback.txt")
    assert r"ValueError: bad \udc80" in text.read_text()


def test_a_killed_child_is_tried_again(root: Path) -> None:
    result = go(root, "killed_once", seeds=[0])
    assert result.ok and list(load_runs("small", root)["attempt"]) == [2, 2]
    assert trials(root) == ["COMPLETE", "COMPLETE"], "the same trial is resumed"
    active = [record for record in every_record(root) if record.info.lifecycle_stage == "active"]
    assert [record.info.status for record in active] == ["FINISHED", "FINISHED"]
    assert "SIGKILL" in active[0].data.tags["attnlab.earlier"]


@pytest.mark.parametrize("workers", [0, -3, True, 1.5, "2"])
def test_a_number_of_workers_that_cannot_be_is_refused_before_anything_is_planned(workers: Any, tmp_path: Path) -> None:
    from attnlab.extras.slurm.jobs import StudyRequest

    for call in (
        lambda: run({"study": "small"}, workers=workers, root=tmp_path),
        lambda: StudyRequest(tmp_path / "small.yaml", workers=workers),
    ):
        with pytest.raises(UserError) as caught:
            call()
        assert caught.value.where == "workers" and repr(workers) in caught.value.message
    assert not list(tmp_path.iterdir())


def test_no_retries_when_the_study_wants_none(root: Path) -> None:
    result = go(root, "killed_once", seeds=[0], retries=0)
    assert [row.state for row in result.rows] == ["failed", "failed"]


def test_a_pruned_run_is_a_result(root: Path) -> None:
    result = go(root, "pruned", seeds=[0])
    assert result.ok and [row.state for row in result.rows] == ["pruned", "pruned"]
    assert all(row.reused for row in go(root, seeds=[0]).rows)


def test_a_run_that_hangs_is_ended_and_tried_again_the_next_time(root: Path) -> None:
    limits = {"seeds": [1], "grid": {"variant": ["dense"]}, "run": {"timeout": 2}}
    first = go(root, "hangs_once", **limits).rows[0]
    assert (first.state, first.reason) == ("timed_out", "no end after 2 s (run.timeout)")
    helper = [int(pid) for path in root.glob("work/*/pids") for pid in path.read_text().split()]
    assert helper and gone(helper)
    assert [row.state for row in go(root, "hangs_once", **limits).rows] == ["completed"]


def test_a_run_beyond_its_memory_limit_ends_alone(root: Path) -> None:
    wide = {"variant": ["dense"], "model.dim": [4096, 8]}  # 200 million parameters and as many gradients
    result = run(study(grid=wide, seeds=[0], run={"memory_limit": "1500MiB"}), root=root, display=QUIET)
    large, small = result.rows
    assert (large.state, small.state) == ("out_of_memory", "completed") and result.ok
    assert "MiB" in large.reason, large.reason


ONE: dict[str, Any] = {"grid": {"variant": ["dense"]}, "seeds": [0]}


def truly(root: Path, *, retry: tuple[str, ...] = (), **changes: Any) -> StudyResult:
    """Run the study with the real trainer, which writes results into the folders of the runs."""
    return run(study(**changes), root=root, display=QUIET, retry=retry)


def seconds(result: StudyResult) -> list[float]:
    """Return the training time of each run, which changes only if the run is trained again."""
    return [row.summary["train_seconds"] for row in result.rows]


def test_a_result_is_repeated_on_request(root: Path) -> None:
    grid = {"variant": ["dense"], "train.grad_clip": [None], "train.lr": [1e30, 1e-3]}
    first = truly(root, grid=grid, seeds=[0])
    assert [row.state for row in first.rows] == ["diverged", "completed"]
    again = truly(root, grid=grid, seeds=[0], retry=("diverged",))
    assert [(row.state, row.reused) for row in again.rows] == [("diverged", False), ("completed", True)]
    assert seconds(again)[0] != seconds(first)[0] and seconds(again)[1] == seconds(first)[1]
    after = truly(root, grid=grid, seeds=[0])
    assert all(row.reused for row in after.rows) and seconds(after) == seconds(again)
    with pytest.raises(UserError, match="'divergd'.*did you mean 'diverged'"):
        truly(root, retry=("divergd",))


def test_a_repeated_run_that_is_killed_resumes_from_its_checkpoint(root: Path) -> None:
    before = truly(root, **ONE)
    result = go(root, "killed_at_its_checkpoint", retry=["completed"], **ONE)
    (log,) = root.glob("work/*/log.txt")
    assert result.ok and "resuming from step 10" in log.read_text()
    assert list(load_runs("small", root)["attempt"]) == [3] and seconds(result) != seconds(before)


def test_a_requested_repetition_survives_the_death_of_the_parent(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = truly(root, **ONE)
    (folder,) = root.glob("work/*")
    start = Tracker.start

    def start_and_end(*args: Any, **kwargs: Any) -> str:
        start(*args, **kwargs)
        raise KeyboardInterrupt

    with (
        monkeypatch.context() as patched,
        file_lock(folder / "lock", activity="the run is being trained"),
        pytest.raises(KeyboardInterrupt),
    ):
        patched.setattr(Tracker, "start", start_and_end)  # the child is still waiting and has discarded nothing
        truly(root, retry=("completed",), **ONE)
    after = truly(root, **ONE)
    assert [(row.state, row.reused) for row in after.rows] == [("completed", False)] and seconds(after) != seconds(before)
    assert seconds(truly(root, **ONE)) == seconds(after)


class _Patient(ProgressDisplay):
    """Releases a lock when a message says that a run is waiting for it."""

    def __init__(self, held: ExitStack) -> None:
        super().__init__(quiet=True)
        self.held, self.printed = held, ""

    def print(self, text: str) -> None:
        if "waiting" in text:
            self.printed += text
            self.held.close()


def test_a_run_that_another_study_is_training_is_waited_for(root: Path) -> None:
    first = truly(root, **ONE)
    (folder,) = root.glob("work/*")
    with ExitStack() as held:
        held.enter_context(file_lock(folder / "lock", activity="the run is being trained"))
        show = _Patient(held)
        result = run(study(study="another", run={"timeout": 300}, **ONE), root=root, display=show)
    assert re.fullmatch(r"  dense s0: waiting: .* process \d+ on \S+", show.printed)
    assert result.ok and seconds(result) == seconds(first) and list(load_runs("another", root)["attempt"]) == [1]


SEARCHED: dict[str, Any] = {
    "grid": {"variant": ["dense", "no_wo"]},
    "search": {"trials": 3, "space": {"train.lr": {"low": 1e-4, "high": 1e-1, "log": True}}, "pruner": "MedianPruner"},
    "confirm": {"seeds": [100, 101]},
}


def searched(root: Path, **changes: Any) -> StudyResult:
    fields = {key: value for key, value in study(**SEARCHED).items() if key != "seeds"}
    return run(fields, root=root, **{"sets": {"machine.threads": 1}, "display": QUIET, **changes})


def test_each_cell_is_searched_then_confirmed_on_fresh_seeds(root: Path) -> None:
    result = searched(root, workers=2)
    assert result.ok
    names = {phase: [row.name for row in result.rows if row.phase == phase] for phase in ("search", "confirm")}
    assert names["confirm"] == ["dense s100", "dense s101", "no_wo s100", "no_wo s101"]
    assert sorted(names["search"]) == [f"{cell} t0{n}" for cell in ("dense", "no_wo") for n in range(3)]
    rows = load_runs("small", root).to_dict("records")
    trials_of = [row for row in rows if row["phase"] == "search"]
    assert all(math.isnan(row["bits_per_byte"]) for row in trials_of), "a trial has seen the test split"
    for cell in ("dense", "no_wo"):
        mine = [row for row in trials_of if row["cell"] == cell and row["state"] == "completed"]
        best = min(mine, key=lambda row: row["valid_bits_per_byte"])["train.lr"]
        confirmed = [row for row in rows if row["phase"] == "confirm" and row["cell"] == cell]
        assert [row["train.lr"] for row in confirmed] == [best, best]
        assert all(math.isfinite(row["bits_per_byte"]) for row in confirmed)
    again = searched(root)
    assert all(row.reused for row in again.rows) and len(again.rows) == len(result.rows)


def test_trials_are_repeated_like_other_runs(root: Path) -> None:
    def states(fate: str, **changes: Any) -> list[tuple[str, int, bool]]:
        result = searched(root, train=f"tests.support.study_fakes:{fate}", **changes)
        attempts = dict(zip(load_runs("small", root)["name"], load_runs("small", root)["attempt"], strict=True))
        return [(row.state, attempts[row.name], row.reused) for row in result.rows if row.phase == "search"]

    assert states("failing") == [("failed", 1, False)] * 6
    tried = {
        row.name: row.params for row in searched(root, train="tests.support.study_fakes:failing").rows if row.phase == "search"
    }
    assert states("good") == [("failed", 2, True)] * 6, "tried twice is enough"
    assert states("pruned", retry=["failed"]) == [("pruned", 3, False)] * 6
    assert states("good") == [("pruned", 3, True)] * 6, "a result stays one"
    assert states("valued", retry=["pruned"]) == [("completed", 4, False)] * 6
    last = searched(root)
    assert {row.name: row.params for row in last.rows if row.phase == "search"} == tried, "with the parameters they had"
    assert last.ok and [row.state for row in last.rows if row.phase == "confirm"] == ["completed"] * 4


def test_a_search_with_a_lost_queue_is_not_repeated(root: Path) -> None:
    first = searched(root)
    (root / "optuna.db").write_text("no database")
    with pytest.raises(UserError, match=r"optuna.db: .*not a database.*delete"):
        searched(root)
    (root / "optuna.db").unlink()
    again = searched(root)
    assert [row.params for row in again.rows] == [row.params for row in first.rows] and seconds(again) == seconds(first)
    assert again.ok and all(row.reused for row in searched(root).rows)


def test_a_smaller_budget_chooses_among_its_own_trials(root: Path) -> None:
    def rates(trials: int, phase: str) -> dict[str, list[float]]:
        result = searched(root, train="tests.support.study_fakes:valued", sets={"search.trials": trials})
        cells = dict.fromkeys(row.cell for row in result.rows)
        return {
            cell: [row.params["train.lr"] for row in result.rows if (row.phase, row.cell) == (phase, cell)] for cell in cells
        }

    tried = rates(6, "search")
    # The sampler's seed depends on the fingerprint, hence on the version: take a cell whose best trial is not its first.
    cell, fewer = next((cell, i) for cell, lrs in tried.items() if (i := lrs.index(min(lrs))) > 0)
    assert set(rates(6, "confirm")[cell]) == {min(tried[cell])}
    assert rates(fewer, "search")[cell] == tried[cell][:fewer]
    assert set(rates(fewer, "confirm")[cell]) == {min(tried[cell][:fewer])}


def test_a_search_chooses_the_same_values_if_it_is_interrupted(root: Path, empty_store: Path, tmp_path: Path) -> None:
    interrupted = Path(shutil.copytree(empty_store, tmp_path / "other"))
    searched(root, workers=3)
    with pytest.raises(KeyboardInterrupt):
        searched(interrupted, display=_Impatient())
    searched(interrupted)
    chosen = [
        {row.name: row.params for row in searched(folder).rows if row.phase == "search"} for folder in (root, interrupted)
    ]
    assert chosen[0] == chosen[1] and len(chosen[0]) == 6


class _Impatient(ProgressDisplay):
    """Interrupts the study when the fourth run starts."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.seen: set[str] = set()

    def start_run(self, name: str, *, total: int | None = None) -> None:
        self.seen.add(name)
        if len(self.seen) == 4:
            raise KeyboardInterrupt


def test_a_refused_cell_is_recorded_once_with_its_reason(root: Path) -> None:
    grid = {"variant": ["dense"], "backend": ["reference", "xformers"]}
    for _ in range(2):
        result = go(root, grid=grid, seeds=[0, 1])
        assert result.ok and [row.state for row in result.rows] == ["completed", "completed", "refused"]
        frame = load_runs("small", root)
        refused = frame[frame["state"] == "refused"]
        assert list(refused["name"]) == ["dense xformers"] and "xformers" in list(refused["reason"])[0]
    assert len(every_record(root)) == 3


def test_an_edited_study_leaves_old_runs_out_of_the_table(root: Path) -> None:
    go(root, seeds=[0])
    go(root, seeds=[0], sets={"train.steps": 30})
    assert list(load_runs("small", root)["train.steps"]) == [30, 30]
    assert len(load_runs("small", root, every=True)) == 4
    result = go(root, seeds=[0], only={"variant": "dense"})
    assert len(result.rows) == 1 and result.rows[0].reused
    assert sorted(load_runs("small", root)["train.steps"]) == [20, 30] and len(trained(root)) == 4
    edited = plan(study(seeds=[0], grid={"variant": ["wide"]}))
    run(edited, root=root, display=QUIET, train="tests.support.study_fakes:good", only={"variant": "wide"})
    assert sorted(load_runs("small", root)["variant"]) == ["dense", "no_wo", "wide"]
    run(edited, root=root, display=QUIET, train="tests.support.study_fakes:good")
    assert list(load_runs("small", root)["variant"]) == ["wide"]


def test_the_environment_of_a_call_arrives(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(root, seeds=[0], grid={"variant": ["dense"]})  # starts the server that children are forked from
    monkeypatch.setenv("ATTNLAB_FAKE", "7")
    row = go(root, seeds=[1], grid={"variant": ["dense"]}, workers=2).rows[0]
    assert row.summary["told"] == 7


def test_a_second_parent_is_turned_away(root: Path) -> None:
    message = rf"the study 'small' is being run by process {os.getpid()} on \S+"
    with file_lock(root / "locks" / "small.lock", activity="this is being run"), pytest.raises(UserError, match=message):
        go(root)
    assert go(root, seeds=[0]).ok


SCRIPT = """
import sys
from attnlab.study.run import run
sys.path.insert(0, {here!r})
from tests.study.test_study import QUIET, study
print(run(study(), root={root!r}, workers=2, display=QUIET, train="tests.support.study_fakes:hangs_once").ok)
"""  # without a main guard: children must not run the script again


def parent(root: Path, tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a study in another process; once both runs of the second seed hang, return it and the process ids of the two."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(here=str(ROOT), root=str(root)))
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen([sys.executable, str(script)], env=environment, text=True, stderr=subprocess.PIPE)
    until = time.monotonic() + 600  # enough time for both to hang
    # On a busy machine a child may hang before its parent has opened its record.
    while len(list(root.glob("work/*/pids"))) < 2 or running(root) < 2:
        assert process.poll() is None and time.monotonic() < until, "the study did not get going"
        time.sleep(0.1)
    return process, [int(pid) for path in root.glob("work/*/pids") for pid in path.read_text().split()]


def running(root: Path) -> int:
    return sum(record.info.status == "RUNNING" for record in every_record(root))


def gone(pids: list[int], seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(map(alive, pids)):
        time.sleep(0.05)
    return not any(map(alive, pids))


def test_a_killed_parent_takes_its_children_along_and_nothing_is_doubled(root: Path, tmp_path: Path) -> None:
    process, pids = parent(root, tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert gone(pids), "children outlived their parent"
    assert "RUNNING" in {record.info.status for record in every_record(root)}
    result = go(root, "hangs_once")
    assert result.ok and [row.reused for row in result.rows] == [True, False, True, False]
    assert sorted(trained(root)) == sorted(set(trained(root))) and len(trained(root)) == 4
    records = every_record(root)
    assert sorted(record.info.status for record in records) == ["FINISHED"] * 4 + ["KILLED"] * 2
    assert len([record for record in records if record.info.lifecycle_stage == "active"]) == 4
    assert trials(root) == ["COMPLETE"] * 4


def test_ctrl_c_does_not_reach_the_server_while_it_imports() -> None:
    script = "import multiprocessing.forkserver as f; from attnlab._util.process import start_fork_server\n"
    script += "start_fork_server('attnlab.study.execution.preload')\n"
    script += "print(open(f'/proc/{f._forkserver._forkserver_pid}/status').read())"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120).stdout
    (blocked,) = [int(line.split()[1], 16) for line in output.splitlines() if line.startswith("SigBlk")]
    assert blocked >> (signal.SIGINT - 1) & 1


def test_ctrl_c_ends_the_children_and_marks_the_runs(root: Path, tmp_path: Path) -> None:
    process, pids = parent(root, tmp_path)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=300)
    assert process.returncode != 0 and "interrupted: 2 of 4 runs are finished" in output
    assert gone(pids)
    frame = load_runs("small", root)
    assert sorted(frame["state"]) == ["completed", "completed", "interrupted", "interrupted"]
    assert go(root, "hangs_once").ok


def test_an_impatient_ctrl_c_leaves_no_child_behind(root: Path, tmp_path: Path) -> None:
    process, pids = parent(root, tmp_path)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode != 0 and gone(pids)
    assert go(root, "hangs_once").ok


def test_the_real_thing_in_the_small(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = {"variant": ["dense"], "position": ["learned"]}
    output = (root / "said.txt").open("w+")
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    fake = "tests.support.study_fakes:shows_every_batch"
    result = run(study(grid=grid, seeds=[3]), root=root, display=ProgressDisplay(output), train=fake)
    assert result.ok
    summary = result.rows[0].summary
    assert 5 < summary["bits_per_byte"] < 9 and summary["steps"] == 20 and summary["saved_mib"] > 0
    output.seek(0)
    lines = output.read().splitlines()
    assert lines[:2] == ["data: pydocs length=16", "small: 1 run to do"]
    assert any("dense learned s3: completed, bits_per_byte" in line for line in lines)  # lines on reference scores may follow
    assert any("step 10/20" in line and "tokens/s" in line for line in lines)
    evaluated = [line.partition(": evaluating ")[2].split() for line in lines if ": evaluating " in line]
    assert {split for split, _ in evaluated} == {"valid", "test"} and evaluated[-1] == ["test", "100%"]
    assert set(load_curves("small", root)["metric"]) >= {"train/loss", "train/lr", "valid/bits_per_byte"}


@pytest.mark.parametrize("summary", [{"recall": 0.75, "loss": 2.0}, {"valid_recall": 0.75}])
def test_a_finished_line_has_the_metric_of_the_study_whatever_its_name(summary: dict[str, float]) -> None:
    output = io.StringIO()
    show = ProgressDisplay(output)
    show.start_study("mine", runs=1, finished=0, workers=1, metrics=["recall"])
    show.end_run("dense s0", Result(RunState.COMPLETED, summary))
    assert f"dense s0: completed, {next(iter(summary))} 0.7500, 0 s" in output.getvalue()


def test_a_notebook_shows_a_plan_in_a_line_a_cell() -> None:
    made = plan(study(grid={"variant": ["dense", "gru"], "position": ["rotary"]}, seeds=[0]))
    first, *cells = repr(made).splitlines()
    assert first == "plan of small: 2 cells, 1 run, bits_per_byte (min)"
    assert cells[0] == f"  dense rotary: {made.cells[0].parameters:,} parameters"
    assert cells[1].startswith("  gru rotary: refused: gru: does not support")


def test_secrets_that_other_programs_write_are_not_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that a run starts, and the C library, write to the log past Python's streams: the artifact is redacted."""
    monkeypatch.setenv("HF_TOKEN", "s3cr3t-of-me")
    result = go(root, "writes_past_python", seeds=[0], grid={"variant": ["dense"]}, retries=0)
    (row,) = result.rows
    assert row.state == "failed"
    (log,) = root.glob("artifacts/**/log.txt")
    assert "s3cr3t" not in log.read_text() and log.read_text().count("***") == 3 and "RuntimeError" in log.read_text()


def test_a_run_has_the_costs_that_its_plan_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only runs of a search, which may change the model, trace their costs: their processes lack this test's function."""
    trace = costs.plan_figures
    monkeypatch.setattr(costs, "plan_figures", lambda config, task: trace(config, task) | {"parameters": 1})
    short = study(grid={"variant": ["dense"]}, reference_scores=False)
    short["base"] |= {"train": {"steps": 1, "batch_size": 2}, "evaluate": {"valid_limit": 50, "test_limit": 50}}
    run(short, root=tmp_path, display=QUIET)
    assert load_runs("small", tmp_path)["parameters"].tolist() == [1, 1]
    del short["seeds"]
    search = {"trials": 1, "space": {"model.dim": {"choices": [8, 12]}}}
    run({**short, "study": "searched", "search": search, "confirm": {"seeds": [1]}}, root=tmp_path, display=QUIET)
    assert all(number > 1000 for number in load_runs("searched", tmp_path)["parameters"])


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> list[process.ForkServerProcess]:
    """The first child, which is forked by a server that seems to have ended before it answered."""
    start, children = process.ForkServerProcess.start, list[process.ForkServerProcess]()

    def end_after_forking(child: process.ForkServerProcess) -> None:
        start(child)
        if not children:
            children.append(child)
            raise EOFError("the server ended before it answered")

    monkeypatch.setattr(process.ForkServerProcess, "start", end_after_forking)
    return children


def test_a_child_that_was_forked_by_a_server_that_ended_at_once_ends(
    lost: list[process.ForkServerProcess], tmp_path: Path
) -> None:
    job = Job(settings=tiny(seed=1), folder=tmp_path / "work" / "run", train="tests.support.study_fakes:hangs_once")
    worker = Worker(job)
    try:
        lost[0].join(timeout=30)
        assert lost[0].exitcode, "it ended, and not by itself"
    finally:
        worker.kill()
        if lost[0].is_alive() and lost[0].pid:
            os.killpg(lost[0].pid, signal.SIGKILL)


def test_a_child_that_was_forked_by_a_server_that_ended_at_once_reports_nothing(
    lost: list[process.ForkServerProcess], root: Path
) -> None:
    result = go(root, "good", grid={"variant": ["dense"]}, seeds=[0])
    lost[0].join()
    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    steps = [point.step for point in client.get_metric_history(result.rows[0].run_id, "train/loss")]
    assert result.ok and steps and len(set(steps)) == len(steps)
