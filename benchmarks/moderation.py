"""Simulated tables with moderated t-tests (`attnlab.stats.moderation`) whose runs differ in spread.

All cells of a table share their baseline, and the standard deviation of a run is 1 where nothing else is stated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy

from benchmarks.looks import SEEDS, Added, until_conclusive
from benchmarks.simulation import COVERED, FALSE, POWER, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import t_tests

# Name -> standard deviation of the runs of the baseline, and of the first cell.
SPREADS: dict[str, tuple[float, float]] = {
    "equal": (1, 1),
    "baseline x2": (2, 1),
    "one cell x2": (1, 2),
    "baseline x4": (4, 1),
    "one cell x4": (1, 4),
}
FACTOR_FOUR = "standard deviations that differ by a factor of 4"
EFFECT = 3.0  # true difference of the last cell in the lines on power, in standard deviations of its pairs


def draw(spread: str, seeds: int, comparisons: int, *, studies: int, seed: int) -> numpy.ndarray:
    """Return paired differences without a true one, shape (studies, comparisons, seeds)."""
    random = numpy.random.RandomState(seed)
    baseline, first = SPREADS[spread]
    cells = random.standard_normal((studies, comparisons, seeds))
    cells[:, 0] *= first
    return cells - baseline * random.standard_normal((studies, 1, seeds))


def moderated_tables(spread: str, seeds: int, comparisons: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate tables of a fixed number of seeds, with moderated t-tests and with those of each comparison alone."""
    differences = draw(spread, seeds, comparisons, studies=studies, seed=seed)
    shifted = differences.copy()
    shifted[:, -1] += EFFECT * math.sqrt(1 + SPREADS[spread][0] ** 2)
    moderated, plain = (t_tests(differences, moderated=moderated) for moderated in (True, False))
    return {
        "false": Share(moderated.differs.any(1).sum(), studies),
        "covered": Share(moderated.covers(0)[:, 0].sum(), studies),  # of the first cell, which scatters most
        "power": Share(t_tests(shifted, moderated=True).differs[:, -1].sum(), studies),
        "false, plain": Share(plain.differs.any(1).sum(), studies),
        "power, plain": Share(t_tests(shifted).differs[:, -1].sum(), studies),
    }


def _looks_setting(design: Added) -> Setting:
    spread = f", one cell x{design.spread:g}" if design.spread != 1 else ""
    group = f"{design.noise}{'' if design.margin is None else ', at the margin'}{spread}"
    name = f"{design.first} to {design.last} seeds, {design.comparisons}"
    return Setting(group, name, partial(until_conclusive, design))


MODERATION = Simulation(
    "moderation",
    "Moderated t-tests",
    f"""\
In tables of at least three comparisons, the variance of each is averaged with the mean of all (`attnlab.stats.moderation`).
Here nothing differs, and the standard deviation of a run is 1, except for 2 or 4 in the runs of the baseline or of one cell.
Coverage is that of the interval of the first cell, which scatters most. Power: one cell truly differs by {EFFECT:g} standard
deviations of its pairs. “Plain”: with the t-test of each comparison alone (`moderate: false`).""",
    settings=[
        Setting(
            f"{seeds} seeds, {comparisons} comparisons",
            spread,
            partial(moderated_tables, spread, seeds, comparisons),
            FACTOR_FOUR if spread.endswith("x4") else "",
        )
        for seeds in (2, 3, 5)
        for comparisons in (3, 6, 10)
        for spread in SPREADS
    ],
    quantities=(
        FALSE,
        COVERED,
        POWER,
        Quantity("false, plain", "false verdicts of plain t-tests"),
        Quantity("power, plain", "true differences found by plain t-tests", POWER.kind),
    ),
    conclusion="""\
The price of moderation is the coverage of the interval of a cell that scatters more than the others. Intervals of the other
cells are too wide then.""",
)

MODERATED_LOOKS = Simulation(
    "moderated-looks",
    "Seeds added until conclusive, with moderated t-tests",
    """\
As above, with a look at each number of seeds and one more seed for each inconclusive cell. The levels of the looks are those of
plain t-statistics. The last number is that of the comparisons.""",
    settings=[
        _looks_setting(Added(first=first, last=last, moderated=True, comparisons=comparisons, spread=spread))
        for spread in (1.0, 2.0)
        for first, last in ((2, 12), (3, 12), (3, 20), (5, 30))
        for comparisons in (3, 6)
    ]
    + [
        _looks_setting(Added("t3", first=3, last=20, moderated=True)),
        _looks_setting(Added(first=3, last=12, moderated=True, margin=2.0)),
        _looks_setting(Added(first=3, last=20, moderated=True, margin=2.0)),
    ],
    quantities=(FALSE, COVERED, SEEDS),
)
