"""Tests of the decisions from the records of earlier calls, without a store."""

from typing import Any

from attnlab._util.run_state import Reset
from attnlab.study.trials.queue import trials_to_queue
from attnlab.tracking.record import RunRecord
from attnlab.tracking.withdrawn import files_to_remove


def record(state: str, **fields: Any) -> RunRecord:
    return RunRecord.model_construct(**{"state": state, "status": "FINISHED", **fields})


def test_a_run_has_a_result_when_it_is_finished_or_has_failed_too_often() -> None:
    assert record("diverged").has_result(retries=1)
    assert not record("failed", status="FAILED", failures=1).has_result(retries=1)
    assert record("failed", status="FAILED", failures=2).has_result(retries=1)
    assert not record("interrupted", status="KILLED").has_result(retries=0)


RECORDS = {"a": record("diverged"), "b": record("failed", status="FAILED"), "c": record("completed")}


def test_results_are_discarded_but_not_the_checkpoints_of_a_failure() -> None:
    assert files_to_remove(RECORDS, {"diverged", "failed"}) == {"a": Reset.RESULT}


def test_a_discard_that_an_earlier_call_did_not_get_to_is_made_up_for() -> None:
    result = record("interrupted", status="KILLED", reset=Reset.RESULT)
    folder = record("interrupted", status="KILLED", reset=Reset.FOLDER)
    begun = record("interrupted", status="KILLED", reset=Reset.FOLDER, device="cpu")
    records = {"result": result, "folder": folder, "begun": begun}
    assert files_to_remove(records, set()) == {"result": Reset.RESULT, "folder": Reset.FOLDER}


def test_everything_of_a_withdrawn_run_is_removed() -> None:
    assert files_to_remove(RECORDS, {"diverged"}, withdrawn=["a", "gone"]) == {"a": Reset.FOLDER, "gone": Reset.FOLDER}


def test_a_trial_gets_a_ticket_unless_it_has_ended_for_good() -> None:
    keys = ["new", "invalid", "to retry", "done"]
    ended = {"invalid", "to retry", "done"}
    assert trials_to_queue(keys, ended=ended, recorded={"to retry", "done"}, finished={"done"}) == ["new", "to retry"]
    assert trials_to_queue(["lost ticket"], ended=(), recorded={"lost ticket"}, finished={"lost ticket"}) == ["lost ticket"]
