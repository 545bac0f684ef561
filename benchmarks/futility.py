"""Futility stopping in studies that add seeds until they are conclusive: false verdicts, power, and seeds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy

from attnlab.stats.predict import FUTILITY, MIN_PAIRS, find_futility
from attnlab.stats.sequential import Looks
from benchmarks.simulate import judge
from benchmarks.simulation import Kind, Quantity, Setting, Share, Simulation

FIRST, LAST = 3, 12
CASES = ((0.0, None), (0.0, 0.5), (0.0, 1.0), (0.0, 2.0), (0.5, None), (1.0, None), (1.0, 0.5), (1.5, None), (2.0, None))
RULES = {"all seeds": 0.0, f"futile below {100 * FUTILITY:g} %": FUTILITY}


def added_seeds(mean: float, margin: float | None, below: float, studies: int, seed: int) -> Mapping[str, Share | float]:
    """Simulate studies of one comparison, judged at each number of seeds from `FIRST` to `LAST`.

    Args:
        mean: True difference, in standard deviations of the pairs' differences.
        margin: In the same unit; None: no verdict of equivalent.
        below: Studies with a smaller probability of a verdict at `LAST` seeds stop; 0: none.
        studies: Number of studies.
        seed: Random seed.
    """
    looks, false, right, stopped, seeds = Looks(FIRST, LAST), 0, 0, 0, 0
    for values in numpy.random.RandomState(seed).normal(mean, 1, (studies, LAST)).tolist():
        for n in range(FIRST, LAST + 1):
            (difference,) = judge([values[:n]], margin=margin, looks=looks)
            futile = find_futility(difference, LAST, below=below)
            if difference.conclusion or futile:
                break
        seeds += n
        stopped += bool(futile and not difference.conclusion)
        equal = margin is not None and abs(mean) < margin
        false += difference.conclusion in (("lower", "higher") if mean == 0 else ("lower",))
        false += difference.conclusion == "equivalent" and not equal
        right += (difference.conclusion == "higher" and mean > 0) or (difference.conclusion == "equivalent" and equal)
    shares = {"false": Share(false, studies), "right": Share(right, studies), "stopped": Share(stopped, studies)}
    return {**shares, "seeds": seeds / studies}


def _case(mean: float, margin: float | None) -> str:
    return f"difference {mean:g}, {'no margin' if margin is None else f'margin {margin:g}'}"


FUTILITY_STOPPING = Simulation(
    "futility",
    "Futility stopping",
    f"""\
Studies of one comparison that start with {FIRST} seeds and add one at a time up to {LAST}, until the verdict is
conclusive. With futility stopping, from {MIN_PAIRS} seeds on, a comparison gets no more seeds if its verdict would be
conclusive with {LAST} seeds with a probability below {100 * FUTILITY:g} %. Differences and margins are in standard
deviations of the pairs' differences. The table has the mean number of seeds.""",
    settings=[
        Setting(_case(*case), rule, partial(added_seeds, *case, below)) for case in CASES for rule, below in RULES.items()
    ],
    quantities=(
        Quantity("false", "false verdicts", level=0.05, limit=0.06),
        Quantity("right", "right verdicts", Kind.POWER),
        Quantity("stopped", "stopped for futility", Kind.POWER),
        Quantity("seeds", "mean number of seeds", Kind.NUMBER),
    ),
    studies=4_000,
    conclusion="""\
Where two cells do not differ and no margin can be reached, futility stopping halves the seeds. Where the margin can be reached,
it saves few, because such a study ends with a verdict of equivalent.""",
)
