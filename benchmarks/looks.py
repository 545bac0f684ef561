"""Simulated studies whose seeds are added until they are conclusive, or by hand, and judged each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy

from attnlab.stats.paired import LEVEL
from attnlab.stats.sequential import Looks
from benchmarks.simulate import CELLS, DISTRIBUTIONS, FAR, SKEWED, tables, unequal_tables
from benchmarks.simulation import COVERED, FALSE, Kind, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import t_tests

MARGIN = 2.0
LAST = 12
SEEDS = Quantity("seeds", "seeds per cell", Kind.NUMBER)
UNCORRECTED = "each look judged as if it were the only one"


@dataclass(frozen=True)
class Added:
    """Studies with added seeds.

    Attributes:
        noise: Distribution of the seeds.
        first, last: Numbers of seeds of the first and the last look.
        margin: All true differences equal it, and a verdict of equivalent is false; None: nothing differs, and a verdict of
            better or worse is false.
        corrected: False: each look is judged as if it were the only one.
        moderated: The comparisons of a table borrow from each other's variances.
        comparisons: Cells of the table without its baseline.
        spread: Key of `SPREADS`, for normal noise; else "equal".
        others: All cells but the first clearly differ from the baseline, or with a margin are equal to it, so that only a
            verdict on the first is false.
    """

    noise: str = "normal"
    first: int = 3
    last: int = LAST
    margin: float | None = None
    corrected: bool = True
    moderated: bool = False
    comparisons: int = CELLS
    spread: str = "equal"
    others: bool = False

    @property
    def truth(self) -> float:
        """The true difference of the first cell, and of all cells unless the others differ from it."""
        return self.margin or 0.0

    @property
    def null(self) -> slice:
        """The cells on which a verdict is false."""
        return slice(0, 1 if self.others else self.comparisons)

    def draw(self, studies: int, seed: int) -> numpy.ndarray:
        """Return the paired differences of the studies, shape (studies, comparisons, last)."""
        if self.spread == "equal":
            cells = tables(self.noise, self.last, studies=studies, seed=seed, comparisons=self.comparisons)
        else:
            cells = unequal_tables(self.spread, self.last, self.comparisons, studies=studies, seed=seed)
        cells += self.truth
        if self.others:
            cells[:, 1:] += FAR if self.margin is None else -self.margin
        return cells


def until_conclusive(design: Added, studies: int, seed: int) -> Mapping[str, Share | float]:
    """Simulate studies that add seeds as ``run --until-conclusive`` does: one to each cell whose verdict is open.

    Returns:
        The share of tables with a false verdict, that of 95 % intervals that contain the truth at the end, and the mean number
        of seeds per cell.
    """
    cells = design.draw(studies, seed)
    counts = numpy.full(cells.shape[:2], design.first)
    options: dict[str, Any] = {
        "margin": design.margin,
        "looks": Looks(design.first, design.last) if design.corrected else None,
        "moderated": design.moderated,
    }
    active = numpy.arange(studies)
    while len(active):
        tests = t_tests(cells[active], counts=counts[active], **options)
        undecided = ~(tests.differs | tests.within_margin) & (counts[active] < design.last)
        counts[active] += undecided
        active = active[undecided.any(1)]
    tests = t_tests(cells, counts=counts, **options)
    false = tests.differs if design.margin is None else tests.within_margin
    return {
        "false": Share(false[:, design.null].any(1).sum(), studies),
        "covered": Share(tests.covers(design.truth)[:, 0].sum(), studies),
        "seeds": float(counts.mean()),
    }


def added_by_hand(design: Added, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate studies whose seeds are added by hand: to every cell, one at a time, judged each time.

    Nothing is announced, so each look is corrected only for those before it.

    Returns:
        The share of tables with a false verdict at any look, and that of 95 % intervals that contain the truth at all looks.
    """
    cells = design.draw(studies, seed)
    false, covered = numpy.zeros(studies, dtype=bool), numpy.ones(studies, dtype=bool)
    for n in range(design.first, design.last + 1):
        looks = Looks(design.first, design.first, tuple(range(design.first + 1, n + 1))) if design.corrected else None
        tests = t_tests(cells[..., :n], margin=design.margin, looks=looks, moderated=design.moderated)
        verdicts = tests.differs if design.margin is None else tests.within_margin
        false |= verdicts[:, design.null].any(1)
        covered &= tests.covers(design.truth)[:, 0]
    return {"false": Share(false.sum(), studies), "covered": Share(covered.sum(), studies)}


def _setting(design: Added, simulate: Any) -> Setting:
    group = f"{design.noise}{'' if design.margin is None else ', at the margin'}{', moderated' if design.moderated else ''}"
    name = f"{design.first} to {design.last} seeds{'' if design.corrected else ', not corrected'}"
    reason = SKEWED.get(design.noise, "") if design.corrected else UNCORRECTED
    return Setting(group, name, partial(simulate, design), reason)


UNTIL_CONCLUSIVE = Simulation(
    "until-conclusive",
    "Seeds added until conclusive",
    f"""\
`attnlab run --until-conclusive --max-seeds {LAST}`: a look at each number of seeds, and one more seed for each inconclusive
cell. With 3 to {LAST} seeds, each t-test is at {2 * Looks(3, LAST).nominal_level(LEVEL / 2):.2%} (Pocock 1977, calibrated for
t-statistics). A verdict of better or worse is false where nothing differs, a verdict of equivalent where the true difference
is the margin, at any look; coverage is that of the intervals at the last look.""",
    settings=[
        _setting(Added(), until_conclusive),
        _setting(Added(first=5), until_conclusive),
        _setting(Added(corrected=False), until_conclusive),
        *(_setting(Added(noise), until_conclusive) for noise in DISTRIBUTIONS if noise != "normal"),
        _setting(Added(margin=MARGIN), until_conclusive),
        _setting(Added(margin=MARGIN, corrected=False), until_conclusive),
        _setting(Added("t3", margin=MARGIN), until_conclusive),
    ],
    quantities=(FALSE, COVERED, SEEDS),
)

BY_HAND = Simulation(
    "by-hand",
    "Seeds added by hand",
    """\
A person runs a few seeds, reads the table, adds a seed to every cell, and so on; nothing is announced. The first look is a test
at 5 %, the k-th further look one at 5 % / 2^(k + 2). A verdict counts as false if it is at any look, and an
interval as correct if it contains the true difference at all looks.""",
    settings=[
        _setting(design, added_by_hand)
        for design in (
            Added(first=5),
            Added(first=2),
            Added(first=5, corrected=False),
            Added(first=5, moderated=True),
            Added(first=3, last=20, moderated=True),
            Added("t3", first=5),
            Added(first=5, margin=MARGIN),
        )
    ],
    quantities=(replace(FALSE, limit=0.06), COVERED),
    conclusion="""\
Announced looks cost less: 5 % is then shared by all of them, and none is a test at the full level.""",
)
