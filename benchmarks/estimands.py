"""Simulated studies of bimodal and of skewed seeds: exact tests of other estimands than the mean, and fragile verdicts.

Scores of a recall task: a seed either solves the task, with a score near 1, or stays near 0.2. Correlated
seeds solve the cell and the baseline together: they share data and initial values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy

from attnlab.stats.exact import p_above, sign_test_p
from attnlab.stats.paired import LEVEL, SKEWNESS_SEEDS
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


@cache
def _p_by_signs(n: int) -> numpy.ndarray:
    """Return (n + 1,) one-sided p-values of the sign test by the number of positive signs of n, in its own direction."""
    return numpy.array([sign_test_p(max(k, n - k), n) for k in range(n + 1)])


def solve_rate_p(cell: numpy.ndarray, baseline: numpy.ndarray) -> numpy.ndarray:
    """Return the one-sided p-value of the difference of solve rates in each study."""
    return _p_by_solved(cell.shape[1])[(cell > SOLVING).sum(1), (baseline > SOLVING).sum(1)]


def sign_p(differences: numpy.ndarray) -> numpy.ndarray:
    """Return the one-sided p-value of the sign test in each study. Scores are continuous here: there are no ties."""
    return _p_by_signs(differences.shape[1])[(differences > 0).sum(1)]


def mann_whitney_p(cell: numpy.ndarray, baseline: numpy.ndarray) -> numpy.ndarray:
    """Return the one-sided exact p-value of the test of Mann and Whitney, which is not used."""
    n = cell.shape[1]
    wins = (cell[:, :, None] > baseline[:, None, :]).sum((1, 2))
    return _tail(_rank_sums(n), numpy.maximum(wins, n * n - wins))


def signed_rank_p(differences: numpy.ndarray) -> numpy.ndarray:
    """Return the one-sided exact p-value of Wilcoxon's signed-rank test, which is not used."""
    n = differences.shape[1]
    ranks = abs(differences).argsort(1).argsort(1) + 1
    total = (ranks * (differences > 0)).sum(1)
    counts = numpy.ones(1)
    for rank in range(1, n + 1):
        counts = numpy.convolve(counts, [1, *[0] * (rank - 1), 1])
    return _tail(counts, numpy.maximum(total, n * (n + 1) // 2 - total))


@cache
def _rank_sums(n: int) -> numpy.ndarray:
    """Return the number of orders of two samples of n scores by the number of wins (Mann and Whitney 1947, recursion)."""
    counts = numpy.zeros((n + 1, n + 1, n * n + 1))
    counts[0, :, 0] = counts[:, 0, 0] = 1
    for a in range(1, n + 1):
        for b in range(1, n + 1):
            counts[a, b] = counts[a, b - 1]
            counts[a, b, b:] += counts[a - 1, b, : n * n + 1 - b]
    return counts[n, n]


def _tail(counts: numpy.ndarray, at_least: numpy.ndarray) -> numpy.ndarray:
    upper = numpy.cumsum(counts[::-1])[::-1] / counts.sum()
    return upper[at_least]


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
        "sign": _rejected(sign_p(cell - baseline)),
        "t": _rejected(_mean_p(cell, baseline)),
        "power": _rejected(solve_rate_p(better, worse)),
        "power, sign": _rejected(sign_p(better - worse)),
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

    def signs(cell: numpy.ndarray, baseline: numpy.ndarray) -> numpy.ndarray:
        return sign_p(cell - baseline)

    tests = {"false": solve_rate_p, "sign": signs, "t": _mean_p}
    shares = {name: rejected(test, pairs) for name, test in tests.items()}
    powers = {"power": solve_rate_p, "power, sign": signs, "power, t": _mean_p}
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
    "Any verdict of better or worse is false. The solve rate has the exact test of Barnard and Chan; the probability of "
    "superiority and the median have the sign test. For comparison, the t-test of the mean. True differences are those of a "
    "cell that solves the task with probability 0.95 from a baseline with 0.2.",
    _bimodal_settings(),
    (
        Quantity("false", "false verdicts on solve rates", level=LEVEL, limit=LIMIT),
        Quantity("sign", "false verdicts, sign test", level=LEVEL, limit=LIMIT),
        Quantity("t", "false verdicts, t-test of the mean", level=LEVEL),
        Quantity("power", "solve rates that differ found", Kind.POWER),
        Quantity("power, sign", "the same, sign test", Kind.POWER),
        Quantity("power, t", "the same, t-test of the mean", Kind.POWER),
    ),
)


# ---------------------------------------------------------------- why not tests with ranks


def neither_is_better(n: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate a bimodal cell and a baseline in the middle: each beats the other in half of the seeds."""
    cell, _ = bimodal(0.5, 0.5, 0.0, (studies, n), seed)
    baseline = 0.6 + 0.05 * numpy.random.RandomState(seed + 1).standard_normal((studies, n))
    return {"false": _rejected(sign_p(cell - baseline)), "ranks": _rejected(mann_whitney_p(cell, baseline))}


def median_of_zero(n: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate skewed differences whose median is zero."""
    differences = numpy.random.RandomState(seed).gamma(1, 1, (studies, n)) - math.log(2)
    return {"false": _rejected(sign_p(differences)), "ranks": _rejected(signed_rank_p(differences))}


RANK_TESTS = Simulation(
    "rank-tests",
    "Rank tests",
    "Tests with ranks find more than the sign test with as few seeds, but they test another hypothesis. Superiority: a "
    "bimodal cell beats a baseline with scores in the middle in half of the seeds; the test of Mann and Whitney asks whether "
    "their scores have one distribution. Median: differences are skewed and have the median 0; the signed-rank test asks "
    "whether they are symmetric about 0. Verdicts use the sign test.",
    [Setting("superiority", f"{n} seeds", partial(neither_is_better, n)) for n in SEEDS]
    + [Setting("median", f"{n} seeds", partial(median_of_zero, n)) for n in SEEDS],
    (
        Quantity("false", "false verdicts, sign test", level=LEVEL, limit=LIMIT),
        Quantity("ranks", "false verdicts, rank test", level=LEVEL),
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
    alone = corrected(tests.error, tests.pairs - 1)
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
