"""Simulated margins in per cent of steps, which are estimated from the slope of the baseline in each seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy
from scipy.special import stdtr

from attnlab.stats.paired import LEVEL
from benchmarks.simulation import Kind, Quantity, Setting, Share, Simulation

SPREADS = (0.1, 0.3, 0.6)  # standard deviation of the pairs' differences, in margins
VARIATIONS = (0.0, 0.1, 0.3, 0.6)  # coefficient of variation of the margin over the seeds


def within_margin(gaps: numpy.ndarray, margins: numpy.ndarray) -> numpy.ndarray:
    """Return True for studies of one comparison that are equivalent; differences and margins have the shape (studies, seeds).

    These are the tests of `attnlab.stats.paired.with_estimated_margin`.
    """
    n = gaps.shape[1]
    p = [stdtr(n - 1, -values.mean(1) / (values.std(1, ddof=1) / math.sqrt(n))) for values in (margins - gaps, margins + gaps)]
    return numpy.maximum(*p) < LEVEL


def constant_margin(gaps: numpy.ndarray, margins: numpy.ndarray) -> numpy.ndarray:
    """Return the same if the mean of the margins is taken for a constant."""
    n, error = gaps.shape[1], gaps.std(1, ddof=1) / math.sqrt(gaps.shape[1])
    return stdtr(n - 1, -(margins.mean(1) - abs(gaps.mean(1))) / error) < LEVEL


def estimated_margins(n: int, variation: float, sd: float, rho: float, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate comparisons with a true difference of the margin, or of zero.

    Args:
        n: Number of seeds.
        variation: Coefficient of variation of the margin over the seeds.
        sd: Standard deviation of the pairs' differences, in margins.
        rho: Correlation of margin and difference over the seeds.
        studies: Number of studies.
        seed: Random seed.
    """
    z, e = numpy.random.RandomState(seed).standard_normal((2, studies, n))
    margins, gaps = 1 + variation * z, sd * (rho * z + math.sqrt(1 - rho**2) * e)
    return {
        "false equivalence": Share(within_margin(1 + gaps, margins).sum(), studies),
        "power": Share(within_margin(gaps, margins).sum(), studies),
        "false, constant": Share(constant_margin(1 + gaps, margins).sum(), studies),
    }


ESTIMATED_MARGINS = Simulation(
    "estimated-margins",
    "Margins in per cent of steps",
    """\
One comparison with a margin that the baseline's slope estimates in each seed, for example “5 % of steps”. The true difference
is the margin, and a verdict of equivalent is false; in the line on power, it is zero. Spreads are standard deviations of the
pairs' differences in margins; the variation is that of the margin over the seeds, in per cent. Margin and difference of a seed
are independent, or have a correlation of -0.6, with which their errors add up. “Constant”: the margin is taken for exact, as
attnlab did until version 0.8.""",
    settings=[
        Setting(
            f"{n} seeds, margin ± {100 * variation:g} %{f', correlation {rho:g}' if rho else ''}",
            f"spread {sd:g}",
            partial(estimated_margins, n, variation, sd, rho),
        )
        for n in (3, 5)
        for variation in VARIATIONS
        for rho in ((0.0, -0.6) if variation else (0.0,))
        for sd in SPREADS
    ],
    quantities=(
        Quantity("false equivalence", "false verdicts of equivalent", level=0.05, limit=0.06),
        Quantity("power", "equal cells called equivalent", Kind.POWER),
        Quantity("false, constant", "false verdicts with a constant margin"),
    ),
    hard={"margins in per cent of steps": ("false equivalence", "margin ±")},
)
