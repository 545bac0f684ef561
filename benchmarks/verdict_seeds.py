"""The number of seeds that `attnlab plan` states for a margin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial

import numpy

from attnlab._util.text import count
from attnlab.stats.predict import MAX_SEEDS, POWER, Spread, TableDesign, pooled_degrees_of_freedom, seeds_for_verdict
from attnlab.stats.sequential import FARTHEST_LOOK, Looks
from benchmarks.simulation import Kind, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import TableTests, t_tests

MARGIN = 1.0
SPREADS = (0.5, 1.5)  # known standard deviations of the pairs' differences, in margins
ESTIMATED = 1.0  # the one that a first table estimates
TABLES = (1, 4, 10)  # comparisons
PILOTS = ((1, 4), (4, 2), (4, 3), (10, 2))  # comparisons and seeds of a first table
GRID = 50  # estimates of a standard deviation for each factor of e

# Name -> the true differences of a table, in margins.
TRUTHS: dict[str, Callable[[int], numpy.ndarray]] = {
    "no difference": lambda comparisons: numpy.zeros(comparisons),
    "the margin": lambda comparisons: numpy.ones(comparisons),
    "half of each": lambda comparisons: numpy.arange(comparisons) % 2.0,
}


def draw_runs(random: numpy.random.RandomState, studies: int, comparisons: int, seeds: int, sd: float) -> numpy.ndarray:
    """Return paired differences without a true one, with a standard deviation, shape (studies, comparisons, seeds)."""
    runs = random.normal(0, sd / math.sqrt(2), (studies, comparisons + 1, seeds))
    return runs[:, 1:] - runs[:, :1]


def right_verdicts(tests: TableTests, truth: numpy.ndarray) -> numpy.ndarray:
    """Return True for comparisons with the right verdict: "equivalent" where the true difference is zero, else its sign."""
    found = tests.differs & (tests.mean > 0)
    return numpy.where(truth > 0, found, tests.within_margin & ~tests.differs)


def known_spread(comparisons: int, sd: float, truth: str, studies: int, seed: int) -> Mapping[str, Share | float]:
    """Simulate tables with the number of seeds for a known standard deviation."""
    n = seeds_for_verdict(TableDesign(MARGIN, comparisons, comparisons), Spread(sd))
    assert n is not None
    true = TRUTHS[truth](comparisons)
    differences = true[:, None] + draw_runs(numpy.random.RandomState(seed), studies, comparisons, n, sd)
    right = right_verdicts(t_tests(differences, margin=MARGIN, moderated=True), true)
    return {"right": Share(right.mean(1).sum(), studies), "seeds": float(n)}


def estimated_spread(comparisons: int, pilot: int, truth: str, studies: int, seed: int) -> Mapping[str, Share | float]:
    """Simulate studies that are judged at a few seeds, and again at the number that follows from their spread.

    Studies that more than `MAX_SEEDS` seeds would decide, which the plan calls out of reach, are left out.
    """
    random, sd = numpy.random.RandomState(seed), ESTIMATED
    true = TRUTHS[truth](comparisons)
    first = true[:, None] + draw_runs(random, studies, comparisons, pilot, sd)
    estimates = numpy.sqrt(first.var(2, ddof=1).mean(1))
    numbers = numpy.array([_needed(comparisons, pilot, math.ceil(GRID * math.log(value))) for value in estimates])
    right = 0.0
    for n in numpy.unique(numbers[numbers > 0]):
        chosen = first[numbers == n]
        added = true[:, None] + draw_runs(random, len(chosen), comparisons, n - pilot, sd)
        tests = t_tests(numpy.concatenate([chosen, added], 2), margin=MARGIN, moderated=True)
        right += right_verdicts(_at_further_look(tests, pilot, n), true).mean(1).sum()
    return {"right": Share(right, int((numbers > 0).sum())), "seeds": float(numpy.median(numbers[numbers > 0]))}


@cache
def _needed(comparisons: int, pilot: int, step: int) -> int:
    """Return the number of seeds for an estimate on a logarithmic grid; 0 if it is out of reach."""
    design = TableDesign(MARGIN, comparisons, comparisons, looks=Looks(pilot, pilot))
    spread = Spread(math.exp(step / GRID), pooled_degrees_of_freedom([pilot] * comparisons))
    return seeds_for_verdict(design, spread) or 0


def _at_further_look(tests: TableTests, pilot: int, n: int) -> TableTests:
    """Return tests that are corrected for a look at the first seeds."""
    look = min(n, FARTHEST_LOOK)  # beyond which the correction hardly changes
    looks = Looks(pilot, pilot, (look,))
    two_sided = {name: numpy.minimum(1, 2 * looks.adjust(getattr(tests, name) / 2, look)) for name in ("p", "p_table")}
    near = {name: looks.adjust(getattr(tests, name), look) for name in ("p_equivalent", "p_equivalent_table")}
    return replace(tests, **two_sided, **near)


def _table(comparisons: int) -> str:
    return count(comparisons, "comparison")


def _truths(comparisons: int) -> list[str]:
    return [truth for truth in TRUTHS if comparisons > 1 or truth != "half of each"]


VERDICT_SEEDS = Simulation(
    "verdict-seeds",
    "The number of seeds that a plan states",
    f"""\
Tables with the number of seeds that `attnlab plan` states for their margin: each comparison should have the right verdict with
a probability of at least {100 * POWER:g} %, whether there is no difference or one as large as the margin, in all cells or in
half of them. The standard deviation of the pairs' differences is known ({SPREADS[0]:g} or {SPREADS[1]:g} margins), or it is
estimated from a first table ({ESTIMATED:g} margin), which is a look at the study; studies that take more than {MAX_SEEDS} seeds
are then left out. These settings were simulated with the correction of attnlab 0.8, by which all further looks together add
at most 0.5 % of false verdicts; now the first further one is a test at 0.62 %. The table below has the number of seeds, the
median where it is estimated.""",
    settings=[
        *(
            Setting(f"known, {_table(comparisons)}", f"{truth}, sd {sd:g}", partial(known_spread, comparisons, sd, truth))
            for comparisons in TABLES
            for sd in SPREADS
            for truth in _truths(comparisons)
        ),
        *(
            Setting(f"from {pilot} seeds, {_table(comparisons)}", truth, partial(estimated_spread, comparisons, pilot, truth))
            for comparisons, pilot in PILOTS
            for truth in _truths(comparisons)
        ),
    ],
    quantities=(
        Quantity("right", "right verdicts", Kind.POWER, level=POWER, limit=POWER),
        Quantity("seeds", "number of seeds", Kind.NUMBER),
    ),
    studies=4_000,
    conclusion="""\
Tables of several comparisons have more right verdicts than stated, because the plan counts with the smallest level that Holm's
method may leave to a comparison.""",
)
