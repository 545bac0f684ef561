"""Repeated looks: corrected p-values and intervals for studies that add seeds until their verdicts are conclusive.

The numbers of seeds at which a study is tested are fixed before the second look: ``first``, and every further seed up to
``last``. Each look is a t-test at the same nominal level, a little below that of the whole procedure (Pocock 1977), so that a
large effect ends the study early. The level is exact for t-statistics at these numbers of seeds, as Jennison and Turnbull
(1991) recommend for few observations: tables for known variances let 6 % pass where 5 % is promised. The intervals are
repeated confidence intervals (Jennison and Turnbull 2000, chapter 9): over all looks together they cover the true value 95
times in 100, for any stopping rule.

The level has no closed form. Without a difference, the t-statistics of all looks have one joint distribution that depends
only on ``first`` and ``last``. It is simulated, always from the same random numbers.

References:
    Pocock, S. J. (1977). Group sequential methods in the design and analysis of clinical trials. Biometrika 64, 191-199.
    Jennison, C. and Turnbull, B. W. (1991). Exact calculations for sequential t, chi-squared and F tests. Biometrika 78,
    133-141.
    Jennison, C. and Turnbull, B. W. (2000). Group Sequential Methods with Applications to Clinical Trials. Chapman & Hall.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

SIMULATIONS = 100_000  # studies without a difference; each counts for both directions


@dataclass(frozen=True)
class Looks:
    """One look at each number of seeds from ``first`` to ``last``.

    A number of seeds counts pairs that both completed: a seed that diverged adds no look.

    Raises:
        ValueError: unless ``2 <= first <= last``.
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 2 <= self.first <= self.last:
            raise ValueError(f"expected 2 <= first <= last, got {self.first} and {self.last}")

    @property
    def count(self) -> int:
        """The number of looks."""
        return self.last - self.first + 1

    def extend_to(self, n: int) -> Looks:
        """Return these looks, extended where a study was tested at ``n`` seeds beyond the last."""
        return Looks(self.first, max(self.last, n))

    def adjust(self, p: Any) -> Any:
        """Correct a one-sided p-value (or an array of them) for all looks.

        Returns:
            The probability, without a difference, that at least one look has a p-value this small.
        """
        import numpy

        if self.count == 1:
            return p
        smallest = _smallest_p_values(self.first, self.last)
        simulated = (1 + numpy.searchsorted(smallest, p, side="right")) / (1 + len(smallest))
        bonferroni = self.count * numpy.asarray(p)  # sharper in the far tail, where few simulations lie
        return numpy.maximum(p, numpy.minimum(simulated, bonferroni))

    def nominal_level(self, level: float) -> float:
        """Return the one-sided level of each look for which all looks together have ``level``: the inverse of ``adjust``."""
        if self.count == 1:
            return level
        smallest = _smallest_p_values(self.first, self.last)
        rank = int(level * (1 + len(smallest))) - 1
        return max(level / self.count, float(smallest[rank - 1]) if rank > 0 else 0.0)


@lru_cache(maxsize=16)
def _smallest_p_values(first: int, last: int) -> numpy.ndarray:
    """Return the smallest one-sided p-value over the looks of each simulated study, sorted.

    The generator is ``RandomState`` because NumPy guarantees that its stream does not change.
    """
    import numpy
    from scipy.special import stdtr

    random = numpy.random.RandomState(1977)
    total, squares = numpy.zeros(SIMULATIONS), numpy.zeros(SIMULATIONS)
    largest, least = numpy.zeros(SIMULATIONS), numpy.ones(SIMULATIONS)  # of P(T < t) over the looks
    for n in range(1, last + 1):
        value = random.standard_normal(SIMULATIONS)
        total += value
        squares += value**2
        if n >= first:
            below = stdtr(n - 1, total / numpy.sqrt((squares - total**2 / n) * n / (n - 1)))
            largest, least = numpy.maximum(largest, below), numpy.minimum(least, below)
    return numpy.sort(numpy.concatenate([1 - largest, least]))
