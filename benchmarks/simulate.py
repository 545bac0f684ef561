"""Simulated tables with known distributions.

A table has CELLS cells and a baseline, each with one value per seed. Draws have mean 0 and a standard deviation of about 1,
so that differences and margins are in units of one run's standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy

from attnlab.stats import paired
from attnlab.stats.joint import moderate
from attnlab.stats.sequential import Looks

CELLS = 4
Draw = Callable[[numpy.random.RandomState, tuple[int, ...]], numpy.ndarray]


def _contaminated(random: numpy.random.RandomState, shape: tuple[int, ...]) -> numpy.ndarray:
    wide = numpy.where(random.random_sample(shape) < 0.1, 5.0, 1.0)
    return random.standard_normal(shape) * wide / math.sqrt(3.4)


def _skewed(random: numpy.random.RandomState, shape: tuple[int, ...]) -> numpy.ndarray:
    return (random.lognormal(0, 1, shape) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)


DRAWS: dict[str, Draw] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "t3": lambda random, shape: random.standard_t(3, shape) / math.sqrt(3),
    "contaminated": _contaminated,
    "skewed": _skewed,
    "skewed_gap": _skewed,
    "mild_gap": lambda random, shape: (random.gamma(4, 1, shape) - 4) / 2,
}
DISTRIBUTIONS = {
    "normal": "normal",
    "t3": "Student's t with 3 degrees of freedom (no fourth moment)",
    "contaminated": "normal, one seed in ten with five times the spread",
    "skewed": "log-normal (skewness 6) in cell and baseline alike: in a true A/A comparison the skew cancels in the pairs",
    "skewed_gap": "log-normal in the cells, no noise at all in the baseline: all of the skew stays in the differences",
    "mild_gap": "the same with a skewness of 1 (gamma, shape 4)",
}


SKEWED = {"mild_gap": "skewed differences (skewness 1)", "skewed_gap": "skewed differences (skewness 6)"}  # nothing is promised


def tables(noise: str, n: int, *, studies: int, seed: int, comparisons: int = CELLS) -> numpy.ndarray:
    """Return the paired differences of each study, shape (studies, comparisons, n); the cells of a study share their baseline.

    Args:
        noise: One of `DISTRIBUTIONS`. In those that end in "_gap", the baseline has no noise.
        n: Number of seeds.
        studies: Number of studies.
        seed: Random seed.
        comparisons: Number of cells without the baseline.
    """
    random = numpy.random.RandomState(seed)
    cells = DRAWS[noise](random, (studies, comparisons, n))
    return cells if noise.endswith("_gap") else cells - DRAWS[noise](random, (studies, 1, n))


# Name -> standard deviations of the runs of the baseline and of the odd cells, which are the first ones, and the share of the
# variance of a seed's runs that the baseline and all other cells have in common.
TWIN = "a twin"
SPREADS: dict[str, tuple[float, float, float]] = {
    "equal": (1, 1, 0),
    "baseline x2": (2, 1, 0),
    "one cell x2": (1, 2, 0),
    "baseline x4": (4, 1, 0),
    "one cell x4": (1, 4, 0),
    "one unpaired": (1, 1, 0.9),
    TWIN: (1, 0.1, 0),  # beside the runs of the baseline, to which it adds its own
    "two cells x4": (1, 4, 0),
    "two unpaired": (1, 1, 0.9),
    "three cells x4": (1, 4, 0),
    "three unpaired": (1, 1, 0.9),
    "half of the cells x4": (1, 4, 0),
}


def odd_cells(spread: str, comparisons: int) -> int:
    """Return the number of cells that are unlike the others."""
    return {"two": 2, "three": 3, "half": comparisons // 2}.get(spread.split(" ")[0], 1)


FAR = 100.0  # true difference of cells that differ by far, in standard deviations of a run


def unequal_tables(spread: str, n: int, comparisons: int, *, studies: int, seed: int) -> numpy.ndarray:
    """Return paired differences of normal runs with unequal spreads, shape (studies, comparisons, n).

    Args:
        spread: Key of `SPREADS`.
        n: Number of seeds.
        comparisons: Number of cells without the baseline.
        studies: Number of studies.
        seed: Random seed.
    """
    random = numpy.random.RandomState(seed)
    baseline, first, shared = SPREADS[spread]
    odd = odd_cells(spread, comparisons)
    runs = math.sqrt(1 - shared) * random.standard_normal((studies, comparisons + 1, n))
    if shared:
        runs[:, 1 : 1 + odd] += math.sqrt(shared) * random.standard_normal((studies, odd, n))
        common = math.sqrt(shared) * random.standard_normal((studies, 1, n))
        runs[:, :1] += common
        runs[:, 1 + odd :] += common
    runs[:, 0] *= baseline
    runs[:, 1 : 1 + odd] *= first
    if spread == TWIN:
        runs[:, 1] += runs[:, 0]
    return runs[:, 1:] - runs[:, :1]


def judge(
    table: list[list[float]], *, margin: float | None = None, looks: Looks | None = None, moderated: bool = False
) -> list[paired.Difference]:
    """Return the differences of a table as in a report; a cell has as many seeds as values."""
    zero = dict.fromkeys(range(max(map(len, table))), 0.0)
    differences = [paired.difference(dict(enumerate(gaps)), zero, margin=margin, looks=looks) for gaps in table]
    corrected = paired.correct(moderate(differences) if moderated else differences)
    return [difference for difference in corrected if difference is not None]
