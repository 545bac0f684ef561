"""Looking more than once: what a p-value is worth when seeds are added until the verdict is settled.

Before the second look it is stated at how many seeds there will be one: at ``first``, and after each further seed up to
``last``. Every look is a t-test at one and the same level, a little below that of the whole (Pocock 1977); no look is
cheaper than another, and a large effect ends the study early. The level is that for t-statistics of these very numbers of
seeds, as Jennison and Turnbull (1991) ask for where observations are few: the tables made for known variances let 6 % pass
where 5 % is promised. The intervals are their repeated confidence intervals (2000, chapter 9): over all looks
together they hold the truth 95 times in 100, whatever made the study stop.

No formula gives that level. Where there is no difference, the t-statistics of all looks have one joint distribution, which
depends on nothing but ``first`` and ``last``: it is drawn, always from the same random numbers.

- Pocock, S. J. (1977). Group sequential methods in the design and analysis of clinical trials. Biometrika 64, 191-199.
- Jennison, C. and Turnbull, B. W. (1991). Exact calculations for sequential t, chi-squared and F tests. Biometrika 78, 133-141.
- Jennison, C. and Turnbull, B. W. (2000). Group Sequential Methods with Applications to Clinical Trials. Chapman & Hall.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

DRAWS = 100_000  # studies without a difference; each is used for both directions


@dataclass(frozen=True)
class Looks:
    """A look at each number of seeds from ``first`` (at least 2) to ``last``.

    A number of seeds is that of the pairs that both completed: a seed that diverged gives no new look.
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 2 <= self.first <= self.last:
            raise ValueError(f"expected 2 <= first <= last, got {self.first} and {self.last}")

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def reaching(self, n: int) -> Looks:
        """These looks, and more where somebody looked at ``n`` seeds that are beyond the last."""
        return Looks(self.first, max(self.last, n))

    def adjusted(self, p: Any) -> Any:
        """A one-sided p-value (or an array of them) made good for all looks together.

        The chance, where there is no difference, that at least one of the looks gives a p-value as small as this.
        """
        import numpy

        if self.count == 1:
            return p
        smallest = _smallest(self.first, self.last)
        drawn = (1 + numpy.searchsorted(smallest, p, side="right")) / (1 + len(smallest))
        bonferroni = self.count * numpy.asarray(p)  # far out, where few draws lie, it is the sharper one
        return numpy.maximum(p, numpy.minimum(drawn, bonferroni))

    def nominal(self, level: float) -> float:
        """The one-sided level of each single look, so that that of all together is ``level``: ``adjusted`` turned round."""
        if self.count == 1:
            return level
        smallest = _smallest(self.first, self.last)
        rank = int(level * (1 + len(smallest))) - 1
        return max(level / self.count, float(smallest[rank - 1]) if rank > 0 else 0.0)

    @property
    def words(self) -> str:
        """For the reader of a report."""
        return (
            f"Seeds were added while a verdict was open, with a look at each number of seeds from {self.first} to {self.last}. "
            f"Intervals, p-values and verdicts are corrected for all {self.count} looks: each is a t-test at "
            f"{2 * self.nominal(0.025):.2%}, so that all together err 5 times in 100 (Pocock 1977, with the exact level for "
            "t-tests after Jennison and Turnbull 1991)."
        )


@lru_cache(maxsize=16)
def _smallest(first: int, last: int) -> numpy.ndarray:
    """The smallest one-sided p-value over the looks in each drawn study, sorted. RandomState: numpy promises its stream."""
    import numpy
    from scipy.special import stdtr

    random = numpy.random.RandomState(1977)
    total, squares = numpy.zeros(DRAWS), numpy.zeros(DRAWS)
    largest, least = numpy.zeros(DRAWS), numpy.ones(DRAWS)  # of P(T < t)
    for n in range(1, last + 1):
        value = random.standard_normal(DRAWS)
        total += value
        squares += value**2
        if n >= first:
            below = stdtr(n - 1, total / numpy.sqrt((squares - total**2 / n) * n / (n - 1)))
            largest, least = numpy.maximum(largest, below), numpy.minimum(least, below)
    return numpy.sort(numpy.concatenate([1 - largest, least]))
