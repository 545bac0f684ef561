"""Chance levels, compared with simple predictors: none of those that lack the ability of a diagnostic may exceed them."""

from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from attnlab.registry import TASKS
from attnlab.tasks import IGNORED
from attnlab.tasks.diagnostics.addition import Addition
from attnlab.tasks.diagnostics.base import Diagnostic
from attnlab.tasks.diagnostics.flip_flop import IGNORE, WRITE, FlipFlop, SparseFlipFlop
from attnlab.tasks.diagnostics.indirect_index import IndirectIndex
from attnlab.tasks.diagnostics.induction import Induction
from attnlab.tasks.diagnostics.k_hop import KHop
from attnlab.tasks.diagnostics.mqar import Mqar, StackedMqar
from attnlab.tasks.diagnostics.state_recall import StateRecall

NAMES = [name for name in TASKS.names() if issubclass(TASKS.get(name), Diagnostic)]
# Predictors that are the ability itself: all symbols of `compression` lie at known places, and `memorisation` is a mapping
# from one token to another.
AT_PLACES = {"place", "before", "commonest", "latest", "votes", "sharp votes"}
ABILITIES = {"compression": AT_PLACES, "memorisation": {"before"}}
Rows = tuple[np.ndarray, np.ndarray]


def drawn(task: Diagnostic, count: int, *, seed: int) -> Rows:
    inputs, targets = task.draw(np.random.default_rng(seed), count)
    targets = task.evaluated_targets(inputs, targets)
    kept = (targets != IGNORED).any(axis=1)
    return inputs[kept], targets[kept]


