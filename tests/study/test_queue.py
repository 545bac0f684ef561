"""Tests of the queue: one parent with sqlite, several with PostgreSQL; every key once, even if processes die."""

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.study.trials.queue import Queue, key_of
from attnlab.study.trials.store import Store, shared_storage

if TYPE_CHECKING:
    from tests.support.postgres import Server

KEYS = [f"k{i}" for i in range(7)]
FAR = "http://127.0.0.1:9"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path)) as store:
        yield store


@pytest.fixture
def url(postgres: "Server", monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ATTNLAB_HEARTBEAT", "1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", FAR)
    return shared_storage(postgres.database()) or ""


def queue(store: Store) -> Queue:
    return Queue(store, "s", direction="min")


def test_every_key_is_handed_out_once_in_order(own: Store) -> None:
    waiting = queue(own)
    waiting.enqueue(KEYS)
    waiting.enqueue(KEYS)  # a second call adds nothing: the tickets are waiting already
    taken = [ticket for _ in range(9) if (ticket := waiting.claim(KEYS))]
    assert [key_of(ticket) for ticket in taken] == KEYS
    for i, ticket in enumerate(taken):
        waiting.tell(ticket, RunState.COMPLETED, float(i))
    assert waiting.keys("COMPLETE") == set(KEYS) and waiting.study.best_value == 0.0


@pytest.mark.parametrize(("direction", "best"), [("min", 1.0), ("max", 3.0)])
def test_the_best_is_the_highest_where_more_is_better(own: Store, direction: str, best: float) -> None:
    waiting = Queue(own, "s", direction=direction)
    waiting.enqueue(["a", "b", "c"])
    for value in (2.0, 3.0, 1.0):
        ticket = waiting.claim(["a", "b", "c"])
        assert ticket is not None
        waiting.tell(ticket, RunState.COMPLETED, value)
    assert waiting.study.best_value == best


def test_only_requested_runs_are_claimed(own: Store) -> None:
    waiting = queue(own)
    waiting.enqueue(KEYS)
    ticket = waiting.claim({"k3"})
    assert ticket is not None and key_of(ticket) == "k3"
    assert waiting.claim({"k3"}) is None


def test_the_first_of_the_keys_is_claimed_although_another_ticket_is_older(own: Store) -> None:
    waiting = queue(own)
    waiting.enqueue(["c", "a"])
    waiting.enqueue(["b"])
    taken = [key_of(ticket) for _ in range(4) if (ticket := waiting.claim(["a", "gone", "b", "c"]))]
    assert taken == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("state", "value", "expected"),
    [
        (RunState.COMPLETED, 1.5, "COMPLETE"),
        (RunState.COMPLETED, math.nan, "PRUNED"),
        (RunState.PRUNED, 2.0, "PRUNED"),
        (RunState.FAILED, math.nan, "FAIL"),
        (RunState.TIMED_OUT, math.nan, "FAIL"),
        (RunState.DIVERGED, math.nan, "PRUNED"),
        (RunState.OUT_OF_MEMORY, math.nan, "PRUNED"),
    ],
)
def test_each_state_has_its_place_in_optuna(own: Store, state: RunState, value: float, expected: str) -> None:
    waiting = queue(own)
    waiting.enqueue(["k"])
    ticket = waiting.claim(["k"])
    assert ticket is not None
    waiting.tell(ticket, state, value)
    assert [trial.state.name for trial in waiting.trials()] == [expected]


def test_a_dead_parents_tickets_wait_again_with_their_numbers(own: Store) -> None:
    before = queue(own)
    before.enqueue(["a", "b", "written", "gone"])
    numbers = {key_of(ticket): ticket.number for _ in range(4) if (ticket := before.claim(["a", "b", "written", "gone"]))}
    after = queue(own)
    after.recover({"written": 3.0}, wanted=["a", "b", "written"])
    again = [ticket for _ in range(4) if (ticket := after.claim(["a", "b", "written", "gone"]))]
    assert {key_of(ticket): ticket.number for ticket in again} == {"a": numbers["a"], "b": numbers["b"]}
    assert after.keys("COMPLETE") == {"written"} and after.keys("FAIL") == {"gone"}


def test_the_next_attempt_of_a_failed_trial_has_its_parameters(own: Store) -> None:
    waiting = queue(own)
    waiting.enqueue(["t00"])
    first = waiting.claim(["t00"])
    assert first is not None
    suggested = first.suggest_float("train.lr", 1e-4, 1e-2, log=True)
    waiting.tell(first, RunState.FAILED, math.nan)
    waiting.enqueue(["t00"])
    second = waiting.claim(["t00"])
    assert second is not None and second.number != first.number
    assert second.suggest_float("train.lr", 1e-4, 1e-2, log=True) == suggested


