"""Which correction for repeated looks asks for the fewest seeds? The candidates for ``attnlab.stats.sequential``, side by side.

One comparison, normal pairs, looks at 3 to 12 of them. Every candidate but one is a level for each look; all but Bonferroni's
and the e-process are set so that the t-tests of all looks together err 5 times in 100.

- Pocock (1977): the same level at each look.
- rising: the level grows as n (or n squared), which keeps more for the end; O'Brien and Fleming (1979) go further that way.
- four looks, at 3, 5, 8 and 12, at one level.
- always valid: the t-test's e-process of Lindon, Ham, Tingley and Bojinov (2022), "Anytime-valid linear models and regression
  adjusted causal inference in randomized experiments", arXiv 2210.08589, with a normal prior of variance 1 on the effect size:
  it needs no largest number of seeds, and pays for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from scipy.special import stdtr

FIRST, LAST = 3, 12
N = numpy.arange(FIRST, LAST + 1)
CASES = ((0.0, None), (1.0, None), (2.0, None), (3.0, None), (5.0, None), (0.0, 1.0), (0.0, 2.0), (0.0, 4.0), (1.0, 3.0))


@dataclass(frozen=True)
class Outcome:
    """Of one rule in one case: the share of studies that were settled, and their mean number of seeds."""

    rule: str
    mean: float
    margin: float | None
    settled: float
    seeds: float


def compare(*, studies: int, seed: int) -> list[Outcome]:
    """Every rule in every case; the levels are set with other draws than those they are judged by."""
    random = numpy.random.RandomState(seed)
    levels = _levels(random, max(studies, 100_000))
    found = []
    for mean, margin in CASES:
        center, error = _looks(random.standard_normal((studies, LAST)) + mean)
        far = _tail(abs(center) / error) * 2
        near = numpy.ones_like(far) if margin is None else _tail((margin - abs(center)) / error)
        hits = {rule: (far <= two) | (near <= one) for rule, (two, one) in levels.items()}
        hits["always valid (e-process)"] = _e_process(center / error) >= 20
        if margin is not None:
            towards = (margin - abs(center)) / error
            hits["always valid (e-process)"] |= (_e_process(towards) >= 10) & (towards > 0)
        for rule, hit in hits.items():
            settled = hit.any(1)
            seeds = numpy.where(settled, N[hit.argmax(1)], LAST)
            found.append(Outcome(rule, mean, margin, float(settled.mean()), float(seeds.mean())))
    return found


def _levels(random: numpy.random.RandomState, studies: int) -> dict[str, tuple[numpy.ndarray, numpy.ndarray]]:
    """Rule -> the level at each look of the two-sided test, and of the one-sided one."""
    center, error = _looks(random.standard_normal((studies, LAST)))
    two, one = 2 * _tail(abs(center) / error), _tail(center / error)
    weights = {
        "Pocock, exact for t (chosen)": numpy.ones(len(N)),
        "rising with n": N / LAST,
        "rising with n squared": (N / LAST) ** 2,
        "four looks (3, 5, 8, 12)": numpy.where(numpy.isin(N, (3, 5, 8, 12)), 1.0, 1e-12),
        "one look, at 12": numpy.where(N == LAST, 1.0, 1e-12),
    }
    found = {
        rule: tuple(weight * numpy.quantile((p / weight).min(1), 0.05) for p in (two, one)) for rule, weight in weights.items()
    }
    return {**found, "Bonferroni": (numpy.full(len(N), 0.05 / len(N)),) * 2}  # type: ignore[dict-item]


def _looks(values: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Studies x LAST values -> means and standard errors at each look, studies x looks."""
    n = numpy.arange(1, LAST + 1)
    center = values.cumsum(1) / n
    spread = (values**2).cumsum(1) - n * center**2
    return center[:, FIRST - 1 :], numpy.sqrt(numpy.maximum(spread[:, FIRST - 1 :], 1e-30) / (N - 1) / N)


def _tail(t: numpy.ndarray) -> numpy.ndarray:
    return stdtr(N - 1, -t)


def _e_process(t: numpy.ndarray) -> numpy.ndarray:
    shrunk = 1 / (1 + N)
    return numpy.sqrt(shrunk) * ((1 + t**2 / (N - 1)) / (1 + shrunk * t**2 / (N - 1))) ** (N / 2)
