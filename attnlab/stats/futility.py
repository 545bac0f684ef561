"""Futility: further seeds are not worth their cost for a comparison that will probably stay inconclusive.

Where two cells truly do not differ, a study that adds seeds until its verdicts are conclusive spends all of its seeds, unless
its margin can be reached. A comparison is futile if the probability of any verdict at the last look (`attnlab.stats.predict`)
is below a limit. The rule is non-binding: a futile comparison is inconclusive, the levels of the looks are those without the
rule, and seeds can still be added. Error rates can therefore only be smaller.

References:
    Jennison, C. and Turnbull, B. W. (2000). Group Sequential Methods with Applications to Clinical Trials. Chapman & Hall,
    chapters 4 and 10.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlab.stats.paired import Difference
from attnlab.stats.predict import predict

FUTILITY = 0.1
MIN_PAIRS = 5  # with fewer, the spread is too uncertain to give up


@dataclass(frozen=True)
class Futility:
    """The state of a comparison when it stopped receiving seeds.

    Attributes:
        pairs: Number of pairs.
        seeds: Number of pairs at the last look.
        probability: Predicted probability of a verdict at the last look.
    """

    pairs: int
    seeds: int
    probability: float


def find_futility(difference: Difference | None, seeds: int, *, below: float = FUTILITY) -> Futility | None:
    """Return the futility of an inconclusive comparison, or None when further seeds may be conclusive, or if its test is exact.

    Args:
        difference: A difference, corrected over its table.
        seeds: Number of pairs at the last look.
        below: Smallest probability of a verdict that is worth further seeds; 0: no comparison is futile.
    """
    if difference is None or difference.p is None or not difference.interval.sd:
        return None  # all pairs have the same difference, there are too few for a test, or it is exact: without a prediction
    pairs = difference.interval.n
    if not MIN_PAIRS <= pairs < seeds:
        return None
    probability = predict(difference, seeds).conclusive
    return Futility(pairs, seeds, probability) if probability < below else None
