"""Chance levels, compared with simple predictors: none of those that lack the ability of a diagnostic may exceed them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from attnlab.registry import TASKS
from attnlab.tasks import IGNORED
from attnlab.tasks.diagnostics.addition import Addition
from attnlab.tasks.diagnostics.base import Diagnostic
from attnlab.tasks.diagnostics.flip_flop import WRITE, FlipFlop
from attnlab.tasks.diagnostics.mqar import Mqar

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


@pytest.mark.parametrize("options", [{}, {"pairs": 16}])
def test_the_order_of_queries_says_nothing_about_their_values(options: dict[str, int]) -> None:
    """The chance of `mqar` is exact: the value at no place of the row is likelier than the others at any query."""
    task = Mqar(**options)
    train, (inputs, targets) = drawn(task, 4_000, seed=1), drawn(task, 4_000, seed=2)
    scored = targets != IGNORED
    answers = dict(simple_predictions(train, (inputs, targets)))
    for predictor in ("place", "commonest", "latest"):
        accuracy = float((answers[predictor] == targets)[scored].mean())
        assert accuracy == pytest.approx(task.chance(), abs=4 * (task.chance() / scored.sum()) ** 0.5), predictor


@pytest.mark.parametrize("options", [{}, {"length": 32}, {"length": 64, "ignore": 0.9}, {"length": 34, "ignore": 0.5}])
def test_chance_of_flip_flop_is_that_of_the_commonest_written_bit(options: dict[str, float]) -> None:
    task = FlipFlop(**options)  # type: ignore[arg-type]
    inputs, targets = drawn(task, 20_000, seed=0)
    written = np.where(inputs[:, ::2] == WRITE, 2 * inputs[:, 1::2] - 1, 0).cumsum(axis=1)
    scored, register = targets[:, ::2] != IGNORED, 2 * targets[:, ::2] - 1
    right = np.where(written == 0, 0.5, np.sign(written) == register)[scored]
    assert right.mean() == pytest.approx(task.chance(), abs=4 * (0.25 / len(inputs)) ** 0.5)


@pytest.mark.parametrize("options", [{}, {"base": 3, "length": 17}, {"reverse": False}])
def test_chance_of_addition_is_that_of_the_digit_before(options: dict[str, Any]) -> None:
    """The best answer of each place of the sum, behind each digit of it."""
    task = Addition(**options)
    (learned, answers), (inputs, targets) = (drawn(task, 40_000, seed=seed) for seed in (1, 2))
    (places,) = np.nonzero((targets != IGNORED).any(axis=0))
    right = 0
    for i in places:
        counts = np.zeros((task.vocabulary, task.vocabulary))
        np.add.at(counts, (learned[:, i], answers[:, i]), answers[:, i] != IGNORED)
        right += (counts.argmax(axis=1)[inputs[:, i]] == targets[:, i])[targets[:, i] != IGNORED].sum()
    assert right / (targets != IGNORED).sum() == pytest.approx(task.chance(), abs=0.006)
    assert not task.chance_is_estimated
