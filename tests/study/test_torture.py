"""Tests that kill processes at random moments: a rerun finishes the study, each run exactly once, bit by bit the same."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import optuna
import pytest
from mlflow import MlflowClient

import attnlab
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.trials.queue import Queue
from attnlab.study.trials.store import storage_url
from tests.support.exactly_once import Curves, Stores, broken_promises, finished
from tests.support.postgres import PASSWORD, Server
from tests.support.processes import MARK, Marked
from tests.support.studies import STUDY, write
from tests.torture import harness

QUIET = ProgressDisplay(quiet=True)
STEPS = 60  # of a run; there is a checkpoint at every fifth


@dataclass(frozen=True)
class Peace:
    """A small study, the folder of its undisturbed runs, and their curves."""

    study: Path
    root: Path
    curves: dict[str, Curves]


@pytest.fixture(scope="module")
def peace(tmp_path_factory: pytest.TempPathFactory) -> Peace:
    folder = tmp_path_factory.mktemp("torture")
    study = harness.write_study(folder, runs=6, steps=STEPS)
    return Peace(study, folder / "runs", harness.undisturbed(study, folder / "runs"))


@pytest.fixture(scope="module")
def peaceful_chains(tmp_path_factory: pytest.TempPathFactory) -> Peace:
    folder = tmp_path_factory.mktemp("chains")
    study = harness.write_study(folder, runs=8, steps=STEPS, chains=True)
    return Peace(study, folder / "runs", harness.undisturbed(study, folder / "runs"))


def endure(torment: harness.Torment, peace: Peace, *kinds: str, seed: int) -> None:
    """Kill processes, finish the study, and check that every guarantee holds."""
    torment.fit(kinds, seed=seed)
    assert harness.verdict(torment, peace.curves) == []
    assert torment.hits.total() == len(kinds)


@pytest.mark.exhaustive  # half a minute; the chains of a test below are killed in the same ways
def test_a_study_killed_at_every_step_ends_as_an_undisturbed_one(peace: Peace, tmp_path: Path) -> None:
    endure(harness.Torment(peace.study, tmp_path, 2, pause=0.5), peace, "run", "family", "run", "parent", "any", seed=1)


def test_the_parent_outlives_its_fork_servers_and_loses_nothing(peace: Peace, tmp_path: Path) -> None:
    torment = harness.Torment(peace.study, tmp_path, 2, pause=0.5)
    endure(torment, peace, "server", "run", "server", seed=3)
    assert torment.starts == 1, "the parent was started once and ended by itself"


def test_chains_killed_at_every_step_end_as_undisturbed_ones(peaceful_chains: Peace, tmp_path: Path) -> None:
    """Half of the runs start from the weights of the other half: an equal curve needs equal weights at its start."""
    torment = harness.Torment(peaceful_chains.study, tmp_path, 2, pause=0.5)
    endure(torment, peaceful_chains, "run", "family", "parent", "any", seed=4)


def test_two_parents_on_postgresql_lose_and_double_nothing(peace: Peace, tmp_path: Path, postgres: Server) -> None:
    addresses = postgres.database(), postgres.database()
    torment = harness.Torment(peace.study, tmp_path, 1, 2, addresses, pause=0.5)
    endure(torment, peace, "run", "family", "parent", "run", seed=2)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert not written, "the storage's password stands in files"


@pytest.mark.exhaustive
def test_chains_of_two_parents_on_postgresql_end_as_undisturbed_ones(
    peaceful_chains: Peace, tmp_path: Path, postgres: Server
) -> None:
    addresses = postgres.database(), postgres.database()
    torment = harness.Torment(peaceful_chains.study, tmp_path, 1, 2, addresses, pause=0.5)
    endure(torment, peaceful_chains, "run", "family", "parent", "run", "parent", "any", seed=6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("storage", ["sqlite", "postgresql"])
def test_a_hundred_kills(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert harness.main(["--storage", storage, "--runs", "40", "--workers", "4", "--kills", "100"]) == 0


def delete(client: MlflowClient, run_id: str, trials: optuna.Study) -> None:
    client.set_terminated(run_id, "KILLED")
    client.delete_run(run_id)


def point_twice(client: MlflowClient, run_id: str, trials: optuna.Study) -> None:
    last = client.get_metric_history(run_id, "train/loss")[-1]
    client.log_metric(run_id, "train/loss", last.value, step=last.step)


def point_more(client: MlflowClient, run_id: str, trials: optuna.Study) -> None:
    client.log_metric(run_id, "train/tokens_per_s", 1.0, step=STEPS + 1)


def curve_more(client: MlflowClient, run_id: str, trials: optuna.Study) -> None:
    client.log_metric(run_id, "noise", 1.0)


def left_running(client: MlflowClient, run_id: str, trials: optuna.Study) -> None:
    client.update_run(run_id, status="RUNNING")


def finished_twice(client: MlflowClient, run_id: str, trials: optuna.Study) -> None:
    record = client.get_run(run_id)
    duplicate = client.create_run(record.info.experiment_id, tags=record.data.tags)
    client.set_terminated(duplicate.info.run_id)
    client.delete_run(duplicate.info.run_id)


def trial_twice(client: MlflowClient, run_id: str, trials: optuna.Study) -> None:
    trials.add_trial(trials.trials[0])


def trial_left(client: MlflowClient, run_id: str, trials: optuna.Study) -> None:
    trials.enqueue_trial({}, user_attrs=trials.trials[0].user_attrs)


@pytest.mark.parametrize(
    ("break_it", "violation"),
    [
        (delete, "0 finished records"),
        (delete, "0 active records"),
        (point_twice, "train/loss: points logged twice"),
        (point_more, "train/tokens_per_s: steps"),
        (curve_more, "['noise'] only with or only without"),
        (left_running, "left RUNNING (active)"),
        (finished_twice, "2 finished records"),
        (trial_twice, "2 complete trials"),
        (trial_left, "left WAITING"),
    ],
)
def test_a_broken_promise_is_seen(break_it: Callable[..., None], violation: str, peace: Peace, tmp_path: Path) -> None:
    """Test the check itself: the two tests above would prove nothing if it missed one of these violations."""
    root = Path(shutil.copytree(peace.root, tmp_path / "runs"))
    stores = Stores(f"sqlite:///{root / 'mlflow.db'}", f"sqlite:///{root / 'optuna.db'}")
    plan = attnlab.plan(peace.study)
    assert broken_promises(plan, stores, reference=peace.curves) == []
    victim = finished(stores.records("torture"))[plan.runs[3].fingerprint]
    name = optuna.get_all_study_names(stores.storage)[0]
    break_it(MlflowClient(stores.tracking), victim.info.run_id, optuna.load_study(study_name=name, storage=stores.storage))
    violations = broken_promises(plan, stores, reference=peace.curves)
    assert any(violation in line for line in violations), violations


def test_a_value_that_differs_in_its_last_bit_is_seen(peace: Peace) -> None:
    stores = Stores(f"sqlite:///{peace.root / 'mlflow.db'}", f"sqlite:///{peace.root / 'optuna.db'}")
    plan = attnlab.plan(peace.study)
    key = plan.runs[0].fingerprint
    step, value = peace.curves[key]["train/loss"][0]
    altered = float.fromhex(value) * (1 + 2**-52)
    changed = [(step, altered.hex()), *peace.curves[key]["train/loss"][1:]]
    violations = broken_promises(plan, stores, reference=peace.curves | {key: peace.curves[key] | {"train/loss": changed}})
    assert violations == [f"{plan.runs[0].name}: train/loss: other values than without disturbance"]


def test_only_marked_living_processes_are_hit() -> None:
    marked, sleep = Marked("one"), [sys.executable, "-c", "import time; time.sleep(600)"]
    ours = subprocess.Popen(sleep, env=os.environ | {MARK: "one"})
    unmarked = subprocess.Popen(sleep, env=os.environ | {MARK: "another"})
    try:
        assert marked.parents() == {ours.pid: os.getpid()} and not marked.gone(seconds=0.1)
        assert not marked.kill(unmarked.pid) and unmarked.poll() is None
        assert marked.kill(ours.pid)
        assert marked.gone() and not marked.kill(ours.pid), "dead, if not yet buried"
    finally:
        for process in (ours, unmarked):
            process.kill()
            process.wait()
    assert ours.returncode == -9


def test_the_spy_notes_what_is_read_and_not_what_is_written(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; import tests.torture.spy; p = Path(sys.argv[1]); "
    script += "p.write_text('half'); p.rename(sys.argv[2]); Path(sys.argv[2]).read_text(); "
    script += "p.write_text('half'); p.read_text()"
    paths = tmp_path / ".checkpoint.pt.1.half", tmp_path / "checkpoint.pt"
    environment = os.environ | {"ATTNLAB_SPY": str(tmp_path / "read.txt")}
    subprocess.run([sys.executable, "-c", script, *map(str, paths)], env=environment, check=True, timeout=120)
    assert (tmp_path / "read.txt").read_text().split() == [str(paths[1]), str(paths[0])]


def test_a_ticket_that_a_dead_parent_left_of_a_finished_run_is_settled(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, tracking = postgres.database(), postgres.store()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking)
    path = write(tmp_path, STUDY)
    first = attnlab.run(
        path, root=tmp_path / "runs", storage=storage, only={"variant": "no_wo"}, display=ProgressDisplay(quiet=True)
    )
    (name,) = optuna.get_all_study_names(storage_url(storage))
    trials = optuna.load_study(study_name=name, storage=storage_url(storage))
    trials.enqueue_trial({}, user_attrs={"key": trials.trials[0].user_attrs["key"]})  # queued just before the run finished
    again = attnlab.run(
        path, root=tmp_path / "runs", storage=storage, only={"variant": "no_wo"}, display=ProgressDisplay(quiet=True)
    )
    assert first.ok and again.ok
    trials = optuna.load_study(study_name=name, storage=storage_url(storage))
    # One trial for each seed, and the leftover ticket.
    assert [trial.state.name for trial in trials.trials] == ["COMPLETE", "COMPLETE", "FAIL"]


def test_a_parent_killed_between_a_record_and_its_ticket_leaves_a_complete_trial_for_every_run(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is FINISHED and the trial has its state, but not its value, when the parent dies."""
    storage, tracking = postgres.database(), postgres.store()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking)
    monkeypatch.setenv("ATTNLAB_HEARTBEAT", "1")
    path, options = write(tmp_path, STUDY), {"root": tmp_path / "runs", "storage": storage, "only": {"variant": "no_wo"}}

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Queue, "_tell", killed)
        attnlab.run(path, display=QUIET, **options)
    assert attnlab.run(path, display=QUIET, **options).ok
    trials = Stores(tracking, storage_url(storage)).trials()
    assert Counter(trial.user_attrs["key"] for trial in trials if trial.state.name == "COMPLETE") == {
        run.fingerprint: 1 for run in attnlab.plan(path, only={"variant": "no_wo"}).runs
    }
    assert all(trial.state.is_finished() for trial in trials)
