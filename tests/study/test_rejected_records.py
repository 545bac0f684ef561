"""Tests of what the MLflow store rejects, and of names and texts that a locale cannot encode: no other run is stopped."""

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos import databricks_pb2 as codes
from optuna.trial import Trial

from attnlab.study.execution.runner import Runner
from attnlab.study.trials.queue import Queue, key_of
from attnlab.tracking.client import search_runs
from attnlab.tracking.runs import find_experiment, load_runs
from attnlab.tracking.tracker import Tracker
from tests.study.test_study import go

REJECTION = MlflowException("this name is not allowed", codes.INVALID_PARAMETER_VALUE)


def reject(monkeypatch: pytest.MonkeyPatch, method: str, *, seed: int) -> None:
    """Let MLflow reject the calls of one method for the runs with this seed."""
    call, rejected = getattr(MlflowClient, method), set[str]()
    create = MlflowClient.create_run

    def create_run(self: MlflowClient, *args: Any, **kwargs: Any) -> Any:
        record = create(self, *args, **kwargs)
        if record.data.tags["attnlab.seed"] == str(seed):
            rejected.add(record.info.run_id)
        return record

    def method_or_rejection(self: MlflowClient, *args: Any, **kwargs: Any) -> Any:
        is_rejected = kwargs["tags"].get("attnlab.seed") == str(seed) if method == "create_run" else args[0] in rejected
        if is_rejected:
            raise REJECTION
        return call(self, *args, **kwargs)

    monkeypatch.setattr(MlflowClient, "create_run", create_run)
    monkeypatch.setattr(MlflowClient, method, method_or_rejection)


@pytest.mark.parametrize("method", ["create_run", "set_tag", "log_batch", "set_terminated"])
def test_a_run_that_mlflow_rejects_fails_alone(method: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        reject(patch, method, seed=0)
        result = go(root, grid={"variant": ["dense"]}, seeds=[0, 1])
    first, second = result.rows
    assert (first.state, second.state) == ("failed", "completed")
    assert "this name is not allowed" in first.reason and "\n" not in first.reason
    again = go(root, grid={"variant": ["dense"]}, seeds=[0, 1])
    assert again.ok and list(load_runs("small", root)["state"]) == ["completed"] * 2


def test_a_record_that_is_deleted_while_its_run_trains_fails_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_metrics = Tracker.log_metrics

    def delete_first(self: Tracker, run_id: str, step: int, metrics: dict[str, float]) -> None:
        if self._raw.get_run(run_id).data.tags["attnlab.seed"] == "0":
            self._raw.delete_run(run_id)
        log_metrics(self, run_id, step, metrics)

    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "log_metrics", delete_first)
        result = go(root, grid={"variant": ["dense"]}, seeds=[0, 1])
    assert [row.state for row in result.rows] == ["failed", "completed"]
    assert go(root, grid={"variant": ["dense"]}, seeds=[0, 1]).ok


@pytest.mark.parametrize("takes_ticket", [True, False])
def test_a_run_that_another_parent_takes_over_late_does_not_fail(
    takes_ticket: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database does not respond after this parent has made sure of its ticket, and another parent gives it up for dead.

    That parent may delete the record without the ticket: it created a record of its own late.
    """
    owns, client = Queue.owns, MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    taken = list[str]()

    def owns_until_then(self: Queue, ticket: Trial) -> bool:
        answer = owns(self, ticket)
        if not taken:
            taken.append(key_of(ticket))
            if takes_ticket:
                self.study.tell(ticket.number, state=self._states.FAIL)
                self.enqueue([key_of(ticket)])
            for record in search_runs(client, find_experiment(client, "small").experiment_id):
                if record.key == key_of(ticket):
                    client.set_tag(record.run_id, "attnlab.replaced", "yes")
                    client.delete_run(record.run_id)
        return answer

    monkeypatch.setattr(Queue, "owns", owns_until_then)
    result = go(root, grid={"variant": ["dense"]}, seeds=[0, 1])
    assert taken and [row.state for row in result.rows] == ["completed", "completed"]
    assert result.ok and list(load_runs("small", root)["state"]) == ["completed"] * 2


def test_a_run_without_a_record_has_a_row(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "_find", lambda rows, key: None)
        result = go(root, grid={"variant": ["dense"]}, seeds=[0])
    (row,) = result.rows
    assert (row.state, result.ok) == ("failed", False) and "deleted" in row.reason
