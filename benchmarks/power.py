"""The number of seeds that is conclusive with a probability, for a known mean and spread.

Reports predict verdicts from the seeds that they have (`attnlab.stats.predict`); these are the numbers for a truth that is
known, with which simulations and tests compare them.
"""

from __future__ import annotations

from bisect import bisect_left

from attnlab.stats.paired import LEVEL, Difference
from attnlab.stats.predict import MAX_SEEDS, POWER, power
from attnlab.stats.sequential import levels_at


def seeds_needed(difference: Difference) -> int | None:
    """Return the total number of seeds for a conclusion, if mean and spread are those that were observed.

    A conclusion means that, with probability `POWER`, the difference from zero or (with a margin) the equivalence is
    significant at the level that Holm's correction and the looks leave to it.

    Args:
        difference: A difference whose pairs scatter.

    Returns:
        A number larger than that of the present pairs, or None beyond `MAX_SEEDS`.
    """
    mean = difference.interval
    if not (mean.mean or difference.margin):
        return None
    assert mean.moderated_sd
    options = {"sd": mean.moderated_sd, "margin": difference.margin, "prior": mean.prior}

    def power_of(n: int) -> float:
        levels, alone = (levels_at(levels, difference.looks, n) for levels in (difference.levels, (LEVEL, LEVEL)))
        return power(n, mean.mean, levels=levels, alone=alone, **options)

    candidates = range(max(mean.n + 1, 3), MAX_SEEDS + 1)
    index = bisect_left(candidates, POWER, key=power_of)
    return candidates[index] if index < len(candidates) else None