def simple_predictions(train: Rows, test: Rows) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of each simple predictor, and its answers (count, length) at the positions that are scored.

    They answer the commonest target of the position ("position"), or behind the tokens that are read last ("token" and
    "before"); the token at the place that most often holds the target ("place"); of the tokens so far that can be targets, the
    commonest one and the latest one; and the token with the most votes, of which each place has as many as its share of
    targets ("votes"), or the fourth power of it ("sharp votes").
    """
    (inputs, targets), (shown, _) = train, test
    scored, size = targets != IGNORED, 1 + max(int(inputs.max()), int(targets.max()), int(shown.max()))
    votes = {"votes": 1, "sharp votes": 4}
    names = ("position", "token", "before", "place", "commonest", "latest", *votes)
    answers = {name: np.full(shown.shape, -2) for name in names}
    before, shown_before = (np.roll(rows, 1, axis=1) for rows in (inputs, shown))
    for name, keys, of_test in (("token", inputs, shown), ("before", before, shown_before)):
        counts = np.zeros((size, size))
        np.add.at(counts, (keys[scored], targets[scored]), 1)
        answers[name][:] = counts.argmax(axis=1)[of_test]
    can_be_target = np.isin(np.arange(size), targets[scored])
    counts, latest = np.zeros((len(shown), size)), np.full(len(shown), -2)
    for i in range(shown.shape[1]):
        np.add.at(counts, (np.arange(len(shown)), shown[:, i]), can_be_target[shown[:, i]])
        latest = np.where(can_be_target[shown[:, i]], shown[:, i], latest)
        answers["commonest"][:, i], answers["latest"][:, i] = counts.argmax(axis=1), latest
        if scored[:, i].any():
            rows = scored[:, i]
            answers["position"][:, i] = np.bincount(targets[rows, i]).argmax()
            share = (inputs[rows, : i + 1] == targets[rows, i, None]).mean(axis=0)
            answers["place"][:, i] = shown[:, share.argmax()]
            for name, power in votes.items():
                box = np.zeros((len(shown), size))
                for place in range(i + 1):
                    box[np.arange(len(shown)), shown[:, place]] += share[place] ** power
                answers[name][:, i] = np.where(can_be_target, box, -1).argmax(axis=1)
    yield from answers.items()


@pytest.mark.parametrize("level", ["default", "easiest"])
@pytest.mark.parametrize("name", NAMES)
def test_no_simple_predictor_exceeds_chance(name: str, level: str) -> None:
    cls = TASKS.get(name)
    task = cls(**cls.levels[0]) if level == "easiest" else cls()
    train, (inputs, targets) = drawn(task, 2_000, seed=1), drawn(task, 1_500, seed=2)
    scored, chance = targets != IGNORED, task.chance()
    deviation = (chance * (1 - chance) / len(inputs)) ** 0.5  # of rows whose targets are all right or all wrong
    for predictor, answers in simple_predictions(train, (inputs, targets)):
        if predictor not in ABILITIES.get(name, ()):
            accuracy = float((answers == targets)[scored].mean())
            assert accuracy <= chance + 3 * deviation, predictor


@pytest.mark.parametrize("task", [Mqar(), Mqar(pairs=16)])
def test_the_order_of_queries_says_nothing_about_their_values(task: Mqar) -> None:
    """The chance of `mqar` is exact: the value at no place of the row is likelier than the others at any query."""
    train, (inputs, targets) = drawn(task, 4_000, seed=1), drawn(task, 4_000, seed=2)
    scored = targets != IGNORED
    answers = dict(simple_predictions(train, (inputs, targets)))
    for predictor in ("place", "commonest", "latest"):
        accuracy = float((answers[predictor] == targets)[scored].mean())
        assert accuracy == pytest.approx(task.chance(), abs=4 * (task.chance() / scored.sum()) ** 0.5), predictor


@pytest.mark.parametrize("options", [{}, {"length": 32}, {"length": 64, "ignore": 0.9}, {"length": 16, "ignore": 0.5}])
def test_chance_of_flip_flop_is_that_of_the_commonest_written_bit(options: dict[str, float]) -> None:
    task = FlipFlop(**options)  # type: ignore[arg-type]
    inputs, targets = drawn(task, 20_000, seed=0)
    written = np.where(inputs[:, ::2] == WRITE, 2 * inputs[:, 1::2] - 1, 0).cumsum(axis=1)
    scored, register = targets[:, ::2] != IGNORED, 2 * targets[:, ::2] - 1
    right = np.where(written == 0, 0.5, np.sign(written) == register)[scored]
    assert right.mean() == pytest.approx(task.chance(), abs=4 * (0.25 / len(inputs)) ** 0.5)


@pytest.mark.parametrize("ignore", [0.0, 0.1, 0.5, 0.65])
def test_chance_of_flip_flop_with_few_bits_to_ignore_is_that_of_the_latest_bits(ignore: float) -> None:
    """The best answer behind each string of the last ten bits, counted."""
    task, size = FlipFlop(length=64, ignore=ignore), 10
    counts = np.zeros((2, 2, 1 << size))  # rows to learn from and others, register, bits
    for part in (0, 1):
        inputs, targets = drawn(task, 60_000, seed=part)
        bits, register = inputs[:, 1::2], targets[:, ::2]
        latest = np.sum([np.roll(bits, 1 + age, axis=1) << age for age in range(size)], axis=0)
        scored = register != IGNORED
        np.add.at(counts[part], (register[scored], latest[scored]), 1)
    learned, others = counts
    right = np.take_along_axis(others, learned.argmax(axis=0)[None], axis=0).sum() / others.sum()
    assert right == pytest.approx(task.chance(), abs=0.008)


@pytest.mark.parametrize("options", [{"items": 8, "reach": 1, "symbols": 16}, {}, {"items": 5, "reach": 4}])
def test_chance_of_indirect_index_is_that_of_another_symbol_with_a_neighbor(options: dict[str, int]) -> None:
    task = IndirectIndex(**options)
    inputs, targets = drawn(task, 4_000, seed=0)
    right = []
    for query in np.argwhere(targets != IGNORED):
        row = inputs[query[0]].tolist()
        number, given = row[query[1] - 1] - task.symbols, row[query[1]]
        to_right, distance = number >= task.reach, 1 + number % task.reach
        able = row[distance : task.items] if to_right else row[: task.items - distance]
        right.append(1 / len([symbol for symbol in able if symbol != given]))
    assert np.mean(right) == pytest.approx(task.chance(), abs=4 * (0.1 / len(right)) ** 0.5)


def test_chance_of_induction_is_that_of_the_commonest_symbol_behind_another_token() -> None:
    task = Induction(length=16)
    inputs, targets = drawn(task, 200_000, seed=0)
    counts = np.stack([(inputs[:, 1:-1] == symbol).sum(axis=1) for symbol in range(1, task.vocabulary)], axis=1)
    right = 1 + counts.argmax(axis=1) == targets[:, -1]
    assert right.mean() == pytest.approx(task.chance(), abs=4 * (0.2 / len(inputs)) ** 0.5)


@pytest.mark.parametrize(
    "options", [{}, {"length": 8}, {"base": 3, "length": 17}, {"reverse": False}, {"length": 8, "reverse": False}]
)
def test_chance_of_addition_is_that_of_the_two_digits_before(options: dict[str, Any]) -> None:
    """The best answer of each place of the sum, behind each pair of digits of it."""
    task = Addition(**options)
    (learned, answers), (inputs, targets) = (drawn(task, 40_000, seed=seed) for seed in (1, 2))
    (places,) = np.nonzero((targets != IGNORED).any(axis=0))
    right = 0
    for i in places:
        counts = np.zeros((task.vocabulary,) * 3)
        np.add.at(counts, (learned[:, i - 1], learned[:, i], answers[:, i]), answers[:, i] != IGNORED)
        right += (counts.argmax(axis=2)[inputs[:, i - 1], inputs[:, i]] == targets[:, i])[targets[:, i] != IGNORED].sum()
    assert right / (targets != IGNORED).sum() == pytest.approx(task.chance(), abs=0.006)
    assert not task.chance_is_estimated


@pytest.mark.parametrize("task", [StackedMqar(), StackedMqar(pairs=5, keys=6)])
def test_the_order_of_queries_says_nothing_about_stacked_pairs(task: StackedMqar) -> None:
    """The query at each place asks for the pair at each place equally often, so that chance is exact."""
    inputs, targets = drawn(task, 20_000, seed=1)
    values = (inputs[:, : task.pairs] - 2 * task.keys) % task.keys
    places = (targets[:, task.pairs :, None] == values[:, None]).mean(axis=0)
    assert places == pytest.approx(np.full_like(places, task.chance()), abs=5 * (task.chance() / len(inputs)) ** 0.5)


@pytest.mark.parametrize(("nodes", "hops"), [(5, 1), (5, 3), (6, 2)])
def test_chance_of_hops_is_that_of_all_cycles(nodes: int, hops: int) -> None:
    """Of all cycles with the same first hops but one from a node, the share that ends at the commonest node."""
    cycles = [(0, *rest) for rest in permutations(range(1, nodes))]
    ends = Counter((cycle[:hops], cycle[hops]) for cycle in cycles)
    right = sum(max(n for (path, _), n in ends.items() if path == own) for own in {path for path, _ in ends})
    assert right / len(cycles) == pytest.approx(KHop(nodes=nodes, hops=hops).chance())
    inputs, targets = drawn(KHop(nodes=nodes, hops=hops, symbols=nodes), 20_000, seed=3)
    for query in np.argwhere(targets != IGNORED)[:2_000]:  # no node that fewer hops reach
        row = inputs[query[0]].tolist()
        successor, node = dict(zip(row[: 2 * nodes : 2], row[1 : 2 * nodes : 2], strict=True)), row[query[1]]
        path = [node]
        for _ in range(hops - 1):
            path.append(successor[path[-1]])
        assert targets[tuple(query)] not in path


@pytest.mark.parametrize("options", [{}, {"bits": 8, "pointers": 3, "length": 19}, {"bits": 9, "pointers": 4, "length": 21}])
def test_chance_of_state_recall_is_that_of_the_last_swap(options: dict[str, int]) -> None:
    """The best answer for each place of the last swap, bit of its partner, and number of ones under the other pointers."""
    task = StateRecall(**options)
    counts = Counter[tuple[tuple[int, int, int], int]]()
    inputs, targets = drawn(task, 8_000 * task.swaps, seed=4)
    for row, answers in zip(inputs.tolist(), targets.tolist(), strict=True):
        bits = [token % 2 for token in row[: task.bits]]
        first = [bits[token % task.bits] for token in np.array(row[task.bits : task.bits + task.pointers]) - task.first_pointer]
        swaps = [set(task.pairs[token - task.first_swap]) for token in row[1 + task.bits + task.pointers : -task.pointers]]
        for query, answer in zip(row[-task.pointers :], answers[-task.pointers :], strict=True):
            if answer != IGNORED:
                pointer = query - task.first_query
                place = max(i for i, swap in enumerate(swaps) if pointer in swap)
                (partner,) = swaps[place] - {pointer}
                others = sum(first) - first[pointer] - first[partner]
                counts[(place, first[partner], others), answer] += 1
    best = {known: max(counts[known, 0], counts[known, 1]) for known, _ in counts}
    total = sum(counts.values())
    assert sum(best.values()) / total == pytest.approx(task.chance(), abs=4 * (0.25 / len(inputs)) ** 0.5)


def test_a_sparse_test_raises_chance_and_leaves_training_as_it_is() -> None:
    task = SparseFlipFlop(length=64, ignore=0.6, test_ignore=0.9)
    assert task.chance() == FlipFlop(length=64, ignore=0.9).chance() > FlipFlop(length=64, ignore=0.6).chance()
    shares = {split: (task.rows(split, 500)[0][:, 2:-2:2] == IGNORE).mean() for split in ("train", "valid", "test")}
    assert shares == pytest.approx({"train": 0.6, "valid": 0.6, "test": 0.9}, abs=0.02)
