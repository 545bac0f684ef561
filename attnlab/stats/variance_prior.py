"""The prior of moderated variances: the comparisons of one table borrow strength from each other.

Two or three pairs estimate a variance poorly, and the t-test pays for it with wide intervals. The comparisons of one table
usually have similar variances. Smyth (2004) therefore shrinks the variance of each comparison, with d degrees of freedom,
toward a common value: a prior with d0 degrees of freedom at the variance s0^2.

    moderated variance = (d0 s0^2 + d s^2) / (d0 + d)

The t-statistic with this variance has d0 + d degrees of freedom. Here s0^2 is the mean of the table's variances, and d0 is
a small number that does not depend on the data. Where variances differ, Smyth's estimate of d0 and a pooled variance make
more false verdicts than they promise. So does any d0 for a comparison that scatters more than the others, once these are found
different and Holm's method no longer counts them: a verdict therefore also needs the comparison's t-test without a prior
(`attnlab.stats.paired`).

Some comparisons are unlike the others. A twin of the baseline, for example the same attention written in another way, scatters
much less, and would borrow a variance that is not its own. A cell that is not paired with the baseline scatters much more, and
would lend the others a variance that hides their differences. Both have no prior and lend nothing when less than one of a
thousand tables has so small or so large a variance among comparisons that scatter alike.

Reference:
    Smyth, G. K. (2004). Linear models and empirical Bayes methods for assessing differential expression in microarray
    experiments. Statistical Applications in Genetics and Molecular Biology 3, article 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_COMPARISONS = 3
MAX_DEGREES_OF_FREEDOM = 4
MAX_DEGREES_OF_FREEDOM_OF_FEW_PAIRS = {2: 2, 3: 3}
MAX_DEGREES_OF_FREEDOM_OF_GROUPS = 2  # of each prior in a table with several levels or tests, and of several tables
ODD = 0.001  # share of tables with a comparison that counts as unlike the others on one side, if all scatter alike


@dataclass(frozen=True)
class VariancePrior:
    """The prior of the variances in one table.

    Attributes:
        degrees_of_freedom: Its weight against the n - 1 degrees of freedom of n pairs.
        variance: The table's mean variance of a pair's difference, in the metric's unit squared.
    """

    degrees_of_freedom: int
    variance: float


def table_prior(
    variances: Sequence[float], pairs: Sequence[int], *, most: int = MAX_DEGREES_OF_FREEDOM
) -> VariancePrior | None:
    """Return the prior of a table's variances, or None when the table is too small to borrow from.

    Args:
        variances: Sample variance of the paired differences of each comparison with a t-test; all are positive.
        pairs: Number of pairs of each comparison, at least 2.
        most: Largest number of degrees of freedom of the prior.
    """
    degrees_of_freedom = min(most, prior_degrees_of_freedom(min(pairs, default=0), len(variances)))
    if not degrees_of_freedom:
        return None
    return VariancePrior(degrees_of_freedom, sum(variances) / len(variances))


def are_odd(variances: Sequence[float], pairs: Sequence[int]) -> list[bool]:
    """Return for each comparison whether its variance is too small or too large to equal the variance of the others.

    Args:
        variances: As for `table_prior`.
        pairs: Number of pairs of each comparison, at least 2.
    """
    from scipy.special import fdtr, fdtrc

    total, freedom = sum(variances), sum(pairs) - len(pairs)
    odd = []
    for variance, n in zip(variances, pairs, strict=True):
        others = (total - variance) / max(len(variances) - 1, 1)
        tails = (tail(n - 1, freedom - (n - 1), variance / others) for tail in (fdtr, fdtrc)) if others > 0 else ()
        odd.append(any(p < ODD / len(variances) for p in tails))
    return odd


def prior_degrees_of_freedom(pairs: int, comparisons: int) -> int:
    """Return the degrees of freedom of the prior: 4, fewer in small tables, 0 below 3 comparisons.

    The numbers are about the largest for which at most 6 % of simulated tables have a false verdict, if the standard deviations
    of runs differ by a factor of up to 4 (see `reports/validity`). The hardest case is a shared baseline that scatters most:
    all differences then scatter alike, so that they lend each other less than they seem to.

    Args:
        pairs: Smallest number of pairs among the comparisons.
        comparisons: Number of comparisons.
    """
    if comparisons < MIN_COMPARISONS or pairs < 2:
        return 0
    by_size = comparisons // 3 if pairs == 2 else pairs + comparisons - 5
    return min(by_size, MAX_DEGREES_OF_FREEDOM_OF_FEW_PAIRS.get(pairs, MAX_DEGREES_OF_FREEDOM))
