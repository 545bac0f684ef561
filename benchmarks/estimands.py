"""Simulated studies of bimodal and of skewed seeds: the exact test of solve rates, and fragile verdicts.

Scores of a recall task: a seed either solves the task, with a score near 1, or stays near 0.2. Correlated
seeds solve the cell and the baseline together: they share data and initial values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy

from attnlab.stats.exact import p_above
from attnlab.stats.paired import ALONE, LEVEL, SKEWNESS_SEEDS
from attnlab.stats.sequential import Looks
from benchmarks.simulation import Kind, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import t_tests

SEEDS = (3, 5, 8, 12)
SOLVING = 0.6  # threshold of the solve rate, between the two modes
LIMIT = LEVEL
LOOKS = Looks(5, 12)
Scores = tuple[numpy.ndarray, numpy.ndarray]  # (studies, seeds) of the cell and of the baseline


def bimodal(cell: float, baseline: float, correlation: float, shape: tuple[int, int], seed: int) -> Scores:
    """Return scores of a cell and its baseline.

    Args:
        cell, baseline: Probabilities that a seed solves the task.
        correlation: Share of seeds whose luck is the same for both.
        shape: Studies and seeds.
        seed: Random seed.
    """
    random = numpy.random.RandomState(seed)
    luck, own, shared = (random.random_sample(shape) for _ in range(3))
    lucks = (luck, numpy.where(shared < correlation, luck, own))

    def scores(solved: numpy.ndarray) -> numpy.ndarray:
        return numpy.where(solved, 1 - 0.1 * random.beta(1, 3, shape), 0.2 + 0.02 * random.standard_normal(shape))

    return scores(lucks[0] < cell), scores(lucks[1] < baseline)


# ---------------------------------------------------------------- tests of many studies at once


@cache
def _p_by_solved(n: int) -> numpy.ndarray:
    """Return (n + 1, n + 1) one-sided p-values in the direction of the larger count."""
    return numpy.array([[min(p_above(a, b, n), p_above(b, a, n)) for b in range(n + 1)] for a in range(n + 1)])


def solve_rate_p(cell: numpy.ndarray, baseline: numpy.ndarray) -> numpy.ndarray:
    """Return the one-sided p-value of the difference of solve rates in each study."""
    return _p_by_solved(cell.shape[1])[(cell > SOLVING).sum(1), (baseline > SOLVING).sum(1)]


def _rejected(p: numpy.ndarray) -> Share:
    return Share((2 * p < LEVEL).sum(), len(p))


def _mean_p(cell: numpy.ndarray, baseline: numpy.ndarray) -> numpy.ndarray:
    differences = (cell - baseline)[:, None, :]
    with numpy.errstate(divide="ignore", invalid="ignore"):
        return numpy.nan_to_num(t_tests(differences).p[:, 0], nan=1.0) / 2


# ---------------------------------------------------------------- exact tests


def bimodal_seeds(rate: float, correlation: float, n: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate comparisons of cells that solve the task equally often, and of one that does so more often."""
    cell, baseline = bimodal(rate, rate, correlation, (studies, n), seed)
    better, worse = bimodal(0.95, 0.2, correlation, (studies, n), seed + 1)
    return {
        "false": _rejected(solve_rate_p(cell, baseline)),
        "t": _rejected(_mean_p(cell, baseline)),
        "power": _rejected(solve_rate_p(better, worse)),
        "power, t": _rejected(_mean_p(better, worse)),
    }


