"""Tests of the history of looks: which tables are looks, which comparisons they count for, and which are forgotten."""

from dataclasses import replace

from attnlab.stats.compare import CellSummary, ComparisonSpec, summarize_cells
from attnlab.stats.look_history import LookHistory
from attnlab.stats.sequential import Looks
from tests.support.specs import changed, comparison_spec

SPEC = comparison_spec("s", ("variant",), "loss", "min", {"variant": "dense"})
NOISE = (0.8, -1.1, 0.2, 0.9, -0.7, -0.1, 0.4, -0.3)


def cells(**seeds: int) -> list[CellSummary]:
    """Return the summaries of cells with so many completed seeds each."""
    gaps = {"dense": 0.0}
    runs = [
        {"variant": name, "seed": i, "state": "completed", "loss": 2 + i + gaps.get(name, 1 + NOISE[i])}
        for name, number in seeds.items()
        for i in range(number)
    ]
    return summarize_cells(runs, SPEC)


def judged(*tables: list[CellSummary]) -> LookHistory:
    history = LookHistory()
    for time, table in enumerate(tables, 1):
        history = history.add(table, time=time)
    return history


def test_a_larger_number_of_seeds_is_a_look_and_the_same_or_a_smaller_one_is_none() -> None:
    history = judged(cells(dense=5, a=5), cells(dense=5, a=5), cells(dense=8, a=8), cells(dense=3, a=3))
    assert history.study == ((5, 1), (8, 3)) and history.looks == Looks(5, 5, (8,)) and history.latest == 8
    assert not history.own and history.apply(SPEC) == changed(SPEC, looks=Looks(5, 5, (8,)))


def test_a_table_without_two_pairs_is_no_look() -> None:
    assert judged(cells(dense=1, a=1), cells(dense=4), cells(dense=4, a=1)) == LookHistory()
    assert LookHistory().looks is None and LookHistory().latest == 0


def test_a_comparison_with_fewer_pairs_than_seeds_has_looks_of_its_own() -> None:
    both = judged(cells(dense=5, a=5, b=4))
    assert both.looks == Looks(5, 5) and both.apply(SPEC).own_looks == {"b against dense": Looks(4, 4)}
    caught_up = both.add(cells(dense=5, a=5, b=5), time=2)
    assert caught_up.looks == Looks(5, 5), "the study has no more seeds"
    assert caught_up.apply(SPEC).own_looks == {"b against dense": Looks(4, 4, (5,))}, "but this comparison has"
    later = both.add(cells(dense=8, a=8, b=7, c=6), time=3).apply(SPEC)
    assert later.looks == Looks(5, 5, (8,))
    assert later.own_looks["b against dense"] == Looks(4, 4, (7,))
    assert later.own_looks["c against dense"] == Looks(5, 5, (6,)), "all looks at a study count for all of its comparisons"

    table = {cell.name: cell.difference for cell in summarize_again(later, dense=8, a=8, b=7)}
    assert table["a"] and table["b"] and (table["a"].looks, table["b"].looks) == (later.looks, Looks(4, 4, (7,)))


def summarize_again(spec: ComparisonSpec, **seeds: int) -> list[CellSummary]:
    runs = [
        {"variant": name, "seed": i, "state": "completed", "loss": 2 + i + (name != "dense") * (1 + NOISE[i])}
        for name, number in seeds.items()
        for i in range(number)
    ]
    return summarize_cells(runs, spec)


def test_looks_can_be_announced_only_before_the_first_one() -> None:
    announced = LookHistory().announce(3, 6, time=1)
    assert announced.looks == Looks(3, 6) and announced.latest == 6
    assert announced.add(cells(dense=5, a=5, b=4), time=2) == announced, "it was announced"
    beyond = announced.add(cells(dense=8, a=8, b=6, c=7), time=3)
    assert beyond.looks == Looks(3, 6, (8,)) and beyond.apply(SPEC).own_looks == {"c against dense": Looks(3, 6, (7,))}
    assert announced.announce(3, 12, time=4) == announced
    by_hand = judged(cells(dense=3, a=3))
    assert by_hand.announce(3, 12, time=4) == by_hand


def test_a_look_is_forgotten_when_all_runs_are_newer() -> None:
    history = judged(cells(dense=5, a=5, b=4), cells(dense=8, a=8, b=8))
    assert history.since(0) == history
    assert history.since(1).looks == Looks(8, 8) and history.since(1).own == {"b against dense": ((8, 2),)}
    assert history.since(2) == LookHistory() == history.since(None)
    assert LookHistory().announce(3, 6, time=5).since(4).looks == Looks(3, 6)
    assert LookHistory().announce(3, 6, time=5).since(5).looks is None
    changed_back = LookHistory(study=((5, 1), (3, 2), (8, 3)))  # the second look was at runs of another configuration
    assert changed_back.since(0).looks == Looks(5, 5, (8,)) and changed_back.since(1).looks == Looks(3, 3, (8,))


def test_a_table_of_effects_is_a_look_without_a_baseline() -> None:
    alone = [replace(cell, difference=None, baseline="", verdict=None) for cell in cells(dense=3, a=3)]
    assert LookHistory().add(alone, time=1) == LookHistory()
    assert LookHistory().add(alone, time=1, effects=True).looks == Looks(3, 3)
    single = [replace(cell, difference=None, baseline="", verdict=None) for cell in cells(dense=1, a=1)]
    assert LookHistory().add(single, time=1, effects=True) == LookHistory()
