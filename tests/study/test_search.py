"""Tests of the search in each cell: when it is read, and its answers to a trial, which a new parent repeats."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from attnlab._util.run_state import RunState
from attnlab.planning.plan import plan
from attnlab.study.execution.scheduler import Scheduler
from attnlab.study.trials.queue import Ticket
from attnlab.study.trials.search import Search
from attnlab.study.trials.store import Store
from attnlab.tracking.tracker import Tracker
from tests.support.studies import SEARCH, write

CURVE = "valid/bits_per_byte"
PRUNERS = ["{name: MedianPruner, n_startup_trials: 1}", "{name: SuccessiveHalvingPruner, min_resource: 10}"]
Begin = Callable[[], tuple[Search, Ticket]]


@pytest.fixture(params=PRUNERS)
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begin]:
    """Return a function that starts a parent and returns its search and the second trial's ticket; the first trial was good."""
    planned = plan(write(tmp_path, SEARCH.replace("{name: MedianPruner, n_startup_trials: 2}", request.param)))
    with closing(Store(tmp_path)) as store:

        def parent() -> tuple[Search, Ticket]:
            search = Search(planned, planned.cells[0], store)
            search.queue.recover({}, wanted=search.keys)
            taken = search.claim()
            assert taken is not None
            return search, taken[0]

        search = Search(planned, planned.cells[0], store)
        search.queue.enqueue(search.keys)
        search, first = parent()
        for step in (10, 20):
            search.should_stop(first, step, {CURVE: 1.0})
        search.queue.tell(first, RunState.COMPLETED, 1.0)
        yield parent


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path)) as own:
        yield own


def searching(tmp_path: Path, store: Store, **sets: object) -> Search:
    """Return the search in the first cell, with every trial in its queue."""
    planned = plan(write(tmp_path, SEARCH), sets={f"search.{name}": value for name, value in sets.items()})
    search = Search(planned, planned.cells[0], store)
    search.queue.enqueue(search.keys)
    return search


def test_a_trial_is_judged_by_its_evaluations_alone(tmp_path: Path, store: Store) -> None:
    search = searching(tmp_path, store, pruner={"name": "ThresholdPruner", "upper": 4.0})
    ticket, _ = search.claim() or pytest.fail("nothing to take")
    curve = [(1, {"train/loss": 9.0}), (2, {CURVE: 3.5, "train/loss": 9.0}), (3, {"valid/loss": 9.0}), (4, {CURVE: 4.5})]
    assert [search.should_stop(ticket, step, metrics) for step, metrics in curve] == [None, False, None, True]
    assert search.queue.trials()[0].intermediate_values == {2: 3.5, 4: 4.5}


def test_as_many_trials_run_at_once_as_the_study_allows(tmp_path: Path, store: Store) -> None:
    search = searching(tmp_path, store, parallel=2)
    assert [search.claim() is not None for _ in range(3)] == [True, True, False]


def test_only_searches_with_an_ended_trial_are_read(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    over = Search.is_over.fget
    assert over is not None
    monkeypatch.setattr(Search, "is_over", property(lambda search: looked.append(search.cell.name) or over(search)))
    planned = plan(write(tmp_path, SEARCH.replace("trials: 8", "trials: 1")))
    with Tracker(planned, root) as tracker, closing(Store(root)) as store:
        scheduler = Scheduler(planned, tracker, store, retry=())
        scheduler.open()
        looked.clear()
        first = scheduler.claim()
        assert first is not None and first.run.cell.name == "dense" and looked == []
        scheduler.record_end(first, RunState.COMPLETED, {"valid_bits_per_byte": 1.0})
        following = [claimed.run.name for _ in range(3) if (claimed := scheduler.claim())]
        assert following == ["dense s100", "dense s101", "no_wo t00"] and looked == ["dense"]


def test_a_pruned_trial_is_pruned_again_after_a_restart(begin: Begin) -> None:
    search, ticket = begin()
    assert search.should_stop(ticket, 10, {CURVE: 2.0}) is True
    search, again = begin()
    assert again.number == ticket.number and search.should_stop(again, 10, {CURVE: 2.0}) is True


def test_a_trial_whose_parent_died_before_it_judged_is_judged(begin: Begin) -> None:
    _, ticket = begin()
    ticket.trial.report(2.0, 10)
    search, again = begin()
    assert search.should_stop(again, 10, {CURVE: 2.0}) is True


def test_past_reports_of_a_continued_trial_are_not_judged_again(begin: Begin) -> None:
    search, ticket = begin()
    assert search.should_stop(ticket, 10, {"train/loss": 2.0}) is None
    for step in (10, 20):
        ticket.trial.report(2.0, step)
    search, again = begin()
    assert [search.should_stop(again, step, {CURVE: 2.0}) for step in (10, 20)] == [False, True]