def test_many_parents_never_claim_one_ticket(url: str, tmp_path: Path) -> None:
    taken: list[str] = []

    def parent() -> None:
        with closing(Store(tmp_path, url)) as store:
            mine = queue(store)
            mine.enqueue(KEYS)
            while ticket := mine.claim(KEYS):
                taken.append(key_of(ticket))
                mine.tell(ticket, RunState.COMPLETED, 1.0)

    threads = [Thread(target=parent) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert set(taken) == set(KEYS)
    with closing(Store(tmp_path, url)) as store:
        # A late parent may have queued a key again after its run was finished. The runner drops such duplicates, because it
        # looks up the record in MLflow before it starts a run. Two parents never hold tickets of one key at the same time.
        assert len(taken) == len(queue(store).trials("COMPLETE"))


def test_runs_of_dead_parents_are_closed_and_those_of_living_ones_kept(url: str, tmp_path: Path) -> None:
    with closing(Store(tmp_path, url)) as living, closing(Store(tmp_path, url)) as dying:
        theirs, ours = queue(dying), queue(living)
        ours.enqueue(["dead", "alive", "mute"])
        assert theirs.claim(["dead"]) is not None
        kept = ours.claim(["alive"])
        mute = next(trial for trial in theirs.trials("WAITING") if trial.user_attrs["key"] == "mute")
        dying.rdb.set_trial_state_values(mute._trial_id, theirs._states.RUNNING)  # it died before its first heartbeat
        dying.close()  # no more heartbeats
        until = time.monotonic() + 4 * living.grace_period
        while ours.keys("RUNNING") != {"alive"} and time.monotonic() < until:
            ours.recover({}, wanted=[])
            time.sleep(0.5)
        assert kept is not None and ours.owns(kept)
        assert sorted(trial.user_attrs["key"] for trial in ours.trials("WAITING")) == ["dead", "mute"]
        ours.recover({}, wanted=[])
        assert len(ours.trials("WAITING")) == 2, "entered once"


def test_a_parent_that_was_given_up_for_dead_notices(url: str, tmp_path: Path) -> None:
    with closing(Store(tmp_path, url)) as store:
        waiting = queue(store)
        waiting.enqueue(["k"])
        ticket = waiting.claim(["k"])
        assert ticket is not None and waiting.owns(ticket)
        waiting.study.tell(ticket.number, state=waiting._states.FAIL)  # as another parent's recovery does
        assert not waiting.owns(ticket)


def test_a_claim_that_is_given_up_for_dead_at_once_is_none(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database does not respond between the claim and its first heartbeat."""
    with closing(Store(tmp_path, url)) as store:
        waiting = queue(store)
        waiting.enqueue(["k", "l"])
        started, lost = Store.start_heartbeat, list[int]()

        def fail_first(self: Store, trial_id: int) -> None:
            started(self, trial_id)
            if not lost:
                lost.append(trial_id)
                self.rdb.set_trial_state_values(trial_id, waiting._states.FAIL)

        monkeypatch.setattr(Store, "start_heartbeat", fail_first)
        ticket = waiting.claim(["k", "l"])
        assert ticket is not None and key_of(ticket) == "l" and lost[0] not in store._heartbeats
        assert waiting.update(ticket, lambda: ticket.set_user_attr("a", 1))
        waiting.study.tell(ticket.number, state=waiting._states.FAIL)
        assert not waiting.update(ticket, lambda: ticket.report(1.0, 1)) and not store._heartbeats


def test_a_released_ticket_can_be_claimed_at_once_by_another(url: str, tmp_path: Path) -> None:
    with closing(Store(tmp_path, url)) as first_store, closing(Store(tmp_path, url)) as second_store:
        queue(first_store).enqueue(["k"])
        first = queue(first_store).claim(["k"])
        assert first is not None
        queue(first_store).release(first)
        second = queue(second_store).claim(["k"])
        assert second is not None and second.number != first.number


def test_a_parent_that_dies_between_its_result_and_its_ticket_loses_nothing(url: str, tmp_path: Path) -> None:
    """A parent is killed, or recovered as stale, after it wrote the state of a completed run and before it closed the trial."""
    with closing(Store(tmp_path, url)) as living, closing(Store(tmp_path, url)) as dying:
        ours, theirs = queue(living), queue(dying)
        theirs.enqueue(["completed", "failed"])
        for state in (RunState.COMPLETED, RunState.FAILED):
            ticket = theirs.claim([str(state)])
            assert ticket is not None
            ticket.set_user_attr("state", str(state))
        dying.close()  # no more heartbeats
        until = time.monotonic() + 4 * living.grace_period
        while ours.keys("RUNNING") and time.monotonic() < until:
            ours.recover({}, wanted=[])
            time.sleep(0.2)
        assert ours.keys("WAITING") == {"completed"}, "a failed run has its outcome, a completed one needs its value"
        assert ours.open_keys() == {"completed"}
        again = ours.claim(["completed"])
        assert again is not None
        ours.close_finished(again, 1.5)
        assert ours.keys("COMPLETE") == {"completed"} and ours.open_keys() == set()


def test_a_ticket_that_was_recovered_while_its_parent_closed_it_is_closed_by_the_next_owner(url: str, tmp_path: Path) -> None:
    with closing(Store(tmp_path, url)) as slow_store, closing(Store(tmp_path, url)) as other_store:
        slow, other = queue(slow_store), queue(other_store)
        slow.enqueue(["k"])
        late = slow.claim(["k"])
        assert late is not None
        other.study.tell(late.number, state=other._states.FAIL)  # as its recovery does
        slow.tell(late, RunState.COMPLETED, 2.5)
        assert slow.open_keys() == {"k"}, "not waiting, not running, and yet without its value"
        other.recover({}, wanted=[])
        again = other.claim(["k"])
        assert again is not None
        other.close_finished(again, 2.5)
        assert [trial.value for trial in slow.trials("COMPLETE")] == [2.5]


def test_a_waiting_ticket_that_another_parent_has_closed_meanwhile_is_passed_over(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Store(tmp_path, url)) as first_store, closing(Store(tmp_path, url)) as second_store:
        first, second = queue(first_store), queue(second_store)
        first.enqueue(["a", "b"])
        listed = second.trials("WAITING")
        closed = first.claim(["a"])
        assert closed is not None
        first.tell(closed, RunState.COMPLETED, 1.0)
        monkeypatch.setattr(second, "trials", lambda *states: listed)
        claimed = second.claim(["a", "b"])
        assert claimed is not None and key_of(claimed) == "b"


def test_the_end_of_heartbeats_does_not_come_before_that_of_the_trial(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Store(tmp_path, url)) as store:
        waiting, order = queue(store), list[str]()
        waiting.enqueue(["k"])
        ticket = waiting.claim(["k"])
        assert ticket is not None
        tell, stop = waiting._tell, store.stop_heartbeat
        monkeypatch.setattr(waiting, "_tell", lambda *words: order.append("trial") or tell(*words))
        monkeypatch.setattr(store, "stop_heartbeat", lambda number: order.append("heartbeats") or stop(number))
        waiting.tell(ticket, RunState.COMPLETED, 1.0)
        assert order == ["trial", "heartbeats"]


def test_a_storage_needs_a_record_that_all_can_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert shared_storage(None) is None
    with pytest.raises(UserError, match="expected MLFLOW_TRACKING_URI"):
        shared_storage("postgresql://u:pw@h/d")
    with pytest.raises(UserError, match="postgresql://.*'mysql'"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", FAR)
        shared_storage("mysql://u:pw@h/d")


def test_a_missing_database_is_one_line_without_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", FAR)
    url = shared_storage("postgresql://u:open-sesame@127.0.0.1:9/d")
    with pytest.raises(UserError, match="cannot use the storage") as caught:
        Store(tmp_path, url)
    assert "sesame" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_locked_queue_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.study.trials.store.SQLITE_TIMEOUT", 0.05)
    with closing(Store(tmp_path)) as store, closing(sqlite3.connect(tmp_path / "optuna.db", check_same_thread=False)) as other:
        waiting, turns = queue(store), list[int]()

        def unlock_later() -> None:
            turns.append(1)
            if len(turns) == 3:
                other.rollback()

        store.patience.on_wait = unlock_later
        other.execute("BEGIN EXCLUSIVE")
        waiting.enqueue(KEYS)
        assert waiting.keys("WAITING") == set(KEYS) and len(turns) >= 3


def test_parents_outlive_lost_connections(url: str, postgres: "Server", tmp_path: Path) -> None:
    """The server ends all connections three times while two parents work, as it does when it is restarted."""
    database, claimed = url.rpartition("/")[2], list[str]()

    def work(store: Store) -> None:
        with closing(store):
            mine = queue(store)
            mine.enqueue(KEYS)
            while open_keys := mine.open_keys():
                if (ticket := mine.claim(sorted(open_keys))) is not None:
                    claimed.append(key_of(ticket))
                    mine.tell(ticket, RunState.COMPLETED, 1.0)
                mine.recover({}, wanted=())

    parents = [Thread(target=work, args=[Store(tmp_path / str(parent), url)], daemon=True) for parent in range(2)]
    for parent in parents:
        parent.start()
    for _ in range(3):
        time.sleep(0.2)
        with postgres.connect() as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database])
    for parent in parents:
        parent.join(timeout=60)
    with closing(Store(tmp_path, url)) as store:
        assert queue(store).keys("COMPLETE") == set(KEYS) and set(claimed) == set(KEYS)
