"""The report's section on predictive validity: verdicts at a low level of `over`, and the signs at a higher one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from attnlab.report.analysis import Analysis, Results
from attnlab.report.plots.trend import format_level
from attnlab.report.section import PageSection, Strong
from attnlab.report.summary import Summary
from attnlab.report.table import Column, Table, TableRow
from attnlab.report.wording import count, format_metric, level_noun
from attnlab.stats.cells import ComparisonSpec
from attnlab.stats.predictive_validity import SignAgreement, summarize_agreement

TITLE = "Predictive validity"


def format_share(agreement: SignAgreement) -> str:
    """Format the share of verdicts that keep their sign, as in "0.93 [0.78, 0.98]"; "" without verdicts."""
    if agreement.share is None or agreement.interval is None:
        return ""
    low, high = agreement.interval
    return f"{agreement.share:.2f} [{low:.2f}, {high:.2f}]"


def format_near(agreement: SignAgreement) -> str:
    """Format the number of verdicts on nearly tied cells that keep their sign, as in "5 of 9"; "" without any."""
    return f"{agreement.near_kept} of {agreement.near}" if agreement.near else ""


AS_RECORDED = (
    "These verdicts come from the runs of the table. They are not corrected for the choice of records that the page begins "
    "with."
)


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
        "Verdicts of this table are those of paired t-tests at 5 %, corrected by Holm's method over all pairs of one level. "
        "They may differ from those of the study's main table, which has fewer pairs and all levels.",
        "Probability: for another pair of cells like these, with a verdict at the lower level, that the means over as many "
        "seeds have the same sign at the higher level. Where two cells hardly differ there, the sign is partly chance; the "
        "last two columns count only pairs with a verdict at both levels.",
        "Pairs share cells, and related cells may change places together. The 95 % interval is therefore that of a smaller "
        "number of independent pairs, at most one less than the largest number of cells that all have verdicts on each other. "
        "With 5 to 12 cells it covers in at least 93 % of simulated studies, also where two families of cells change places.",
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
        """Begin with the agreement of the lowest and the highest level, unless verdicts depend on a choice of records."""
        ends = max(estimate, key=lambda agreement: agreement.higher - agreement.lower)
        if results.compared.others or not ends.verdicts:
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
        section = validity_section(estimate, results.spec)
        return replace(section, notes=[AS_RECORDED, *section.notes]) if results.compared.others else section
