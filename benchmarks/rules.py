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

from dataclasses import dataclass

import numpy
from scipy.special import stdtr

FIRST, LAST = 3, 12
N = numpy.arange(FIRST, LAST + 1)
CASES = ((0.0, None), (1.0, None), (2.0, None), (3.0, None), (5.0, None), (0.0, 1.0), (0.0, 2.0), (0.0, 4.0), (1.0, 3.0))


RULES = 7  # number of rules that ``compare`` returns for each case


@dataclass(frozen=True)
class Outcome:
    """Outcome of one rule in one case: the share of conclusive studies and the mean number of seeds."""

    rule: str
    mean: float
    margin: float | None
    conclusive: float
    seeds: float


def compare(*, studies: int, seed: int) -> list[Outcome]:
    """Simulate every rule in every case; levels are calibrated with other draws than those used for the comparison."""
    random = numpy.random.RandomState(seed)
    levels = _levels(random, max(studies, 100_000))
    outcomes = []
    for mean, margin in CASES:
        center, error = _looks(random.standard_normal((studies, LAST)) + mean)
        far = _tail(abs(center) / error) * 2
        near = numpy.ones_like(far) if margin is None else _tail((margin - abs(center)) / error)
        hits = {rule: (far <= two_sided) | (near <= one_sided) for rule, (two_sided, one_sided) in levels.items()}
        hits["always valid (e-process)"] = _e_process(center / error) >= 20
        if margin is not None:
            towards = (margin - abs(center)) / error
            hits["always valid (e-process)"] |= (_e_process(towards) >= 10) & (towards > 0)
        for rule, hit in hits.items():
            conclusive = hit.any(1)
            seeds = numpy.where(conclusive, N[hit.argmax(1)], LAST)
            outcomes.append(Outcome(rule, mean, margin, float(conclusive.mean()), float(seeds.mean())))
    return outcomes


def _levels(random: numpy.random.RandomState, studies: int) -> dict[str, tuple[numpy.ndarray, numpy.ndarray]]:
    """Return for each rule the levels of the two-sided and of the one-sided test at each look."""
    center, error = _looks(random.standard_normal((studies, LAST)))
    two, one = 2 * _tail(abs(center) / error), _tail(center / error)
    weights = {
        "Pocock, exact for t (chosen)": numpy.ones(len(N)),
        "rising with n": N / LAST,
        "rising with n squared": (N / LAST) ** 2,
        "four looks (3, 5, 8, 12)": numpy.where(numpy.isin(N, (3, 5, 8, 12)), 1.0, 1e-12),
        "one look, at 12": numpy.where(N == LAST, 1.0, 1e-12),
    }
    levels = {
        rule: tuple(weight * numpy.quantile((p / weight).min(1), 0.05) for p in (two, one)) for rule, weight in weights.items()
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
