"""Simulated studies over three levels, tested as `attnlab.stats.trend` tests them.

CELLS cells and their baseline are trained at levels that are a factor of three apart, with runs whose spread falls
from level to level. Differences and margins are in units of the mean spread of a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy

from attnlab.stats.paired import LEVEL
from attnlab.stats.trend import fit_line
from benchmarks.simulate import CELLS, DRAWS, SKEWED
from benchmarks.simulation import FALSE, POWER, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import holm, t_tests

LEVELS = (500, 1500, 4500)
DOUBLINGS = math.log2(LEVELS[-1] / LEVELS[0])
SPREADS = (1.5, 1.0, 0.5)  # of a run at each level
MARGIN = 2.0
SHIFT = 2.0  # change of the difference from the lowest level to the highest, where it changes
SIZES = (3, 5, 12)
NOISES = ("normal", "t3", "skewed", "mild_gap")


def draw(noise: str, seeds: int, gaps: Sequence[float], *, studies: int, seed: int) -> numpy.ndarray:
    """Return paired differences with a true one at each level, shape (studies, CELLS, levels, seeds)."""
    random = numpy.random.RandomState(seed)
    runs = DRAWS[noise](random, (studies, CELLS + 1, len(LEVELS), seeds)) * numpy.array(SPREADS)[:, None]
    if noise.endswith("_gap"):
        runs[:, 0] = 0.0  # all of the skew stays in the differences
    return runs[:, 1:] - runs[:, :1] + numpy.array(gaps)[:, None]


def fit_lines(differences: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return slope and middle of the line through the differences of each seed, shape (studies, cells, seeds).

    Args:
        differences: Shape (studies, cells, levels, seeds).
    """
    weights = numpy.array([fit_line(LEVELS, unit) for unit in numpy.eye(len(LEVELS)).tolist()])  # levels x 2: it is linear
    slope, middle = numpy.einsum("icls,lk->kics", differences, weights)
    return slope, middle


def changes(differences: numpy.ndarray) -> numpy.ndarray:
    """Return True for trends with the verdict that the difference changes, shape (studies, cells)."""
    return t_tests(fit_lines(differences)[0]).differs


def is_steady(differences: numpy.ndarray, margin: float) -> numpy.ndarray:
    """Return True for trends that are called steady, shape (studies, cells)."""
    tests = t_tests(fit_lines(differences)[0], margin=margin / DOUBLINGS)
    return tests.within_margin & ~tests.differs


def shrinks_or_grows(differences: numpy.ndarray) -> numpy.ndarray:
    """Return True for trends that are called "shrinks" or "grows", shape (studies, cells)."""
    slope, middle = fit_lines(differences)
    return changes(differences) & (holm(t_tests(middle).p) < LEVEL)


def trends(noise: str, seeds: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate tables whose differences are constant, change by the margin, change sign, or shrink."""
    tables = {
        name: draw(noise, seeds, gaps, studies=studies, seed=seed + number)
        for number, (name, gaps) in enumerate(
            {
                "false": (1.0, 1.0, 1.0),
                "false steady": (0.0, MARGIN / 2, MARGIN),
                "false word": (-SHIFT, 0.0, SHIFT),
                "power": (1.0 + SHIFT, 1.0 + SHIFT / 2, 1.0),
            }.items()
        )
    }
    return {
        "false": Share(changes(tables["false"]).any(1).sum(), studies),
        "false steady": Share(is_steady(tables["false steady"], MARGIN).any(1).sum(), studies),
        "false word": Share(shrinks_or_grows(tables["false word"]).any(1).sum(), studies),
        "power": Share(changes(tables["power"])[:, 0].sum(), studies),
    }


TRENDS = Simulation(
    "trends",
    "Trends over levels",
    f"""\
{CELLS} cells and a baseline at three levels a factor of three apart (`over:`). The spread of a run falls to a third from the
lowest level to the highest. False are a trend where the differences are the same at every level, “steady” where they change by
the margin over the range ({MARGIN:g} standard deviations of a run), and “shrinks” or “grows” where they change sign and keep
their size. Power: a difference shrinks by {SHIFT:g} standard deviations of a run.""",
    settings=[
        Setting(noise, f"{n} seeds", partial(trends, noise, n), SKEWED.get(noise, "")) for noise in NOISES for n in SIZES
    ],
    quantities=(
        Quantity(FALSE.name, "false trends", level=0.05, limit=0.06),
        Quantity("false steady", "false verdicts of steady", level=0.05, limit=0.06),
        Quantity("false word", "false “shrinks” or “grows”", level=0.05, limit=0.06),
        Quantity(POWER.name, "shrinking differences found", POWER.kind),
    ),
)
