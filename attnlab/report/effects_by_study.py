"""The effects of a contrast by study: the plot and the table of a page on several studies, with notes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from attnlab._util.colors import color_of
from attnlab.report.plots.forest import ForestRow, forest_plot
from attnlab.report.plots.svg import INK
from attnlab.report.table import Column, Table, TableRow
from attnlab.report.verdicts import verdict_p_value
from attnlab.report.wording import describe_corrections, describe_verdict, format_p_value
from attnlab.stats.cells import CellSummary, comparisons
from attnlab.stats.contrasts import Contrast, ContrastEffect, JointResult, mean_kind
from attnlab.stats.paired import Difference, NoTest
from attnlab.stats.pooling import Effect, PooledEffect, relative_effect, scale_of, scaled_effect
from attnlab.stats.simultaneous import hides_correction, simultaneous_interval


@dataclass(frozen=True)
class Unit:
    """The noun for the tables of a page, for example "study" and "studies"."""

    one: str
    many: str

    @property
    def family(self) -> str:
        """The verdicts that are corrected together: all on the page, or all of the study if its tables are tasks."""
        return "page" if self.one == "study" else "study"

    def count(self, n: int) -> str:
        return f"{n} {self.one if n == 1 else self.many}"


def draw_effects(contrast: Contrast, unit: Unit) -> str:
    """Draw the effect of a contrast in each study, and the mean with its prediction interval."""
    rows = []
    for study in contrast.studies:
        if study.effect is not None:
            several = len(study.comparisons) > 1
            label = f"{study.table.name}{f' (mean of {len(study.comparisons)} cells)' if several else ''}"
            color = color_of(contrast.name.partition(" ")[0])
            rings = {cell.name: e.mean for cell, e in zip(study.comparisons, study.effects, strict=True) if e and several}
            rows.append(_row(label, color, study, study.effect, rings))
    note = f"95 % interval; thin: holds for the whole {unit.family} together"
    if contrast.pooled is not None:
        effect, (low, high) = scaled_effect(contrast.pooled.mean.interval), contrast.pooled.prediction
        label, text = f"mean of {unit.count(len(contrast.groups))}", _with_half_width(effect)
        rows.append(ForestRow(label, INK, [], effect.mean, effect.low, effect.high, text, low, high, is_mean=True))
        note = f"95 % interval; thin: whole {unit.family}; of the mean: prediction"
    note += "; blue: margin" if any(row.margin for row in rows) else ""
    title = f"{contrast.label}: effect in %"
    return forest_plot(rows, title=title, note=note, direction="min")


def _row(label: str, color: str, study: ContrastEffect, effect: Effect, rings: Mapping[str, float]) -> ForestRow:
    ends, text = (effect.outer_low, effect.outer_high), _with_half_width(effect)
    names = [f"{name}: {value:+.3g} %" for name, value in rings.items()]
    first, margin = study.comparisons[0].difference, study.table.spec.margin
    scale = abs(effect.mean / first.interval.mean) if len(study.comparisons) == 1 and first and first.interval.mean else None
    decided = any(cell.difference and cell.difference.conclusion for cell in study.comparisons)
    options = {"names": names, "decided": decided, "margin": margin * scale if margin and scale else None}
    return ForestRow(label, color, [*rings.values()], effect.mean, effect.low, effect.high, text, *ends, **options)


def effect_table(result: JointResult, unit: Unit) -> Table:
    """Return a table with a row per comparison, and one per mean, without the columns that no row fills."""
    columns = [Column("cell", is_text=True), Column("compared with", is_text=True), Column(unit.one, is_text=True)]
    columns += [Column("effect, %"), Column("steps"), Column(f"p ({unit.family})")]
    columns += [Column("verdict", is_text=True)]
    rows = []
    for contrast in result.contrasts:
        for study in contrast.studies:
            rows += [_comparison_row(cell, study, unit) for cell in (*study.lower_levels, *study.comparisons)]
        if contrast.pooled is not None:
            rows.append(_mean_row(contrast, contrast.pooled, unit))
    kept = [i for i, column in enumerate(columns) if column.is_text or any(row.cells[i] for row in rows)]
    return Table([columns[i] for i in kept], [TableRow([row.cells[i] for i in kept], row.color, row.kind) for row in rows])


def _comparison_row(cell: CellSummary, study: ContrastEffect, unit: Unit) -> TableRow:
    table = study.table
    baseline = next(other for other in table.cells if other.name == cell.baseline)
    effect = relative_effect(cell, baseline, table.spec)
    shares = [share for share in table.shares if share.cell == cell.name and share.baseline in (cell.baseline, share.baseline)]
    text = _with_half_width(effect) if effect else ""
    if cell.difference is not None and effect is not None and hides_correction(cell.difference):
        text += f" ({unit.family}: ± {_half_width(effect.outer_low, effect.outer_high)})"
    share = _share_text(shares[0].share.log_ratio.mean) if shares else ""
    for choice, other in shares[0].others if shares else ():
        share += f" (but {_share_text(other.log_ratio.mean) if other else 'unknown'} {choice})"
    texts = [cell.name, cell.baseline, table.name, text, share]
    # The seeds that it needs depend on the correction: a page on several studies states those of the study's own table.
    return TableRow([*texts, verdict_p_value(cell), describe_verdict(cell.verdict, outlook=unit.family == "study")])


def _mean_row(contrast: Contrast, pooled: PooledEffect, unit: Unit) -> TableRow:
    effect, mean = scaled_effect(pooled.mean.interval), pooled.mean
    text = _with_half_width(effect)
    if hides_correction(mean) and (outer := simultaneous_interval(mean)) is not None:
        text += f" ({unit.family}: ± {_half_width(outer.low, outer.high)})"
    share = _share_text(contrast.pooled_share.mean.interval.mean) if contrast.pooled_share else ""
    others = [_share_text(other.mean.interval.mean) if other else "unknown" for _, other in contrast.other_shares]
    share += "".join(f" (but {text} {choice})" for text, (choice, _) in zip(others, contrast.other_shares, strict=True))
    low, high = pooled.prediction
    kind = ", ".join([mean_kind(mean).value, *describe_corrections(mean_kind(mean), contrast.corrections)])
    verdict = f"{kind}; a further {unit.one}: {format_percent(low)} to {format_percent(high)}"
    of = f"mean of {unit.count(len(contrast.groups))}"
    return TableRow([contrast.name, contrast.baseline, of, text, share, format_p_value(mean.p_holm), verdict], kind="baseline")


def effect_notes(result: JointResult, unit: Unit) -> list[str]:
    """Return notes on the answer and its table."""
    scales = {table.name: scale_of(table.spec) for table in result.tables}
    known = list(dict.fromkeys(scale for scale in scales.values() if scale))
    unknown = [name for name, scale in scales.items() if not scale]
    texts = [
        f"Verdicts, p-values and the outer intervals of this answer are corrected by Holm's method over the "
        f"{result.family} tests of the {unit.family}: all comparisons of all {unit.many}, controls included"
        f"{', and the means' if unit.family == 'page' else '. The means are corrected by themselves'}. Trends are corrected "
        f"over all trends of the {unit.family}. Equivalence tests have a level of 5 % of their own.",
        f"Effect: the difference from the baseline in per cent of the baseline's {' or '.join(known) or 'score'}; a positive "
        f"one is worse. ± is half the width of the 95 % interval; “{unit.family}” is that of the interval that holds "
        "together with all others that are corrected with it.",
    ]
    if unknown:
        texts.append(f"The metric of {', '.join(unknown)} has no known natural zero, so that its effects are not in per cent.")
    lossy = [c for t in result.tables for c in comparisons(t.cells) if c.difference and c.difference.no_test is NoTest.LOSSES]
    if lossy:
        names = ", ".join(dict.fromkeys(cell.name for cell in lossy))
        texts.append(f"No effect, and no mean: {names}, because the cell and its baseline lost different numbers of seeds.")
    if any(contrast.pooled for contrast in result.contrasts):
        texts.append(_note_on_means(unit))
    texts += _note_on_groups(result, unit)
    if any(study.share for contrast in result.contrasts for study in contrast.studies):
        texts.append(
            "Steps: the cell's steps to the final score of the baseline, as a ratio to the baseline's steps; see the section "
            "“Share of training” of each report."
        )
    return texts


def _note_on_means(unit: Unit) -> str:
    return (
        f"The mean weights all independent {unit.many} alike. Its interval is that of a t-test of their effects, and covers "
        f"the mean of {unit.many} like these in at least 95 % of cases, however much effects and errors vary. The prediction "
        f"interval is for the effect in one further {unit.one} of this kind. Both assume that these {unit.many} are a random "
        "sample of those of interest."
    )


def _note_on_groups(result: JointResult, unit: Unit) -> list[str]:
    texts: dict[str, None] = {}
    for contrast in result.contrasts:
        for group in contrast.groups:
            if len(group) > 1:
                names = " and ".join(contrast.studies[i].table.name for i in group)
                texts[
                    f"{names} have data and seeds in common, or the same scores: they count as one {unit.one}, with the mean "
                    "of their effects."
                ] = None
    several = any(len(study.comparisons) > 1 for contrast in result.contrasts for study in contrast.studies)
    if several:
        texts[
            f"Several cells of one {unit.one} share seeds and data: the {unit.one} counts once, with the mean of their "
            "effects and of their intervals."
        ] = None
    if any(study.lower_levels for contrast in result.contrasts for study in contrast.studies):
        texts[f"Of several levels, the highest one counts for the {unit.one}."] = None
    return list(texts)


def format_percent(value: float) -> str:
    """Format an effect as in "+1.63 %"."""
    if 0 < abs(value) < 0.005:
        return f"{value:+.1g} %"  # +0.00 would be no effect
    return f"{value:+.2f} %" if abs(value) < 100 else f"{value:+,.0f} %"


def format_mean(mean: Difference, unit: Unit) -> str:
    """Format a mean as in "+0.80 % (95 % interval +0.40 % to +1.20 %)", with the interval that agrees with its verdict."""
    outer = simultaneous_interval(mean) if hides_correction(mean) else None
    effect, over = scaled_effect(outer or mean.interval), f" over the {unit.family}" if outer else ""
    ends = (
        ""
        if effect.low is None or effect.high is None
        else f" (95 % interval{over} {format_percent(effect.low)} to {format_percent(effect.high)})"
    )
    return f"{format_percent(effect.mean)}{ends}"


def _with_half_width(effect: Effect) -> str:
    """Format an effect as in "+0.80 ± 0.40", without the sign of per cent."""
    half_width = _half_width(effect.low, effect.high)
    return f"{effect.mean:+.2f}{f' ± {half_width}' if half_width else ''}"


def _half_width(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{(high - low) / 2:.2f}"


def _share_text(log_ratio: float) -> str:
    """Format a ratio of steps from its logarithm."""
    ratio = math.exp(min(log_ratio, 50.0))
    return f"{ratio:.2f}" if ratio < 100 else "> 99"
