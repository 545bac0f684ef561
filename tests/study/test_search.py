"""Tests of the search in each cell: when it is read, and its answers to a trial, which a new parent repeats."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from optuna.trial import Trial

from attnlab._util.run_state import RunState
from attnlab.planning.plan import plan
from attnlab.study.execution.scheduler import Scheduler
from attnlab.study.trials.queue import Search
from attnlab.study.trials.store import Store
from attnlab.tracking.tracker import Tracker
from attnlab.training.result import Result
from tests.support.studies import SEARCH, STUDY, write

CURVE = "valid/bits_per_byte"
PRUNERS = ["{name: MedianPruner, n_startup_trials: 1}", "{name: SuccessiveHalvingPruner, min_resource: 10}"]
Begin = Callable[[], tuple[Search, Trial]]


@pytest.fixture(params=PRUNERS)
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begin]:
    """Return a function that starts a parent and returns its search and the second trial's ticket; the first trial was good."""
    planned = plan(write(tmp_path, SEARCH.replace("{name: MedianPruner, n_startup_trials: 2}", request.param)))
    with closing(Store(tmp_path)) as store:

        def parent() -> tuple[Search, Trial]:
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
    """Until no trial can be claimed: then all searches that are not decided are read, because another parent may end one."""
    looked: list[str] = []
    over = Search.is_over.fget
    assert over is not None
    monkeypatch.setattr(Search, "is_over", property(lambda search: looked.append(search.cell.name) or over(search)))
    planned = plan(write(tmp_path, SEARCH.replace("trials: 8", "trials: 1").replace("[dense, no_wo]", "[dense, no_wo, wide]")))
    with Tracker(planned, root) as tracker, closing(Store(root)) as store:
        scheduler = Scheduler(planned, tracker, store, retry=())
        scheduler.open()
        looked.clear()
        first = scheduler.claim()
        assert first is not None and first.run.cell.name == "dense" and looked == []
        scheduler.record_end(first, Result(RunState.COMPLETED, {"valid_bits_per_byte": 1.0}))
        following = [claimed.run.name for _ in range(2) if (claimed := scheduler.claim())]
        assert following == ["no_wo t00", "wide t00"] and looked == ["dense"]
        following = [claimed.run.name for _ in range(2) if (claimed := scheduler.claim())]
        assert following == ["dense s100", "dense s101"] and looked == ["dense", *2 * ["no_wo", "wide"]]


def test_trials_come_first_and_confirming_runs_seed_by_seed(root: Path, tmp_path: Path) -> None:
    planned = plan(write(tmp_path, SEARCH.replace("trials: 8", "trials: 2").replace("[dense, no_wo]", "[dense, no_wo, wide]")))
    with Tracker(planned, root) as tracker, closing(Store(root)) as store:
        scheduler, started = Scheduler(planned, tracker, store, retry=()), []
        scheduler.open()
        while claimed := scheduler.claim():
            started.append(claimed.run.name)
            scheduler.record_end(claimed, Result(RunState.COMPLETED, {"valid_bits_per_byte": 1.0, "bits_per_byte": 1.0}))
    cells = ["dense", "no_wo", "wide"]
    trials = [f"{cell} t0{n}" for cell in cells for n in range(2)]
    longest_first = ["wide", "dense", "no_wo"]
    confirming = [*(f"{cell} s100" for cell in cells), *(f"{cell} s101" for cell in longest_first)]
    assert started == [*trials, *confirming]


def test_runs_are_claimed_seed_by_seed_in_whichever_order_they_were_queued(root: Path, tmp_path: Path) -> None:
    """An earlier call with `only` queued both seeds of one cell, of which it trained none."""
    path = write(tmp_path, STUDY)
    with closing(Store(root)) as store:
        for only in ({"variant": "no_wo"}, None):
            planned = plan(path, only=only)
            with Tracker(planned, root) as tracker:
                scheduler = Scheduler(planned, tracker, store, retry=())
                scheduler.open()
        started = [claimed.run.name for _ in range(7) if (claimed := scheduler.claim())]
    cells = ["dense", "no_wo", "strided_sparse stride=7"]
    assert started == [f"{cell} s{seed}" for seed in (3, 5) for cell in cells]


@pytest.mark.parametrize("sampler", ["RandomSampler", "QMCSampler", "{name: QMCSampler, scramble: true}", "TPESampler"])
def test_samplers_that_do_not_learn_try_the_same_values_in_every_cell(sampler: str, tmp_path: Path, store: Store) -> None:
    text = SEARCH.replace("{name: TPESampler, n_startup_trials: 3}", sampler).replace(
        "    model.feed_forward: {choices: [relu, gelu]}\n", ""
    )
    planned, tried = plan(write(tmp_path, text)), []
    for cell, better in zip(planned.cells, (1, -1), strict=True):
        search = Search(planned, cell, store)
        search.queue.enqueue(search.keys)
        values = []
        while claimed := search.claim():
            values.append(claimed[1].params)
            search.queue.tell(claimed[0], RunState.COMPLETED, better * values[-1]["train.lr"])
        tried.append(values)
    assert tried[0] == tried[1] and len({values["train.lr"] for values in tried[0]}) == 8
    again = plan(write(tmp_path, text), sets={"search.seed": 1})
    search = Search(again, again.cells[0], store)
    search.queue.enqueue(search.keys)
    claimed = search.claim()
    assert claimed is not None and claimed[1].params != tried[0][0]


def test_a_quasi_random_sequence_is_one_for_all_trials(tmp_path: Path, store: Store) -> None:
    """Scrambled, its values depend on a seed; after the first trial, any two of four in a row lie in different quarters."""
    search = searching(
        tmp_path,
        store,
        sampler={"name": "QMCSampler", "scramble": True},
        space={"model.dropout": {"low": 0.0, "high": 0.8}},
        trials=9,
    )
    values = []
    while claimed := search.claim():
        values.append(claimed[1].params["model.dropout"])
        search.queue.tell(claimed[0], RunState.COMPLETED, 1.0)
    assert (
        sorted(int(value / 0.2) for value in values[1:5]) == sorted(int(value / 0.2) for value in values[5:9]) == [0, 1, 2, 3]
    )


def test_a_failed_first_trial_of_a_quasi_random_search_is_not_repeated(tmp_path: Path, store: Store) -> None:
    search = searching(tmp_path, store, sampler={"name": "QMCSampler"})
    first = search.claim()
    assert first is not None
    search.queue.tell(first[0], RunState.FAILED, float("nan"))
    second = search.claim()
    assert second is not None and second[1].params["train.lr"] != first[1].params["train.lr"]


def test_a_pruned_trial_is_pruned_again_after_a_restart(begin: Begin) -> None:
    search, ticket = begin()
    assert search.should_stop(ticket, 10, {CURVE: 2.0}) is True
    search, again = begin()
    assert again.number == ticket.number and search.should_stop(again, 10, {CURVE: 2.0}) is True


def test_a_trial_whose_parent_died_before_it_judged_is_judged(begin: Begin) -> None:
    _, ticket = begin()
    ticket.report(2.0, 10)
    search, again = begin()
    assert search.should_stop(again, 10, {CURVE: 2.0}) is True


def test_past_reports_of_a_continued_trial_are_not_judged_again(begin: Begin) -> None:
    search, ticket = begin()
    assert search.should_stop(ticket, 10, {"train/loss": 2.0}) is None
    for step in (10, 20):
        ticket.report(2.0, step)
    search, again = begin()
    assert [search.should_stop(again, step, {CURVE: 2.0}) for step in (10, 20)] == [False, True]
