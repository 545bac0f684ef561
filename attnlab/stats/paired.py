"""How sure we can be: intervals over seeds, and differences paired by seed.

Two cells trained with the same seed saw the same batches from the same start, so their difference is taken
seed by seed; what the seeds have in common cancels. The tests are the paired t-test (against "no change") and
two one-sided t-tests against a margin that the study states beforehand (Schuirmann 1987), which is the only way
here to be told that two cells are as good as equal. Both are corrected over the table by Holm's step-down
method (1979), each kind by itself, and for repeated looks where seeds were added until the verdict was settled
(`sequential`). The effect size is Cohen's d of the paired differences, with Hedges' correction (1981).

A t-test takes the spread from the seeds. Where all of them gave one and the same difference there is none to take. That happens
by chance where a metric has few values (the accuracy of 200 reviews has 201), and most often with few seeds. What is left then
is the sign test: were both directions equally likely, n seeds would agree in a given one with a chance of 2^-n.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from attnlab.stats.sequential import Looks

LEVEL = 0.05
POWER = 0.8  # chance of settling a difference of the size seen, for `seeds_needed`
MOST_SEEDS = 1000
FEW = 4  # below so many pairs the spread is too little known to name a number of seeds
ROUNDING = 1e-12  # of the values' size: differences no further apart are one difference


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

    Attributes:
        p, p_equivalent: of the paired t-test, two-sided, and of the two one-sided tests against `margin`;
            corrected for `looks`. None where there is none (fewer than two seeds or than the first look has, no margin).
        p_holm, p_equivalent_holm: the same over all differences of one table; `correct` fills them in.
        levels: the p and the p_equivalent below which Holm would call it settled, all else in the table being as it is.
    """

    interval: Interval
    p: float | None = None
    p_equivalent: float | None = None
    p_holm: float | None = None
    p_equivalent_holm: float | None = None
    margin: float | None = None
    looks: Looks | None = None
    levels: tuple[float, float] = (LEVEL, LEVEL)

    @property
    def effect(self) -> float | None:
        """The mean over the standard deviation of the paired differences, freed of its bias in small samples.

        Hedges' g of the paired differences (g_z): it says how many standard deviations of *one* seed's difference the
        cell is away from its baseline. None below three seeds, or where all seeds gave the same difference.
        """
        n, sd = self.interval.n, self.interval.sd
        if not sd or n < 3:
            return None
        half = (n - 1) / 2
        return self.interval.mean / sd * math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half)

    @property
    def finding(self) -> str:
        """`lower`, `higher`, `equivalent`, `same` (the same value in each of enough seeds), or "" while it is open."""
        if self.p is None or self.interval.sd is None:
            return ""
        if self.same:
            return "same" if _signs(self.interval.n) < LEVEL else ""
        if _least(self.p_holm, self.p) < LEVEL:
            return "lower" if self.interval.mean < 0 else "higher"
        return "equivalent" if self.small else ""

    @property
    def same(self) -> bool:
        """Each seed gave the cell and its baseline the same value."""
        return self.interval.mean == 0 == self.interval.sd

    @property
    def small(self) -> bool:
        """The two one-sided tests place it within the margin."""
        return _least(self.p_equivalent_holm, self.p_equivalent) < LEVEL


def _least(corrected: float | None, p: float | None) -> float:
    return next((each for each in (corrected, p) if each is not None), 1.0)


def interval(values: Sequence[float], *, looks: Looks | None = None) -> Interval:
    """Summarise one value a seed; with `looks`, so that the interval covers at all of them together.

    Raises ValueError on an empty sequence.
    """
    n = len(values)
    if n == 0:
        raise ValueError("expected at least one value, got none")
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(1, mean)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    level = LEVEL / 2 if looks is None else looks.reaching(n).nominal(LEVEL / 2)
    half = _t_quantile(1 - level, n - 1) * sd / math.sqrt(n)
    return Interval(n, mean, sd, mean - half, mean + half)


def difference(
    cell: Mapping[int, float],
    baseline: Mapping[int, float],
    *,
    margin: float | None = None,
    looks: Looks | None = None,
) -> Difference | None:
    """Compare two cells given as seed -> value; None when they share no seed.

    Args:
        margin: what counts as equivalent, in the metric's unit.
        looks: those at which the seeds might have been found enough; before the first there is no test.
    """
    shared = sorted(cell.keys() & baseline.keys())
    if not shared:
        return None
    looks = looks and looks.reaching(len(shared))
    seen = interval(_differences([(cell[seed], baseline[seed]) for seed in shared]), looks=looks)
    if seen.sd is None or (looks and seen.n < looks.first):
        return Difference(seen, margin=margin, looks=looks)
    p = min(1.0, 2 * _over(looks, _p_beyond(seen, abs(seen.mean))))  # two sides: twice the one
    near = None if margin is None else _over(looks, _p_beyond(seen, margin - abs(seen.mean)))
    return Difference(seen, p=p, p_equivalent=near, margin=margin, looks=looks)


