"""Simulated tables with moderated t-tests (`attnlab.stats.joint`) whose runs differ in spread or are not all paired.

All cells of a table share their baseline, and the standard deviation of a run is 1 where nothing else is stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy

from benchmarks.looks import SEEDS, Added, added_by_hand, until_conclusive
from benchmarks.simulate import FAR, SPREADS, TWIN, odd_cells, unequal_tables
from benchmarks.simulation import COVERED, FALSE, POWER, Kind, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import t_tests

EFFECT = 3.0  # true difference of the last cell in the lines on power, in standard deviations of its pairs
MARGIN = 6.0  # in standard deviations of a run
OTHERS = ", others differ"
ODD = ("one cell x2", "one cell x4", "one unpaired", TWIN)  # spreads in which the first cell is unlike the others
SEVERAL = ("two cells x4", "two unpaired", "three cells x4", "three unpaired", "half of the cells x4")
MANY = "three or more cells that scatter four times as much as the others, or are not paired"


def moderated_tables(spread: str, seeds: int, comparisons: int, others: bool, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate tables of a fixed number of seeds.

    Args:
        spread: Key of `SPREADS`.
        seeds, comparisons: Size of a table.
        others: All cells that are not odd differ by far from the baseline; else none does. In the lines on equivalence, they
            then equal the baseline, and only the odd ones differ by the margin; else all do.
        studies: Number of tables.
        seed: Random seed.
    """
    differences = unequal_tables(spread, seeds, comparisons, studies=studies, seed=seed)
    truth, at_margin = numpy.zeros((comparisons, 1)), numpy.full((comparisons, 1), MARGIN)
    if others:
        odd = odd_cells(spread, comparisons)
        truth[odd:], at_margin[odd:] = FAR, 0.0
    null = slice(0, odd_cells(spread, comparisons) if others else comparisons)
    shifted = differences + truth
    shifted[:, -1] += EFFECT * differences[:, -1].std()
    tests, found = t_tests(differences + truth, moderated=True), t_tests(shifted, moderated=True)
    equivalent = t_tests(differences + at_margin, moderated=True, margin=MARGIN)
    return {
        "false": Share(tests.differs[:, null].any(1).sum(), studies),
        "false equivalence": Share(equivalent.within_margin[:, null].any(1).sum(), studies),
        "covered": Share(tests.covers(0)[:, 0].sum(), studies),  # of the first cell, which scatters most
        "power": Share(found.differs[:, -1].sum(), studies),
        "false, table alone": Share(tests.differs_in_table[:, null].any(1).sum(), studies),
        "power, table alone": Share(found.differs_in_table[:, -1].sum(), studies),
        "power, plain": Share(t_tests(shifted).differs[:, -1].sum(), studies),
    }


def _setting(spread: str, seeds: int, comparisons: int, others: bool) -> Setting:
    name = spread + (OTHERS if others else "")
    run = partial(moderated_tables, spread, seeds, comparisons, others)
    return Setting(f"{seeds} seeds, {comparisons} comparisons", name, run, MANY if odd_cells(spread, comparisons) > 2 else "")


