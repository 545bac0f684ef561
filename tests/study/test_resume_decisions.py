"""Tests of the decisions from the records of earlier calls, without a store."""

from types import SimpleNamespace
from typing import Any

from attnlab._util.run_state import Reset
from attnlab.tracking.attempts import files_to_remove, has_result, records_to_replace, trials_to_queue


def record(state: str, *, status: str = "FINISHED", failures: int = 0, more: dict[str, str] | None = None) -> Any:
    tags = {"attnlab.state": state, "attnlab.failures": str(failures), **(more or {})}
    return SimpleNamespace(info=SimpleNamespace(run_id=f"id of {state}", status=status), data=SimpleNamespace(tags=tags))


def test_a_run_has_a_result_when_it_is_finished_or_has_failed_too_often() -> None:
    assert has_result(record("diverged"), retries=1)
    assert not has_result(record("failed", status="FAILED", failures=1), retries=1)
    assert has_result(record("failed", status="FAILED", failures=2), retries=1)
    assert not has_result(record("interrupted", status="KILLED"), retries=0)


RECORDS = {"a": record("diverged"), "b": record("failed", status="FAILED"), "c": record("completed")}


def test_records_of_the_states_to_retry_are_replaced() -> None:
    assert records_to_replace(RECORDS, {"diverged", "failed"}) == {"id of diverged", "id of failed"}
    assert records_to_replace(RECORDS, set()) == set()


def test_results_are_discarded_but_not_the_checkpoints_of_a_failure() -> None:
    assert files_to_remove(RECORDS, {"diverged", "failed"}) == {"a": Reset.RESULT}


def test_a_discard_that_an_earlier_call_did_not_get_to_is_made_up_for() -> None:
    result = record("interrupted", status="KILLED", more={"attnlab.reset": "result"})
    folder = record("interrupted", status="KILLED", more={"attnlab.reset": "folder"})
    begun = record("interrupted", status="KILLED", more={"attnlab.reset": "folder", "attnlab.device": "cpu"})
    records = {"result": result, "folder": folder, "begun": begun}
    assert files_to_remove(records, set()) == {"result": Reset.RESULT, "folder": Reset.FOLDER}


def test_everything_of_a_withdrawn_run_is_removed() -> None:
    assert files_to_remove(RECORDS, {"diverged"}, withdrawn=["a", "gone"]) == {"a": Reset.FOLDER, "gone": Reset.FOLDER}


def test_a_trial_gets_a_ticket_unless_it_has_ended_for_good() -> None:
    keys = ["new", "invalid", "to retry", "done"]
    ended = {"invalid", "to retry", "done"}
    assert trials_to_queue(keys, ended=ended, recorded={"to retry", "done"}, finished={"done"}) == ["new", "to retry"]
    assert trials_to_queue(["lost ticket"], ended=(), recorded={"lost ticket"}, finished={"lost ticket"}) == ["lost ticket"]
