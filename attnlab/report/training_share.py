"""The report's section on differences as a share of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from attnlab.report.analysis import Analysis, Results
from attnlab.report.plots.lines import format_level
from attnlab.report.section import Column, PageSection, Table, TableRow
from attnlab.stats.compare import ComparisonSpec
from attnlab.stats.paired import Interval
from attnlab.stats.training_share import MIN_POINTS, WINDOWS, CellShare, ShareSource, summarize_shares

TITLE = "Share of training"
MAX_SENTENCES = 3  # with more shares, the table alone has them


def describe_share(share: CellShare) -> str:
    """Return a share in one sentence: "no_wo reaches the score of dense in 0.87 [0.82, 0.93] of the steps, ..."."""
    units = ("steps", "FLOPs", "training time")
    shares = zip(_texts(share), units, strict=True)
    parts = [f"{text} of the {unit}" for text, unit in shares if text]
    return f"{_statement(share)} in {', '.join(parts)}"


def _statement(share: CellShare) -> str:
    """Return which cell reaches the score of which."""
    faster, slower = (share.baseline, share.name) if share.share.reversed else (share.name, share.baseline)
    return f"{faster} reaches the score of {slower}"


def _texts(share: CellShare) -> list[str]:
    """Return the shares of the steps, the FLOPs and the time as text, "" where unknown."""
    return [_format(interval, bounded=share.share.bounded) for interval in share.share.shares()]


def _format(share: Interval | None, *, bounded: bool) -> str:
    """Format a share as in "0.87 [0.82, 0.93]"; "at most 0.87" if the curves begin too late to show more."""
    if share is None:
        return ""
    if bounded:
        return f"at most {_number(share.mean)}"
    return _number(share.mean) + (
        "" if share.low is None or share.high is None else f" [{_number(share.low)}, {_number(share.high)}]"
    )


def _number(value: float) -> str:
    return "> 99" if value > 99 else f"{value:.2f}" if math.isfinite(value) else "> 99"


def share_table(shares: Sequence[CellShare], *, colors: Mapping[str, str]) -> Table:
    """Return a table with one row per comparison.

    Args:
        shares: At least one.
        colors: Cell -> color.
    """
    columns = [Column("", is_text=True), Column("steps"), Column("FLOPs"), Column("training time"), Column("seeds")]
    several = len({share.source for share in shares}) > 1
    columns += [Column("read from", is_text=True)] if several else []
    rows = []
    for share in shares:
        texts = [f"{_statement(share)} in", *_texts(share), str(share.share.log_ratio.n)]
        texts += [*([share.source.value] if several else [])]
        rows.append(TableRow(texts, colors.get(share.cell, "")))
    filled = [i for i in range(len(columns)) if i == 0 or any(row.cells[i] for row in rows)]
    kept = [TableRow([row.cells[i] for i in filled], row.color) for row in rows]
    return Table([columns[i] for i in filled], kept)


def share_paragraphs(shares: Sequence[CellShare], spec: ComparisonSpec) -> list[str]:
    """Return the paragraphs above the table: a few shares as sentences, the curves that they are read from, and the limits."""
    sentences = [f"{'; '.join(describe_share(share) for share in shares)}."] if len(shares) <= MAX_SENTENCES else []
    return [*sentences, _describe_source(shares, spec)]


def _describe_source(shares: Sequence[CellShare], spec: ComparisonSpec) -> str:
    """Return which curves shares are read from, and what such curves do not show."""
    sources = {share.source for share in shares}
    if ShareSource.LEVELS in sources:
        levels = ", ".join(format_level(level) for level in shares[0].levels)
        noun = spec.over.rpartition(".")[2]
        return (
            f"The part of the longest training after which the faster cell has the final {spec.metric} of the slower one, "
            f"interpolated over the logarithm of {noun} between trainings of {levels} {noun}: these scores are those that "
            "shorter trainings reached."
        )
    curves = " or ".join(
        text
        for source, text in (
            (ShareSource.VALIDATION, f"the validation curve of {spec.metric}"),
            (ShareSource.LOSS, "the running mean of the training loss"),
        )
        if source in sources
    )
    return (
        f"The part of the training after which the faster cell first reaches the final value of the slower one, on {curves}. "
        "With a decaying learning rate, an intermediate point of a curve is not what a shorter training would have reached: "
        "these shares compare curves, and tend to understate what training for less time would save."
    )


def share_notes(shares: Sequence[CellShare]) -> list[str]:
    """Return notes on the figures of the table."""
    texts = [
        "Shares are computed for each seed and averaged as logarithms; brackets are the 95 % interval over seeds. It is not "
        "corrected for the number of rows, and the verdicts do not depend on it.",
        "A seed in which the slower cell of the row is the faster one counts with the reciprocal share, and one in which "
        "noise lets each reach the other's final value with the mean of both logarithms: an interval that contains 1 leaves "
        "open which cell is faster.",
        "FLOPs and training time: the share of the steps times the ratio of the costs of one step, as recorded.",
    ]
    if any(share.share.has_stages for share in shares):
        texts.append(
            "Steps are counted in the last run of a chain. FLOPs and training time include the stages that it builds on, all "
            "of which are trained before its first step."
        )
    if any(share.source is ShareSource.VALIDATION for share in shares):
        texts.append(
            f"Validation curves of at least {MIN_POINTS} points are used as they are, with straight lines between points."
        )
    if any(share.source is ShareSource.LOSS for share in shares):
        texts.append(
            f"The training loss is averaged over a window of one part in {WINDOWS} of its points, and at least three, "
            "because the loss of one batch is noisy."
        )
    if any(share.share.bounded for share in shares):
        texts.append("At most: some seeds reach the score before the first point of the curve.")
    return texts


class ShareAnalysis(Analysis[list[CellShare]]):
    """The share of its training in which the faster of two cells reaches the score of the slower one."""

    def estimate(self, results: Results) -> list[CellShare]:
        """Return the share of each comparison with curves, or over lengths of training of each trend."""
        trends = results.estimates.get("trend", ())
        assert results.curves is not None
        return summarize_shares(results.cells, results.records, results.curves, spec=results.spec, trends=trends)

    def section(self, estimate: list[CellShare], results: Results) -> PageSection:
        """Return the section with a row for each comparison."""
        table = share_table(estimate, colors=results.colors)
        return PageSection(TITLE, share_paragraphs(estimate, results.spec), table=table, notes=share_notes(estimate))
