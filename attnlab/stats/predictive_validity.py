"""Predictive validity: do verdicts at a low level of `over`, such as few training steps, keep their sign at a higher one?

A study with `over` trains the same cells at several levels. At each level, all pairs of cells are compared as in a table of
verdicts: paired t-tests with moderated variances, corrected by Holm's method over the pairs of that level, as if the study had
no other level. Of the pairs with a verdict (better or worse) at the lower level, the share is estimated whose measured mean
difference has the same sign at the higher level.

The estimated probability refers to another pair of cells of the same kind, trained and measured at both levels with as
many seeds. The sign at the higher level is that of a mean over seeds and not of the true difference: where two cells hardly
differ, it is partly chance. The pairs with a verdict at both levels are therefore counted as well.

Pairs share cells, so they are not independent, and a binomial interval over pairs is too narrow. The interval is that of
Clopper and Pearson (1934) for a smaller number of pairs, as Korn and Graubard (1998) use it in surveys: the number at which a
binomial share has the variance that the jackknife over cells finds, and at most one less than the number of cells. In
simulations of 5 to 12 cells it covers the probability in at least 93 % of studies, and in nearly all of them where most pairs
keep their sign; with 4 cells it covers 91 % in one setting (`benchmarks/predictive_validity.py`).

References:
    Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits illustrated in the case of the binomial.
    Biometrika 26, 404-413.
    Korn, E. L. and Graubard, B. I. (1998). Confidence intervals for proportions with small expected number of positive counts
    estimated from survey data. Survey Methodology 24, 193-201.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from attnlab.stats import paired
from attnlab.stats.cells import CellSummary, ComparisonSpec, split_tasks
from attnlab.stats.compare import compare_pair
from attnlab.stats.moderation import moderate
from attnlab.stats.paired import LEVEL, Difference
from attnlab.stats.trend import name_without_level

MIN_CELLS = 5  # with fewer, intervals are nearly as wide as [0, 1] and do not always cover

Pair = tuple[str, str]  # names of two cells without the level


@dataclass(frozen=True)
class SignAgreement:
    """The verdicts at one level of `over` and the differences at a higher one, over all pairs of cells.

    Attributes:
        task: The task's label in a study of several tasks, else "".
        axis: The axis of the levels.
        lower, higher: The two levels.
        cells: Number of cells with results at both levels.
        pairs: Number of pairs of them.
        verdicts: Number of pairs with a verdict of better or worse at the lower level.
        kept: Number of these whose mean difference has the same sign at the higher level.
        confirmed: Number of these with the same verdict at the higher level.
        reversed: Number of these with the opposite verdict at the higher level.
        interval: 95 % interval of the probability that the sign is the same; None without a verdict at the lower level.
    """

    task: str
    axis: str
    lower: float
    higher: float
    cells: int
    pairs: int
    verdicts: int
    kept: int
    confirmed: int
    reversed: int
    interval: tuple[float, float] | None

    @property
    def share(self) -> float | None:
        """The share of verdicts whose sign is the same at the higher level; None without verdicts."""
        return self.kept / self.verdicts if self.verdicts else None


def summarize_agreement(cells: Iterable[CellSummary], spec: ComparisonSpec) -> list[SignAgreement]:
    """Return the agreement of each two levels, the lowest level first.

    Args:
        cells: As `attnlab.stats.compare.summarize_cells` returns them.
        spec: The comparison that the study makes. Without `over`, with factors, with another estimand than the mean, or with
            fewer than `MIN_CELLS` cells at two levels, there are none. Controls are left out.
    """
    if not spec.over or spec.factorial or not spec.estimator.is_mean:
        return []
    return [agreement for part, of_task in split_tasks(cells, spec) for agreement in _of_task(of_task, part)]


def _of_task(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[SignAgreement]:
    levels: dict[float, dict[str, CellSummary]] = {}
    for cell in cells:
        if cell.values and not spec.is_control(cell.axes):
            levels.setdefault(float(cell.axes[spec.over]), {})[name_without_level(cell, spec)] = cell
    agreements = []
    for lower, higher in combinations(sorted(levels), 2):
        names = [name for name in levels[lower] if name in levels[higher]]
        if len(names) >= MIN_CELLS:
            agreements.append(
                _agreement(lower, higher, [_compare_pairs(levels[level], names, spec) for level in (lower, higher)], spec)
            )
    return agreements


def _compare_pairs(cells: Mapping[str, CellSummary], names: Sequence[str], spec: ComparisonSpec) -> dict[Pair, Difference]:
    """Return the difference of each pair of cells of one level that are tested alike, corrected over these pairs.

    Pairs of which one cell lost more seeds than the other are left out.
    """
    pairs = [(a, b) for a, b in combinations(names, 2) if cells[a].test == cells[b].test]
    differences = [compare_pair(cells[a], cells[b], spec, looks=spec.looks) for a, b in pairs]
    if spec.moderate:
        differences = moderate(differences, groups=[cells[a].test for a, _ in pairs])
    corrected = paired.correct(differences)
    compared = [(pair, d) for pair, d in zip(pairs, corrected, strict=True) if d is not None]
    return {pair: difference for pair, difference in compared if difference.no_test is not paired.NoTest.LOSSES}


def _agreement(lower: float, higher: float, levels: Sequence[Mapping[Pair, Difference]], spec: ComparisonSpec) -> SignAgreement:
    """Count the pairs of two levels.

    Args:
        lower, higher: The levels.
        levels: The differences of the pairs at each of them.
        spec: Of one task.
    """
    first, second = levels
    shared = [pair for pair in first if pair in second]
    names = {name for pair in shared for name in pair}
    kept: dict[Pair, bool] = {}
    later: list[tuple[str, str]] = []  # verdicts at the lower and at the higher level
    for pair in shared:
        verdict = _verdict(first[pair])
        if verdict:
            mean = second[pair].interval.mean
            kept[pair] = mean < 0 if verdict == "lower" else mean > 0
            later.append((verdict, _verdict(second[pair])))
    return SignAgreement(
        task=spec.task,
        axis=spec.over,
        lower=lower,
        higher=higher,
        cells=len(names),
        pairs=len(shared),
        verdicts=len(kept),
        kept=sum(kept.values()),
        confirmed=sum(before == after for before, after in later),
        reversed=sum(after not in ("", before) for before, after in later),
        interval=share_interval(kept, names) if kept else None,
    )


def _verdict(difference: Difference) -> str:
    """Return "lower" or "higher" for a significant difference, else ""."""
    return difference.conclusion if difference.conclusion in ("lower", "higher") else ""


def share_interval(kept: Mapping[Pair, bool], cells: Iterable[str]) -> tuple[float, float]:
    """Return the 95 % interval of the share of pairs that keep their sign.

    Args:
        kept: Pair of cells -> its sign is the same; at least one pair.
        cells: The names of all compared cells, also of those without a verdict; at least two.
    """
    cells = list(cells)
    share = sum(kept.values()) / len(kept)
    without = []
    for cell in cells:
        rest = [same for pair, same in kept.items() if cell not in pair]
        without.append(sum(rest) / len(rest) if rest else share)
    variance = (len(cells) - 1) / len(cells) * sum((value - share) ** 2 for value in without)
    number = min(len(kept), len(cells) - 1)
    if variance > 0:
        number = max(1.0, min(number, share * (1 - share) / variance))
    return clopper_pearson(share * number, number)


def clopper_pearson(successes: float, number: float) -> tuple[float, float]:
    """Return the 95 % interval of Clopper and Pearson; the numbers may be fractions."""
    from scipy.special import betaincinv

    low = float(betaincinv(successes, number - successes + 1, LEVEL / 2)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, number - successes, 1 - LEVEL / 2)) if successes < number else 1.0
    return low, high
