"""Repeated looks: corrected p-values and intervals for studies that are judged at more than one number of seeds.

Looks that are announced before the first one (``run --until-conclusive``) are at ``first``, and every further seed up to
``last``. Each of them is a t-test at the same nominal level, a little below the level of the whole procedure (Pocock 1977), so
that a large effect ends the study early. The level is exact for t-statistics at these numbers of seeds, as Jennison and
Turnbull (1991) recommend for few observations: tables for known variances let 6 % pass where 5 % is promised. The intervals
are repeated confidence intervals (Jennison and Turnbull 2000, chapter 9): over all looks together they cover the true value
95 times in 100, for any stopping rule.

A study that is judged once is a study with one announced look, a test at the full level. If seeds are then added by hand and
judged again, the full level is already spent, and no correction of later looks can take that back. The looks that were not
announced therefore have levels that add up to a quarter of it at most: the k-th of them is at 5 % / 2^(k + 2), that is 0.62 %,
0.31 %, 0.16 %, ... With looks at 3, 5, 8 and 12 seeds, 5.5 % of simulated comparisons without a difference have a verdict at
one of them, at most 5.7 % in all tried schedules (`benchmarks.looks`).

The levels of announced looks have no closed form. Without a difference, the t-statistics of all looks have one joint
distribution that depends only on their numbers of seeds. It is simulated, always from the same random numbers.

References:
    Pocock, S. J. (1977). Group sequential methods in the design and analysis of clinical trials. Biometrika 64, 191-199.
    Jennison, C. and Turnbull, B. W. (1991). Exact calculations for sequential t, chi-squared and F tests. Biometrika 78,
    133-141.
    Jennison, C. and Turnbull, B. W. (2000). Group Sequential Methods with Applications to Clinical Trials. Chapman & Hall.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

SIMULATIONS = 100_000  # studies without a difference; each counts for both directions
FARTHEST_LOOK = 48  # pairs


@dataclass(frozen=True)
class Looks:
    """The numbers of seeds at which a study is judged: each from ``first`` to ``last``, and the ``further`` ones.

    A number of seeds counts pairs that both completed: a seed that diverged adds no look.

    Attributes:
        first, last: of the looks that were announced before the first one. A study judged once has ``first == last``.
        further: larger numbers of seeds at which it was judged later, increasing.

    Raises:
        ValueError: unless ``2 <= first <= last``, and ``further`` increases from there.
    """

    first: int
    last: int
    further: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 2 <= self.first <= self.last:
            raise ValueError(f"expected 2 <= first <= last, got {self.first} and {self.last}")
        if list(self.further) != sorted({*self.further}) or (self.further and self.further[0] <= self.last):
            raise ValueError(f"expected increasing numbers above {self.last}, got {self.further}")

    @property
    def count(self) -> int:
        """The number of looks."""
        return self.last - self.first + 1 + len(self.further)

    @property
    def announced(self) -> bool:
        """True when more than one look was announced before the first one."""
        return self.last > self.first

    @property
    def latest(self) -> int:
        """The largest number of seeds."""
        return self.further[-1] if self.further else self.last

    def extend_to(self, n: int) -> Looks:
        """Return these looks, and a further one at ``n`` seeds if that is beyond all of them."""
        return replace(self, further=(*self.further, n)) if n > self.latest else self

    def adjust(self, p: Any, n: int | None = None) -> Any:
        """Correct a one-sided p-value (or an array of them) for all looks.

        Args:
            p: of the t-test at one look.
            n: the number of pairs at that look; default: at the latest look. A number between two looks belongs to a
                comparison with fewer pairs than the study, judged at the later of them.

        Returns:
            The level at which the looks up to this one would have a result together. For announced looks, that is the
            probability, without a difference, that at least one look has a p-value this small.
        """
        import numpy

        factor = self._look_factor(n)
        return numpy.minimum(1, factor * numpy.asarray(p)) if factor > 1 else _adjust_announced(self.first, self.last, p)

    def nominal_level(self, level: float, n: int | None = None) -> float:
        """Return the one-sided level of a look for which all looks together have ``level``: the inverse of ``adjust``."""
        factor = self._look_factor(n)
        if factor > 1:
            return level / factor
        if self.first == self.last:
            return level
        smallest = _smallest_p_values(self.first, self.last)
        rank = int(level * (1 + len(smallest))) - 1
        return max(level / (self.last - self.first + 1), float(smallest[rank - 1]) if rank > 0 else 0.0)

    def _look_factor(self, n: int | None) -> float:
        """Return the factor of a p-value at ``n`` pairs: 1 at an announced look, 2^(k + 2) at the k-th further one."""
        n = self.latest if n is None else n
        if n > self.latest:
            raise ValueError(f"expected a look at {n} pairs among those of {self}")
        return 1.0 if n <= self.last else 2.0 ** (3 + next(i for i, number in enumerate(self.further) if number >= n))


def merge_looks(several: Iterable[Looks | None]) -> Looks | None:
    """Return the looks at each number of seeds that one of several has; None without looks."""
    known = [looks for looks in several if looks is not None]
    if not known:
        return None
    announced = next((looks for looks in known if looks.announced), known[0])
    numbers = sorted({n for looks in known for n in (looks.first, looks.last, *looks.further)})
    last = announced.last if announced.announced else numbers[0]
    return Looks(numbers[0], last, tuple(n for n in numbers if n > last))


def adjusted_p(p: float, looks: Looks | None, n: int) -> float:
    """Return a one-sided p-value at ``n`` pairs, corrected for all looks; without looks, unchanged.

    If ``n`` is beyond all looks, it is a further one.
    """
    return p if looks is None else float(looks.extend_to(n).adjust(p, n))


def level_at(level: float, looks: Looks | None, n: int) -> float:
    """Return the nominal level of a one-sided test at ``n`` pairs: the inverse of ``adjusted_p``.

    Args:
        level: of all looks together.
    """
    return level if looks is None else looks.extend_to(n).nominal_level(level, n)


def levels_at(levels: tuple[float, float], looks: Looks | None, n: int) -> tuple[float, float]:
    """Return the nominal levels of a two-sided test and of two one-sided tests at ``n`` pairs.

    If ``n`` is beyond all looks, it would be a further one. Its level is computed up to ``FARTHEST_LOOK`` pairs, beyond which
    it hardly changes.

    Args:
        levels: of all looks together.
    """
    if looks is not None:
        n = min(n, max(FARTHEST_LOOK, looks.latest))
    return 2 * level_at(levels[0] / 2, looks, n), level_at(levels[1], looks, n)


def _adjust_announced(first: int, last: int, p: Any) -> Any:
    """Correct one-sided p-values for one look at each number of seeds from ``first`` to ``last``."""
    import numpy

    if first == last:
        return p
    smallest = _smallest_p_values(first, last)
    simulated = (1 + numpy.searchsorted(smallest, p, side="right")) / (1 + len(smallest))
    bonferroni = (last - first + 1) * numpy.asarray(p)  # sharper in the far tail, where few simulations lie
    return numpy.maximum(p, numpy.minimum(simulated, bonferroni))


@lru_cache(maxsize=16)
def _smallest_p_values(first: int, last: int) -> numpy.ndarray:
    """Return the smallest one-sided p-value over the looks of each simulated study, sorted."""
    import numpy

    return numpy.sort(reduce(numpy.minimum, _simulated_p_values(range(first, last + 1))))


def _simulated_p_values(numbers: Collection[int]) -> Iterator[numpy.ndarray]:
    """Yield, for each of these increasing numbers of seeds, the one-sided p-value of each simulated study and direction.

    The generator is ``RandomState`` because NumPy guarantees that its stream does not change.
    """
    import numpy
    from scipy.special import stdtr

    random = numpy.random.RandomState(1977)
    total, squares = numpy.zeros(SIMULATIONS), numpy.zeros(SIMULATIONS)
    for n in range(1, max(numbers) + 1):
        value = random.standard_normal(SIMULATIONS)
        total += value
        squares += value**2
        if n in numbers:
            below = stdtr(n - 1, total / numpy.sqrt((squares - total**2 / n) * n / (n - 1)))
            yield numpy.concatenate([1 - below, below])
