"""How sure we can be: intervals over seeds, and differences paired by seed.

Two cells trained with the same seed saw the same batches from the same start, so their difference is taken
seed by seed; what the seeds have in common cancels. The tests are the paired t-test (against "no change"),
corrected over the table by Holm's step-down method, and two one-sided t-tests against a margin that the study
states beforehand (Schuirmann 1987), which is the only way here to be told that two cells are as good as
equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.05
POWER = 0.8  # chance of settling a difference of the size seen, for `seeds_needed`
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Interval:
    """A mean over `n` values with its 95 % t-interval; `sd`, `low` and `high` are None below two values."""

    n: int
    mean: float
    sd: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def half(self) -> float | None:
        """Half of the interval's width: the number behind the ±."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class Difference:
    """A cell minus its baseline, over the seeds that both completed (n of them).

    `p` is the two-sided p-value of the paired t-test, `p_equivalent` that of the two one-sided tests against
    the margin; each is None where it cannot be computed (fewer than two seeds, no margin). `p_holm` is filled
    in by `correct`, over all differences of one table.
    """

    interval: Interval
    p: float | None = None
    p_equivalent: float | None = None
    p_holm: float | None = None


def interval(values: Sequence[float]) -> Interval:
    """Summarise one value a seed. Raises ValueError on an empty sequence."""
    n = len(values)
    if n == 0:
        raise ValueError("expected at least one value, got none")
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(1, mean)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = _t_quantile(1 - LEVEL / 2, n - 1) * sd / math.sqrt(n)
    return Interval(n, mean, sd, mean - half, mean + half)


def difference(
    cell: Mapping[int, float], baseline: Mapping[int, float], *, margin: float | None = None
) -> Difference | None:
    """Compare two cells given as seed -> value; None when they share no seed."""
    shared = sorted(cell.keys() & baseline.keys())
    if not shared:
        return None
    found = interval([cell[seed] - baseline[seed] for seed in shared])
    if found.sd is None:
        return Difference(found)
    return Difference(found, p=_p_two_sided(found), p_equivalent=_p_equivalent(found, margin))


def correct(differences: Sequence[Difference | None]) -> list[Difference | None]:
    """Fill in Holm-corrected p-values over one table, in the order given."""
    known = [d.p for d in differences if d is not None and d.p is not None]
    corrected = iter(holm(known))
    out: list[Difference | None] = []
    for d in differences:
        if d is None or d.p is None:
            out.append(d)
        else:
            out.append(Difference(d.interval, d.p, d.p_equivalent, next(corrected)))
    return out


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's (1979) step-down adjusted p-values, in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def verdict(found: Difference | None, *, direction: str, margin: float | None = None) -> str:
    """Say in words what the seeds show about a cell against its baseline.

    Args:
        found: the difference, corrected over its table by `correct`.
        direction: "min" where smaller values of the metric are better, else "max".
        margin: what counts as equivalent, in the metric's unit.
    """
    if found is None:
        return "no seed in common with the baseline"
    seen = found.interval
    if found.p is None or seen.sd is None:
        return "not settled: one seed, no interval"
    if seen.mean == 0 and seen.sd == 0:
        return f"the same value in each of {seen.n} seeds"
    equivalent = found.p_equivalent is not None and found.p_equivalent < LEVEL
    p = found.p if found.p_holm is None else found.p_holm
    if p < LEVEL:
        word = "better" if (seen.mean < 0) == (direction == "min") else "worse"
        return f"{word}, by less than the margin" if equivalent else word
    if equivalent:
        return "equivalent within the margin"
    return f"not settled: {_more_seeds(seeds_needed(seen, margin=margin), seen.n)}"


def seeds_needed(seen: Interval, *, margin: float | None = None) -> int | None:
    """Estimate how many seeds in all would settle it, if mean and spread stay as seen; None beyond 1,000.

    Settled means that with a chance of 80 % either the difference from zero shows or, where a margin is given
    and the mean lies inside it, the equivalence does. An estimate from few seeds is rough.
    """
    assert seen.sd is not None
    found = []
    if seen.mean != 0:
        found.append(_seeds_for(abs(seen.mean), seen.sd, quantile=1 - LEVEL / 2, least=seen.n + 1))
    if margin is not None and margin > abs(seen.mean):
        found.append(_seeds_for(margin - abs(seen.mean), seen.sd, quantile=1 - LEVEL, least=seen.n + 1))
    return min((n for n in found if n is not None), default=None)


def _seeds_for(effect: float, sd: float, *, quantile: float, least: int) -> int | None:
    for n in range(max(least, 3), MOST_SEEDS + 1):
        if (_t_quantile(quantile, n - 1) + _t_quantile(POWER, n - 1)) * sd / math.sqrt(n) <= effect:
            return n
    return None


def _more_seeds(needed: int | None, n: int) -> str:
    if needed is None:
        return f"more than {MOST_SEEDS} seeds would be needed"
    more = needed - n if needed - n < 20 else round((needed - n) / 10) * 10
    return f"about {more} more seed{'' if more == 1 else 's'} would settle it"


def _p_two_sided(seen: Interval) -> float:
    assert seen.sd is not None
    if seen.sd == 0:
        return 1.0 if seen.mean == 0 else 0.0
    return 2 * _t_tail(abs(seen.mean) / (seen.sd / math.sqrt(seen.n)), seen.n - 1)


def _p_equivalent(seen: Interval, margin: float | None) -> float | None:
    assert seen.sd is not None
    if margin is None:
        return None
    if seen.sd == 0:
        return 0.0 if abs(seen.mean) < margin else 1.0
    return _t_tail((margin - abs(seen.mean)) / (seen.sd / math.sqrt(seen.n)), seen.n - 1)


def _t_quantile(probability: float, freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def _t_tail(t: float, freedom: int) -> float:
    """Return P(T > t) for Student's t with `freedom` degrees of freedom."""
    from scipy.special import stdtr

    return float(stdtr(freedom, -t))
