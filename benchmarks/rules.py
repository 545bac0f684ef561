"""Comparison of corrections for repeated looks, the candidates for ``attnlab.stats.sequential``, by the seeds they need.

One comparison, normal pairs, looks at 3 to 12 pairs. Every candidate except the e-process sets a level for each look. All
except Bonferroni's and the e-process are calibrated so that the t-tests of all looks together have an error rate of 5 %.

- Pocock (1977): the same level at each look.
- rising: the level grows as n (or n squared), which saves more of it for the end; O'Brien and Fleming (1979) do so more.
- four looks, at 3, 5, 8 and 12, at one level.
- always valid: the t-test's e-process of Lindon, Ham, Tingley and Bojinov (2022), "Anytime-valid linear models and regression
  adjusted causal inference in randomized experiments", arXiv 2210.08589, with a normal prior of variance 1 on the effect size:
  it needs no maximum number of seeds, at the cost of power.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

import numpy
from scipy.special import stdtr

from benchmarks.simulation import Kind, Quantity, Setting, Share, Simulation

FIRST, LAST = 3, 12
N = numpy.arange(FIRST, LAST + 1)
CASES = ((0.0, None), (1.0, None), (2.0, None), (3.0, None), (5.0, None), (0.0, 1.0), (0.0, 2.0), (0.0, 4.0), (1.0, 3.0))
E_PROCESS = "e-process, always valid"
WEIGHTS = {
    "Pocock, for t (chosen)": numpy.ones(len(N)),
    "rising with n": N / LAST,
    "rising with n squared": (N / LAST) ** 2,
    "looks at 3, 5, 8, 12": numpy.where(numpy.isin(N, (3, 5, 8, 12)), 1.0, 1e-12),
    "one look, at 12": numpy.where(N == LAST, 1.0, 1e-12),
}
RULES = (*WEIGHTS, "Bonferroni", E_PROCESS)
CALIBRATION = 200_000  # studies from which levels are computed


def conclusive_studies(rule: str, mean: float, margin: float | None, studies: int, seed: int) -> Mapping[str, Share | float]:
    """Simulate studies of one comparison; return the share of conclusive ones, and the mean number of seeds."""
    center, error = _looks(numpy.random.RandomState(seed).standard_normal((studies, LAST)) + mean)
    if rule == E_PROCESS:
        hit = _e_process(center / error) >= 20
        if margin is not None:
            towards = (margin - abs(center)) / error
            hit |= (_e_process(towards) >= 10) & (towards > 0)
    else:
        two_sided, one_sided = _levels()[rule]
        hit = _tail(abs(center) / error) * 2 <= two_sided
        if margin is not None:
            hit |= _tail((margin - abs(center)) / error) <= one_sided
    conclusive = hit.any(1)
    seeds = numpy.where(conclusive, N[hit.argmax(1)], LAST)
    return {"conclusive": Share(conclusive.sum(), studies), "seeds": float(seeds.mean())}


@lru_cache(maxsize=1)
def _levels() -> dict[str, tuple[numpy.ndarray, numpy.ndarray]]:
    """Return for each rule the levels of the two-sided and of the one-sided test at each look."""
    center, error = _looks(numpy.random.RandomState(0).standard_normal((CALIBRATION, LAST)))
    two, one = 2 * _tail(abs(center) / error), _tail(center / error)
    levels = {
        rule: (weight * numpy.quantile((two / weight).min(1), 0.05), weight * numpy.quantile((one / weight).min(1), 0.05))
        for rule, weight in WEIGHTS.items()
    }
    return {**levels, "Bonferroni": (numpy.full(len(N), 0.05 / len(N)),) * 2}  # type: ignore[dict-item]


def _looks(values: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return means and standard errors at each look (studies x looks) of ``values`` (studies x LAST)."""
    n = numpy.arange(1, LAST + 1)
    center = values.cumsum(1) / n
    spread = (values**2).cumsum(1) - n * center**2
    return center[:, FIRST - 1 :], numpy.sqrt(numpy.maximum(spread[:, FIRST - 1 :], 1e-30) / (N - 1) / N)


def _tail(t: numpy.ndarray) -> numpy.ndarray:
    return stdtr(N - 1, -t)


def _e_process(t: numpy.ndarray) -> numpy.ndarray:
    shrunk = 1 / (1 + N)
    return numpy.sqrt(shrunk) * ((1 + t**2 / (N - 1)) / (1 + shrunk * t**2 / (N - 1))) ** (N / 2)


def _case(mean: float, margin: float | None) -> str:
    return f"difference {mean:g}" if margin is None else f"difference {mean:g}, margin {margin:g}"


LOOK_RULES = Simulation(
    "look-rules",
    "The choice of the rule for looks",
    f"""\
Candidates for repeated looks: one comparison, normal pairs, looks at {FIRST} to {LAST} seeds (`benchmarks/rules.py` names the
sources). Differences and margins are in standard deviations of the pairs. For a difference of 0 without a margin, the share of
conclusive studies is the error rate; the table has the mean number of seeds.""",
    settings=[Setting(_case(*case), rule, partial(conclusive_studies, rule, *case)) for case in CASES for rule in RULES],
    quantities=(
        Quantity("conclusive", f"conclusive studies within {LAST} seeds", Kind.POWER),
        Quantity("seeds", "mean number of seeds", Kind.NUMBER),
    ),
    conclusion="""\
The same level at every look needs the fewest seeds, except for differences that 12 seeds can barely detect. Rising levels
detect more of the small differences and need more seeds for the large ones. The always-valid rule, which needs no maximum
number of seeds, needs the most.""",
)
