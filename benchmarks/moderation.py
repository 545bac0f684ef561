"""Simulated tables with moderated t-tests (`attnlab.stats.moderation`) whose runs differ in spread.

The tests are computed for many tables at once; `tests/benchmarks/test_moderation.py` compares them with those of a report. All
cells of a table share their baseline, and the standard deviation of a run is 1 where nothing else is stated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy

from attnlab.stats.moderation import prior_degrees_of_freedom
from attnlab.stats.paired import LEVEL
from benchmarks.simulate import Line, Share

# Name -> standard deviation of the runs of the baseline, and of the first cell.
SPREADS: dict[str, tuple[float, float]] = {
    "equal": (1, 1),
    "baseline x2": (2, 1),
    "one cell x2": (1, 2),
    "baseline x4": (4, 1),
    "one cell x4": (1, 4),
}
PROMISED = ("equal", "baseline x2", "one cell x2")
BOUND = 0.06  # share of false verdicts for PROMISED
EFFECT = 3.0  # true difference of the last cell in the lines on power, in standard deviations of its pairs
TABLES = 10  # tables per study of the other simulations: the tests are cheap
QUANTITIES = ("false", "false, plain t", "covered", "power", "power, plain t")


class Setting(NamedTuple):
    """A setting that is simulated."""

    spread: str
    seeds: int
    comparisons: int


SETTINGS = [Setting(spread, seeds, comparisons) for spread in SPREADS for seeds in (2, 3, 5) for comparisons in (3, 6, 10)]


class Tests(NamedTuple):
    """The t-tests of many tables; each array has the shape (tables, comparisons).

    Attributes:
        mean: Mean differences.
        error: Their standard errors.
        p: Two-sided p-values, not corrected.
        degrees_of_freedom: Of all tests.
    """

    mean: numpy.ndarray
    error: numpy.ndarray
    p: numpy.ndarray
    degrees_of_freedom: int


def draw(setting: Setting, *, tables: int, seed: int) -> numpy.ndarray:
    """Return paired differences without a true one, shape (tables, comparisons, seeds)."""
    random = numpy.random.RandomState(seed)
    baseline, first = SPREADS[setting.spread]
    cells = random.standard_normal((tables, setting.comparisons, setting.seeds))
    cells[:, 0] *= first
    return cells - baseline * random.standard_normal((tables, 1, setting.seeds))


def t_tests(differences: numpy.ndarray, *, moderated: bool) -> Tests:
    """Test the differences of each table, shape (tables, comparisons, seeds)."""
    from scipy.special import stdtr

    _, comparisons, n = differences.shape
    prior = prior_degrees_of_freedom(n, comparisons) if moderated else 0
    mean, variance = differences.mean(2), differences.var(2, ddof=1)
    freedom = prior + n - 1
    error = numpy.sqrt((prior * variance.mean(1, keepdims=True) + (n - 1) * variance) / freedom / n)
    return Tests(mean, error, 2 * stdtr(freedom, -abs(mean / error)), freedom)


def holm(p: numpy.ndarray) -> numpy.ndarray:
    """Return the corrected p-values of each table, shape (tables, comparisons)."""
    order = p.argsort(1)
    steps = numpy.take_along_axis(p, order, 1) * numpy.arange(p.shape[1], 0, -1)
    corrected = numpy.empty_like(p)
    numpy.put_along_axis(corrected, order, numpy.minimum(1, numpy.maximum.accumulate(steps, 1)), 1)
    return corrected


def simulated_lines(setting: Setting, studies: int, seed: int) -> list[Line]:
    """Simulate one setting; return its lines of ``validity.csv``, one for each of `QUANTITIES`."""
    from scipy.special import stdtrit

    tables = TABLES * studies
    differences = draw(setting, tables=tables, seed=seed)
    shifted = differences.copy()
    shifted[:, -1] += EFFECT * math.sqrt(1 + SPREADS[setting.spread][0] ** 2)
    shares = {}
    for name, moderated in (("", True), (", plain t", False)):
        shares[f"false{name}"] = (holm(t_tests(differences, moderated=moderated).p) < LEVEL).any(1).mean()
        shares[f"power{name}"] = (holm(t_tests(shifted, moderated=moderated).p)[:, -1] < LEVEL).mean()
    tests = t_tests(differences, moderated=True)
    covered = abs(tests.mean) <= stdtrit(tests.degrees_of_freedom, 1 - LEVEL / 2) * tests.error
    shares["covered"] = covered[:, 0].mean()  # of the first cell, which scatters most
    case = f"{setting.seeds} seeds, {setting.comparisons} comparisons"
    counted = {name: Share(float(shares[name]) * tables, tables) for name in QUANTITIES}
    return [Line("moderated", setting.spread, case, name, share.value, share.error, tables) for name, share in counted.items()]


def promised(lines: Sequence[Line]) -> list[Line]:
    """Return the lines on false verdicts in settings for which a bound is promised."""
    return [line for line in lines if line.quantity == "false" and line.noise in PROMISED]
