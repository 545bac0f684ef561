"""Simulated intervals: coverage of all intervals of a table together, and estimates that were chosen for being conclusive.

Intervals are computed for many tables at once, like the tests of `benchmarks.table_tests`;
`tests/benchmarks/test_intervals.py` compares them with those of `attnlab.stats.joint`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy

from attnlab.stats.paired import LEVEL
from benchmarks.simulate import CELLS, tables
from benchmarks.simulation import Kind, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import TableTests, t_tests

FAR = 9.0  # standard deviations of a run: such a difference is always significant
EFFECTS: dict[str, tuple[float, ...]] = {
    "none differs": (0.0,) * CELLS,
    "one differs by far": (FAR, *(0.0,) * (CELLS - 1)),
    "all but one differ by far": (*(FAR,) * (CELLS - 1), 0.0),
    "all differ by far": (FAR,) * CELLS,
    "all differ by 2": (2.0,) * CELLS,
}
SIZES = (3, 5, 12)
CHOSEN = (1.0, 2.0, 3.0)  # true differences


def together(effects: Sequence[float], n: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate tables of cells with these true differences from a common baseline, with `n` normal seeds each.

    Returns:
        The shares of tables in which all simultaneous intervals contain the true differences, all of Bonferroni's do, and all
        intervals of single comparisons do; and of tables with an interval of a single comparison that excludes zero although
        the difference is not significant.
    """
    truth = numpy.array(effects)
    tests = t_tests(tables("normal", n, studies=studies, seed=seed) + truth[:, None])
    low, high = simultaneous_ends(tests)
    covers = (low <= truth) & (truth <= high) & ~((truth == 0) & ((low == 0) | (high == 0)))  # an end at zero excludes zero
    hidden = ~tests.covers(0) & ~tests.differs
    return {
        "simultaneous": Share(covers.all(1).sum(), studies),
        "bonferroni": Share((abs(tests.mean - truth) <= tests.half_width(LEVEL / CELLS)).all(1).sum(), studies),
        "single": Share(tests.covers(truth).all(1).sum(), studies),
        "hidden": Share(hidden.any(1).sum(), studies),
    }


def simultaneous_ends(tests: TableTests) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the ends of the simultaneous intervals, as `attnlab.stats.joint` computes them."""
    half_width, differs = tests.half_width(LEVEL / tests.mean.shape[1]), tests.differs
    low, high = tests.mean - half_width, tests.mean + half_width
    low = numpy.where(differs, numpy.where(tests.mean > 0, numpy.maximum(low, 0), low), numpy.minimum(low, 0))
    high = numpy.where(differs, numpy.where(tests.mean > 0, high, numpy.minimum(high, 0)), numpy.maximum(high, 0))
    return low, high


def chosen_estimates(effect: float, n: int, studies: int, seed: int) -> Mapping[str, Share | float]:
    """Simulate tables in which all cells differ by `effect` standard deviations of a run; `n` normal seeds each.

    Returns:
        The share of differences that are called better or worse, the share of their 95 % intervals that contain the true
        difference, and the mean of their estimates in true differences.
    """
    tests = t_tests(tables("normal", n, studies=studies, seed=seed) + effect)
    chosen = tests.differs
    return {
        "covered": Share(tests.covers(effect)[chosen].sum(), int(chosen.sum())),
        "chosen": Share(chosen.sum(), chosen.size),
        "ratio": float(tests.mean[chosen].mean() / effect),
    }


INTERVALS = Simulation(
    "intervals",
    "Intervals of a table together",
    f"""\
Tables in which all intervals contain their true differences (“by far”: {FAR:g} standard deviations of a run, which is always
significant). “Single” are the 95 % intervals of single comparisons, “Bonferroni” simultaneous intervals, and “simultaneous” the
same, ended at zero where only Holm's method shows a difference, as reports draw them: they agree with all verdicts, and in
exchange cover less. Tables with a “hidden” correction have a single interval that excludes zero beside an inconclusive verdict;
reports add the simultaneous one there.""",
    settings=[Setting(name, f"{n} seeds", partial(together, effects, n)) for name, effects in EFFECTS.items() for n in SIZES],
    quantities=(
        # Cut at zero, they all contain the truth in at least 1 - 0.05 - 0.05 (m - 1) / m of the tables.
        Quantity("simultaneous", "simultaneous intervals that hold together", Kind.COVERAGE, level=0.95, limit=0.9125),
        Quantity("bonferroni", "Bonferroni's intervals that hold together", Kind.COVERAGE, level=0.95, limit=0.94),
        Quantity("single", "single intervals that hold together", Kind.COVERAGE, level=0.95),
        Quantity("hidden", "tables with a hidden correction", Kind.POWER),
    ),
)

CHOSEN_ESTIMATES = Simulation(
    "chosen",
    "Estimates of differences called better or worse",
    """\
All cells differ by the same amount, in standard deviations of a run. An estimate that is called better or worse because it lies
far from zero is too large on average, and its 95 % interval covers less; reports mark such estimates with †. The ratio in the
table is the mean of these estimates in true differences.""",
    settings=[
        Setting(f"difference {effect:g}", f"{n} seeds", partial(chosen_estimates, effect, n), "estimates that were chosen")
        for effect in CHOSEN
        for n in SIZES
    ],
    quantities=(
        Quantity("covered", "coverage of chosen intervals", Kind.COVERAGE, level=0.95),
        Quantity("chosen", "differences called better or worse", Kind.POWER),
        Quantity("ratio", "ratio", Kind.NUMBER),
    ),
)