def looks_at_bimodal_seeds(rate: float, correlation: float, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate the same with a look at each number of seeds of `LOOKS`; a verdict counts at any of them."""
    pairs = bimodal(rate, rate, correlation, (studies, LOOKS.last), seed)
    apart = bimodal(0.95, 0.2, correlation, (studies, LOOKS.last), seed + 1)

    def rejected(p: Callable[[numpy.ndarray, numpy.ndarray], numpy.ndarray], scores: Scores) -> Share:
        cell, baseline = scores
        numbers = range(LOOKS.first, LOOKS.last + 1)
        looks = [2 * LOOKS.adjust(p(cell[:, :n], baseline[:, :n]), n) < LEVEL for n in numbers]
        return Share(numpy.any(looks, axis=0).sum(), studies)

    tests = {"false": solve_rate_p, "t": _mean_p}
    shares = {name: rejected(test, pairs) for name, test in tests.items()}
    powers = {"power": solve_rate_p, "power, t": _mean_p}
    return shares | {name: rejected(test, apart) for name, test in powers.items()}


def _bimodal_settings() -> list[Setting]:
    cases = {"half solve": (0.5, 0.0), "half solve, correlated": (0.5, 0.5), "4 of 5 solve": (0.8, 0.0), "1 of 10": (0.1, 0.0)}
    settings = [Setting(f"{n} seeds", name, partial(bimodal_seeds, *case, n)) for n in SEEDS for name, case in cases.items()]
    return settings + [
        Setting("looks at 5 to 12 seeds", name, partial(looks_at_bimodal_seeds, *case)) for name, case in cases.items()
    ]


EXACT_TESTS = Simulation(
    "exact-tests",
    "Bimodal seeds",
    "A cell and its baseline solve a task equally often; a seed solves it with a score near 1, or fails with a score near 0.2. "
    "Any verdict of better or worse is false. The solve rate has the exact test of Barnard and Chan. For comparison, the "
    "t-test of the mean. True differences are those of a cell that solves the task with "
    "probability 0.95 from a baseline with 0.2.",
    _bimodal_settings(),
    (
        Quantity("false", "false verdicts on solve rates", level=LEVEL, limit=LIMIT),
        Quantity("t", "false verdicts, t-test of the mean", level=LEVEL),
        Quantity("power", "solve rates that differ found", Kind.POWER),
        Quantity("power, t", "the same, t-test of the mean", Kind.POWER),
    ),
)


# ---------------------------------------------------------------- fragile verdicts

COMPARISONS = 4
LARGE, FAR = 2.0, 8.0  # true differences, in standard deviations
DRAWS: dict[str, Callable[[numpy.random.RandomState, tuple[int, ...]], numpy.ndarray]] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "outliers": lambda random, shape: (
        random.standard_normal(shape) * numpy.where(random.random_sample(shape) < 0.1, 5.0, 1.0) / math.sqrt(3.4)
    ),
    "skewness 2": lambda random, shape: random.gamma(1, 1, shape) - 1,
    "skewness 6": lambda random, shape: (random.lognormal(0, 1, shape) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e),
}
SKEWED = "differences that are skewed"


def fragile(differences: numpy.ndarray, *, moderated: bool, cubic: bool = True) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return, for each comparison of each table, whether it has a verdict, and whether that is fragile.

    Args:
        differences: Shape (tables, comparisons, seeds).
        moderated: Use moderated t-tests.
        cubic: Use the monotone transformation of Hall; else that of Johnson.
    """
    from scipy.special import stdtr

    n = differences.shape[2]
    tests = t_tests(differences, moderated=moderated)
    centered = differences - tests.mean[..., None]
    g = (centered**3).mean(2) / (centered**2).mean(2) ** 1.5 * numpy.sign(tests.mean)

    def corrected(error: numpy.ndarray, degrees_of_freedom: numpy.ndarray) -> numpy.ndarray:
        size = abs(tests.mean) / error / math.sqrt(n)
        transformed = size + g * size**2 / 3 + (g**2 * size**3 / 27 if cubic else 0) + g / (6 * n)
        return 2 * stdtr(degrees_of_freedom, -math.sqrt(n) * transformed)

    order = numpy.argsort(tests.p_table, 1).argsort(1)  # Holm's factor of each comparison
    of_table = corrected(tests.table_error, tests.table_degrees_of_freedom) * (differences.shape[1] - order)
    alone = corrected(tests.error, tests.pairs - 1) * numpy.where(order < differences.shape[1] - 1, ALONE, 1)
    return tests.differs, tests.differs & (numpy.maximum(of_table, alone) >= LEVEL)


def fragile_verdicts(noise: str, n: int, moderated: bool, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate the shares of false and of sound verdicts that are called fragile."""
    random = numpy.random.RandomState(seed)
    differences = DRAWS[noise](random, (studies, COMPARISONS, n))
    called, weak = fragile(differences, moderated=moderated)
    shares = {"false": Share(called.any(1).sum(), studies), "caught": Share(weak.sum(), int(called.sum()))}
    for name, shift, cubic in (("alarms", LARGE, True), ("alarms, far", FAR, True), ("Johnson, far", FAR, False)):
        shifted = differences.copy()
        shifted[:, 0] += shift
        called, weak = (values[:, 0] for values in fragile(shifted, moderated=moderated, cubic=cubic))
        shares[name] = Share(weak.sum(), int(called.sum()))
    return shares


FRAGILE = Simulation(
    "fragile",
    "Fragile verdicts",
    f"Tables of {COMPARISONS} comparisons with differences that are normal, normal with one seed in ten at five times the "
    "spread, or skewed. A verdict of the t-test that Hall's test, corrected for skewness, does not share is called fragile, "
    f"from {SKEWNESS_SEEDS} seeds on. “False” are tables with a verdict where nothing differs; the other quantities are shares "
    f"of verdicts that are called fragile: of false ones, and of sound ones at a true difference of {LARGE:g} and of {FAR:g} "
    "standard deviations. With Johnson's test, many verdicts on large differences would be called fragile.",
    [
        Setting(
            "moderated t-tests" if moderated else "t-tests",
            f"{noise}, {n} seeds",
            partial(fragile_verdicts, noise, n, moderated),
            SKEWED if noise.startswith("skew") else "",
        )
        for moderated in (False, True)
        for noise in DRAWS
        for n in SEEDS
        if n >= SKEWNESS_SEEDS
    ],
    (
        Quantity("false", "false verdicts", level=LEVEL, limit=0.06),
        Quantity("caught", "false verdicts called fragile", Kind.POWER),
        Quantity("alarms", f"sound verdicts called fragile, difference {LARGE:g}"),
        Quantity("alarms, far", f"sound verdicts called fragile, difference {FAR:g}"),
        Quantity("Johnson, far", f"the same with Johnson's test, difference {FAR:g}"),
    ),
)
