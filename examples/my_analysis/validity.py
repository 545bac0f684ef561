"""Predictive validity: do verdicts at a low level of `over`, for example few training steps, keep their sign at a higher one?

A study with `over` trains the same cells at several levels. At each level, all pairs of cells are compared as in a table of
verdicts: paired t-tests with moderated variances, corrected by Holm's method over the pairs of that level, as if the study had
no other level. Of the pairs with a verdict (better or worse) at the lower level, the estimated share keeps the sign of its
measured mean difference at the higher level.

The estimated probability refers to another pair of cells of the same kind, trained and measured at both levels with as
many seeds. The sign at the higher level belongs to a mean over seeds and not to the true difference: where two cells hardly
differ, it is partly chance. The pairs with a verdict at both levels are therefore counted as well.

Pairs share cells, so they are not independent, and a binomial interval over pairs is too narrow. Related cells may also change
places together: when two families of cells do, all pairs between them change their sign at once. The interval is by
Clopper and Pearson (1934) for a smaller number of pairs, as Korn and Graubard (1998) use it in surveys, the smaller one of:

- one less than the largest number of cells that all have verdicts on each other at the lower level. Cells without a verdict
  on each other may be one family, and count once.
- the odds of the share: a binomial share of so many pairs has the variance that the jackknife over two families finds, if all
  pairs that change their sign are between them.

In simulations of 5 to 12 cells it covers the probability in at least 93 % of studies, also where two families change places
together. It covers 92 % where the order of all cells is reversed at once in one study of ten
(`benchmarks/predictive_validity.py`).

Verdicts on cells that nearly tie keep their sign less often. They are counted by themselves: the third of the verdicts with
the smallest differences at the lower level.

References:
    Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits illustrated in the case of the binomial.
    Biometrika 26, 404-413.
    Korn, E. L. and Graubard, B. I. (1998). Confidence intervals for proportions with small expected number of positive counts
    estimated from survey data. Survey Methodology 24, 193-201.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean

from attnlab.report.analysis import Analysis, Results
from attnlab.report.plots.lines import format_level
from attnlab.report.section import Column, PageSection, Strong, Table, TableRow
from attnlab.report.summary import Summary
from attnlab.report.wording import count, format_metric, level_noun
from attnlab.stats import paired
from attnlab.stats.cells import CellSummary, ComparisonSpec, split_tasks
from attnlab.stats.compare import compare_pair
from attnlab.stats.joint import moderate
from attnlab.stats.paired import LEVEL, Difference
from attnlab.stats.trend import name_without_level

MIN_CELLS = 5  # with fewer, intervals are nearly as wide as [0, 1] and do not always cover

Pair = tuple[str, str]  # names of two cells without the level

TITLE = "Predictive validity"


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
        kept: Number of these with a mean difference of the same sign at the higher level.
        near: Number of verdicts on nearly tied cells: the third with the smallest differences at the lower level.
        near_kept: Number of these with a mean difference of the same sign at the higher level.
        near_size: The largest difference among them, in the metric's unit; None without any.
        confirmed: Number of all verdicts with the same verdict at the higher level.
        reversed: Number of them with the opposite verdict at the higher level.
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
    near: int
    near_kept: int
    near_size: float | None
    confirmed: int
    reversed: int
    interval: tuple[float, float] | None

    @property
    def share(self) -> float | None:
        """The share of verdicts that have the same sign at the higher level; None without verdicts."""
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
                _agreement(
                    levels, lower, higher, [_compare_pairs(levels[level], names, spec) for level in (lower, higher)], spec
                )
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


def _agreement(
    cells: Mapping[float, Mapping[str, CellSummary]],
    lower: float,
    higher: float,
    compared: Sequence[Mapping[Pair, Difference]],
    spec: ComparisonSpec,
) -> SignAgreement:
    """Count the pairs of two levels.

    Args:
        cells: Level -> name -> cell.
        lower, higher: The levels.
        compared: The differences of the pairs at each of them.
        spec: Of one task.
    """
    first, second = compared
    shared = [pair for pair in first if pair in second]
    names = {name for pair in shared for name in pair}
    kept: dict[Pair, bool] = {}
    later: list[tuple[str, str]] = []  # verdicts at the lower and at the higher level
    for pair in sorted(shared, key=lambda pair: abs(first[pair].interval.mean)):
        verdict = _verdict(first[pair])
        if verdict:
            mean = second[pair].interval.mean
            kept[pair] = mean < 0 if verdict == "lower" else mean > 0
            later.append((verdict, _verdict(second[pair])))
    near = [*kept][: round(len(kept) / 3)]
    values = cells[lower]
    return SignAgreement(
        task=spec.task,
        axis=spec.over,
        lower=lower,
        higher=higher,
        cells=len(names),
        pairs=len(shared),
        verdicts=len(kept),
        kept=sum(kept.values()),
        near=len(near),
        near_kept=sum(kept[pair] for pair in near),
        near_size=abs(first[near[-1]].interval.mean) if near else None,
        confirmed=sum(before == after for before, after in later),
        reversed=sum(after not in ("", before) for before, after in later),
        interval=share_interval(kept, sorted(names, key=lambda name: fmean(values[name].values.values()))) if kept else None,
    )


def _verdict(difference: Difference) -> str:
    """Return "lower" or "higher" for a significant difference, else ""."""
    return difference.conclusion if difference.conclusion in ("lower", "higher") else ""


def share_interval(kept: Mapping[Pair, bool], cells: Sequence[str]) -> tuple[float, float]:
    """Return the 95 % interval of the share of pairs that keep their sign.

    Args:
        kept: Pair of cells -> its sign is the same; at least one pair.
        cells: The names of all compared cells, also of those without a verdict, ordered by their scores at the lower level; at
            least two.
    """
    share = sum(kept.values()) / len(kept)
    number = float(min(len(kept), len(_longest_chain(kept, cells)) - 1))
    if 0 < share < 1:
        number = min(number, max(share / (1 - share), (1 - share) / share))
    number = max(1.0, number)
    return clopper_pearson(share * number, number)


def _longest_chain(kept: Iterable[Pair], cells: Sequence[str]) -> list[str]:
    """Return the largest set of ordered cells in which neighbors, and so all cells, have verdicts on each other."""
    different = {frozenset(pair) for pair in kept}
    longest: dict[str, list[str]] = {}  # cell -> the longest chain that ends there
    for cell in cells:
        before = [chain for other, chain in longest.items() if {other, cell} in different]
        longest[cell] = [*max(before, key=len, default=[]), cell]
    return max(longest.values(), key=len)


def clopper_pearson(successes: float, number: float) -> tuple[float, float]:
    """Return the 95 % interval of Clopper and Pearson; the numbers may be fractions."""
    from scipy.special import betaincinv

    low = float(betaincinv(successes, number - successes + 1, LEVEL / 2)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, number - successes, 1 - LEVEL / 2)) if successes < number else 1.0
    return low, high


def format_share(agreement: SignAgreement) -> str:
    """Format the share of verdicts that keep their sign, as in "0.93 [0.78, 0.98]"; "" without verdicts."""
    if agreement.share is None or agreement.interval is None:
        return ""
    low, high = agreement.interval
    return f"{agreement.share:.2f} [{low:.2f}, {high:.2f}]"


def format_near(agreement: SignAgreement) -> str:
    """Format the number of verdicts on nearly tied cells that keep their sign, as in "5 of 9"; "" without any."""
    return f"{agreement.near_kept} of {agreement.near}" if agreement.near else ""


def describe_agreement(agreement: SignAgreement, spec: ComparisonSpec) -> str:
    """Return the agreement of two levels in one line, for the terminal."""
    lower, higher = format_level(agreement.lower), format_level(agreement.higher)
    text = f"{lower} to {higher} {level_noun(spec)}: "
    if agreement.share is None:
        return f"{text}no verdict on any of {count(agreement.pairs, 'pair')} at {lower}"
    near = f", and {format_near(agreement)} on nearly tied ones" if agreement.near else ""
    return (
        f"{text}{agreement.kept} of {count(agreement.verdicts, 'verdict')} on {count(agreement.pairs, 'pair')} of "
        f"{agreement.cells} cells keep their sign, {format_share(agreement)}{near}; at {higher}, {agreement.confirmed} are the "
        f"same verdict and {agreement.reversed} the opposite one"
    )


def validity_section(agreements: Sequence[SignAgreement], spec: ComparisonSpec) -> PageSection:
    """Return the section on whether verdicts at low levels predict signs at higher ones."""
    paragraph = (
        f"Do verdicts at a low level of {level_noun(spec)} predict those at a higher one? All pairs of cells are compared, not "
        "only those with the baseline. Of the pairs with a verdict of better or worse at the lower level, the table "
        "counts those whose mean difference has the same sign at the higher level."
    )
    return PageSection(TITLE, [paragraph], table=validity_table(agreements, spec), notes=validity_notes(agreements))


def validity_table(agreements: Sequence[SignAgreement], spec: ComparisonSpec) -> Table:
    """Return a table with one row per two levels."""
    columns = [Column(level_noun(spec), is_text=True), Column("cells"), Column("pairs")]
    columns += [Column("verdicts, lower"), Column("same sign, higher"), Column("nearly tied, same sign")]
    columns += [Column("probability of the same sign")]
    columns += [Column("same verdict, higher"), Column("opposite verdict, higher")]
    rows = [
        TableRow(
            [
                f"{format_level(agreement.lower)} to {format_level(agreement.higher)}",
                str(agreement.cells),
                str(agreement.pairs),
                str(agreement.verdicts),
                str(agreement.kept),
                format_near(agreement),
                format_share(agreement),
                str(agreement.confirmed),
                str(agreement.reversed),
            ]
        )
        for agreement in agreements
    ]
    return Table(columns, rows)


def validity_notes(agreements: Sequence[SignAgreement]) -> list[str]:
    """Return notes on the figures of the table."""
    texts = [
        "Verdicts of this table come from paired t-tests at 5 %, corrected by Holm's method over all pairs of one level. They "
        "may differ from the verdicts of the study's main table, which has fewer pairs and all levels.",
        "Probability: for another pair of cells like these, with a verdict at the lower level, that the means over as many "
        "seeds have the same sign at the higher level. Where two cells hardly differ there, the sign is partly chance; the "
        "last two columns count only pairs with a verdict at both levels.",
        "Pairs share cells, and related cells may change places together. The 95 % interval is therefore computed for a "
        "smaller number of independent pairs, at most one less than the largest number of cells that all have verdicts on each "
        "other. With 5 to 12 cells it covers in at least 93 % of simulated studies, also where two families of cells change "
        "places.",
    ]
    if sizes := [format_metric(a.near_size) for a in agreements if a.near_size is not None]:
        texts.append(
            "Nearly tied: the third of the verdicts with the smallest differences at the lower level "
            f"(up to {', '.join(dict.fromkeys(sizes))})."
        )
    if any(agreement.verdicts == 0 for agreement in agreements):
        texts.append("Without a verdict at the lower level, there is no probability.")
    return texts


class PredictiveValidity(Analysis[list[SignAgreement]]):
    """The agreement of verdicts at a low level of `over` with the signs at a higher one."""

    def estimate(self, results: Results) -> list[SignAgreement]:
        """Return the agreement of each two levels."""
        return summarize_agreement(results.cells, results.spec)

    def summarize(self, summary: Summary, estimate: list[SignAgreement], results: Results) -> Summary:
        """Begin with the agreement of the lowest and the highest level."""
        ends = max(estimate, key=lambda agreement: agreement.higher - agreement.lower)
        if not ends.verdicts:
            return summary
        noun, kept = level_noun(results.spec), f"{ends.kept} keep{'s' if ends.kept == 1 else ''} the sign"
        about = f"Of {count(ends.verdicts, 'verdict')} at {format_level(ends.lower)} {noun}, between any two cells, "
        return replace(summary, plain=[about, Strong(kept), f" at {format_level(ends.higher)} {noun}. ", *summary.plain])

    def lines(self, estimate: list[SignAgreement], results: Results) -> Iterator[str]:
        """Yield a line for each two levels."""
        for agreement in estimate:
            yield f"predictive validity: {describe_agreement(agreement, results.spec)}"

    def section(self, estimate: list[SignAgreement], results: Results) -> PageSection:
        """Return the section with the table of agreements."""
        return validity_section(estimate, results.spec)