def _differences(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """First minus second, rid of the spread that only the rounding of floating-point numbers makes."""
    found = [ours - theirs for ours, theirs in pairs]
    least = ROUNDING * max(abs(value) for pair in pairs for value in pair)
    if max(found) - min(found) > least:
        return found
    return [found[0] if abs(found[0]) > least else 0.0] * len(found)


def _over(looks: Looks | None, p: float) -> float:
    return p if looks is None else float(looks.adjusted(p))


def correct(differences: Sequence[Difference | None]) -> list[Difference | None]:
    """Fill in Holm-corrected p-values and levels over one table, in the order given."""
    different = holm([d and d.p for d in differences])
    near = holm([d and d.p_equivalent for d in differences])
    levels = (_level(different), _level(near))
    return [
        d and replace(d, p_holm=p, p_equivalent_holm=p_near, levels=levels)
        for d, p, p_near in zip(differences, different, near, strict=True)
    ]


def _level(corrected: Sequence[float | None]) -> float:
    """Where Holm's step-down stands: what is settled counts no more."""
    return LEVEL / max(1, sum(p is not None and p >= LEVEL for p in corrected))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's (1979) step-down adjusted p-values, in the order given; None stands for no test."""
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        adjusted[index] = highest
    return adjusted


def verdict(found: Difference | None, *, direction: str) -> str:
    """Say in words what the seeds show about a cell against its baseline.

    Args:
        found: the difference, corrected over its table by `correct`.
        direction: "min" where smaller values of the metric are better, else "max".
    """
    if found is None:
        return "no seed in common with the baseline"
    n, finding = found.interval.n, found.finding
    if found.interval.sd is None:
        return "not settled: one seed, no interval"
    if found.p is None and found.looks:
        return f"not settled: {n} pairs of seeds, the first look is at {found.looks.first}"
    if finding == "same":
        return f"the same value in each of {n} seeds"
    if finding == "equivalent":
        return "equivalent within the margin"
    if finding:
        word = "better" if (finding == "lower") == (direction == "min") else "worse"
        return f"{word}, by less than the margin" if found.small else word
    same = "" if found.interval.sd else f"the same {'value' if found.same else 'difference'} in each of {n} seeds; "
    return f"not settled: {same}{_more_seeds(seeds_needed(found), n)}"


def seeds_needed(found: Difference) -> int | None:
    """Estimate how many seeds in all would settle it, if mean and spread stay as seen; None beyond 1,000.

    Settled means that with a chance of 80 % either the difference from zero shows or, where there is a margin, the
    equivalence does, at the levels that Holm and the looks leave to it. An estimate from few seeds is rough, and the
    smaller the difference the more often too low (`reports/validity`).
    """
    seen, (far, near) = found.interval, found.levels
    assert seen.sd is not None
    if found.looks is not None:
        far, near = 2 * found.looks.nominal(far / 2), found.looks.nominal(near)
    if seen.sd == 0:
        level = LEVEL if found.same else max(far / 2, near if found.margin and abs(seen.mean) < found.margin else 0)
        return next(n for n in range(seen.n + 1, MOST_SEEDS) if _signs(n) < level)
    if not (seen.mean or found.margin):
        return None
    how = {"sd": seen.sd, "margin": found.margin, "levels": (far, near)}
    most = range(max(seen.n + 1, 3), MOST_SEEDS + 1)
    enough = bisect_left(most, POWER, key=lambda n: power(n, seen.mean, **how))
    return most[enough] if enough < len(most) else None


def power(
    n: int, mean: float, *, sd: float, margin: float | None = None, levels: tuple[float, float] = (LEVEL, LEVEL)
) -> float:
    """The chance that n seeds settle a true difference `mean` whose spread over seeds is `sd`.

    Given the spread that n seeds happen to show, what stays open is a mean that lies too close to zero to differ from it
    and not close enough to be equivalent; averaged over 200 quantiles of that spread.

    Args:
        levels: of the two-sided t-test, and of the two one-sided tests.
    """
    import numpy
    from scipy.special import chdtri, ndtr

    upper = 1 - (numpy.arange(200) + 0.5) / 200
    error = sd / math.sqrt(n)
    seen = error * numpy.sqrt(chdtri(n - 1, upper) / (n - 1))
    differs = _t_quantile(1 - levels[0] / 2, n - 1) * seen
    equals = numpy.maximum(0, (margin or 0) - _t_quantile(1 - levels[1], n - 1) * seen)

    def within(edge: numpy.ndarray) -> numpy.ndarray:
        return ndtr((edge - mean) / error) - ndtr((-edge - mean) / error)

    return float(1 - numpy.mean(numpy.where(equals < differs, within(differs) - within(equals), 0)))


def _more_seeds(needed: int | None, n: int) -> str:
    if n < FEW:
        return f"{n} seeds are too few"
    if needed is None:
        return f"more than {MOST_SEEDS} seeds would be needed"
    more = needed - n if needed - n < 20 else round((needed - n) / 10) * 10
    return f"about {more} more seed{'' if more == 1 else 's'} would settle it"


def _p_beyond(seen: Interval, distance: float) -> float:
    """The one-sided p-value of a mean that lies `distance` on the right side of what is tested."""
    from scipy.special import stdtr

    if seen.sd == 0:
        return _signs(seen.n) if distance > 0 else 1.0
    assert seen.sd is not None
    return float(stdtr(seen.n - 1, -distance / (seen.sd / math.sqrt(seen.n))))


def _signs(n: int) -> float:
    """The chance that n seeds all lie on a given side, where each side is equally likely."""
    return 0.5**n


def _t_quantile(probability: float, freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))