MODERATION = Simulation(
    "moderation",
    "Moderated t-tests",
    f"""\
In the test of a table with at least three comparisons, the variance of each is averaged with the mean of all that scatter
alike (`attnlab.stats.joint`); a verdict also needs the t-test of the comparison alone, whose p-value counts twice. The standard
deviation of a run is 1, except for 2 or 4 in the runs of the baseline or of odd cells. Runs of one seed have nothing in common,
except in “unpaired”: there, all cells but the odd ones share 90 % of their variance with the baseline, so that the unpaired
ones have ten times the variance of the others. One, two, three or half of the cells are odd. Nothing differs, or all other
cells differ by far (“others differ”): Holm's method no longer counts them, and a verdict on an odd cell is false. False
equivalence: the true difference is the margin, in all cells or only in the odd ones. Coverage is that of the interval of the
first cell. Power: one cell truly differs by {EFFECT:g} standard deviations of its pairs. “Table alone”: without the t-test of
each comparison alone, as attnlab judged until version 0.8. “Plain”: with that test only, corrected by Holm's method
(`moderate: false`).""",
    settings=[
        _setting(spread, seeds, comparisons, others)
        for seeds in (2, 3, 5, 10)
        for comparisons in (3, 6, 12)
        for others in (False, True)
        for spread in (*(ODD if others else [spread for spread in SPREADS if spread not in SEVERAL]), *SEVERAL)
        if spread not in SEVERAL or comparisons > (6 if spread.startswith("three") else 3)
    ],
    quantities=(
        FALSE,
        Quantity("false equivalence", "false verdicts of equivalent", level=0.05, limit=0.06),
        replace(COVERED, limit=0.94),
        POWER,
        Quantity("false, table alone", "false verdicts of the table's test alone"),
        Quantity("power, table alone", "true differences found by the table's test alone", Kind.POWER),
        Quantity("power, plain", "true differences found by plain t-tests", Kind.POWER),
    ),
    conclusion="""\
The table's test alone makes up to four times as many false verdicts as promised if a cell scatters more than the others, or is
not paired, and the others really differ. If the p-value of the comparison alone counted once, 9 % of tables with two odd cells
and 14 % with three of twelve had a false verdict; the price of counting it twice is power with few seeds (3 seeds, equal
spreads, 3, 6 and 12 comparisons: 50, 49 and 47 % instead of 66, 71 and 63 %; 5 seeds and 2 standard deviations: 78, 76 and
68 % instead of 87, 80 and 68 %). A cell that scatters much more than the others lends them nothing: beside one unpaired cell,
59, 70 and 64 % are found with 5 seeds, instead of 50, 50 and 48 %.""",
    hard={
        "the others differ, one cell scatters 2 or 4 times as much": ("false", "one cell x", "others differ"),
        "the others differ, one cell is not paired": ("false", "one unpaired", "others differ"),
        "the others differ, two cells scatter 4 times as much, or are not paired": ("false", "two ", "others differ"),
        "the same, three of twelve": ("false", "three ", "others differ"),
        "the same, half of the cells": ("false", "half ", "others differ"),
        "the others differ, equivalence of such a cell": ("false equivalence", "others differ"),
    },
)


def _looks_setting(design: Added, *, by_hand: bool = False) -> Setting:
    spread = f", {design.spread}{OTHERS if design.others else ''}" if design.spread != "equal" else ""
    how = ", by hand" if by_hand else ""
    group = f"{design.noise}{'' if design.margin is None else ', at the margin'}{spread}{how}"
    name = f"{design.first} to {design.last} seeds, {design.comparisons}"
    return Setting(group, name, partial(_by_hand if by_hand else until_conclusive, design))


def _by_hand(design: Added, studies: int, seed: int) -> Mapping[str, Share | float]:
    return {**added_by_hand(design, studies, seed), "seeds": float(design.last)}


UNTIL_CONCLUSIVE = [
    *(
        Added(first=first, last=last, moderated=True, comparisons=comparisons, spread=spread, others=others)
        for spread, others in (("equal", False), ("one cell x2", False), *((odd, True) for odd in ODD))
        for first, last in ((2, 12), (3, 12), (3, 20), (5, 30))
        for comparisons in ((3, 6) if not others else (6,))
    ),
    Added("t3", first=3, last=20, moderated=True),
    Added(first=3, last=12, moderated=True, margin=2.0),
    Added(first=3, last=20, moderated=True, margin=2.0),
    *(Added(first=3, last=12, moderated=True, margin=MARGIN, spread=odd, others=True, comparisons=6) for odd in ODD),
]
ADDED_BY_HAND = [
    Added(first=first, last=12, moderated=True, comparisons=6, spread=spread, others=others, margin=margin)
    for spread, others, margin in (("equal", False, None), *((odd, True, margin) for odd in ODD for margin in (None, MARGIN)))
    for first in (2, 3)
]

MODERATED_LOOKS = Simulation(
    "moderated-looks",
    "Seeds added until conclusive, or by hand, with moderated t-tests",
    """\
As above, with a look at each number of seeds: one more seed for each inconclusive cell, or by hand for every cell. The levels
of the looks are those of plain t-statistics. The last number is that of the comparisons. If others differ, only verdicts on the
first cell are false.""",
    settings=[
        *(_looks_setting(design) for design in UNTIL_CONCLUSIVE),
        *(_looks_setting(design, by_hand=True) for design in ADDED_BY_HAND),
    ],
    quantities=(FALSE, COVERED, SEEDS),
    hard={"the same, seeds added until conclusive or by hand": ("false", "others differ")},
)
