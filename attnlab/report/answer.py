"""The answer at the top of a page on several studies: sentences, plots and a table, with verdicts over the whole page.

Plots and tables show the effects of a contrast by study.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnlab._util.colors import color_of
from attnlab.config.grid import cell_name
from attnlab.report.plots.rows import ForestRow, forest_plot
from attnlab.report.plots.svg import INK
from attnlab.report.section import Column, Figure, Sentence, Strong, Table, TableRow
from attnlab.report.summary import Clause, as_sentence, describe_clause, join, remark_of
from attnlab.report.verdicts import verdict_p_value
from attnlab.report.wording import describe_verdict, format_p_value, level_noun
from attnlab.stats.cells import CellSummary, comparisons
from attnlab.stats.contrasts import (
    MIN_STUDIES,
    Contrast,
    ContrastEffect,
    Effect,
    Heterogeneity,
    JointResult,
    PooledEffect,
    StudyTable,
    combine,
    combine_tasks,
    mean_kind,
    relative_effect,
    scale_of,
    scaled_effect,
)
from attnlab.stats.joint import hides_correction, simultaneous_interval
from attnlab.stats.paired import Difference, NoTest
from attnlab.stats.training_share import share_of
from attnlab.stats.trend import TrendKind
from attnlab.stats.verdict import Sensitivity, VerdictKind, sensitivity

MAX_NAMED = 3  # contrasts with a paragraph and a plot; the table has all of them
CONCLUSIVE = (VerdictKind.BETTER, VerdictKind.WORSE, VerdictKind.EQUIVALENT, VerdictKind.IDENTICAL)


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
    texts = [cell.name, cell.baseline, table.name, text, share]
    # The seeds that it needs depend on the correction: a page on several studies has the corrections of each study's table.
    return TableRow([*texts, verdict_p_value(cell), describe_verdict(cell.verdict, outlook=unit.family == "study")])


def _mean_row(contrast: Contrast, pooled: PooledEffect, unit: Unit) -> TableRow:
    effect, mean = scaled_effect(pooled.mean.interval), pooled.mean
    text = _with_half_width(effect)
    if hides_correction(mean) and (outer := simultaneous_interval(mean)) is not None:
        text += f" ({unit.family}: ± {_half_width(outer.low, outer.high)})"
    share = _share_text(contrast.pooled_share.mean.interval.mean) if contrast.pooled_share else ""
    low, high = pooled.prediction
    verdict = f"{mean_kind(mean).value}; a further {unit.one}: {format_percent(low)} to {format_percent(high)}"
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
        f"one is worse. ± is half the width of the 95 % interval; “{unit.family}” is half the width of the "
        "interval that holds together with all others that are corrected with it.",
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
        f"The mean weights all independent {unit.many} alike. Its interval comes from a t-test of their effects, and covers "
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


def answer_of(tables: Sequence[StudyTable], *, of_tasks: bool = False) -> Answer | None:
    """Return the answer of several studies, or of the tasks of one; None when they compare nothing.

    Args:
        tables: The table of each.
        of_tasks: The tables are of the tasks of one study.
    """
    return make_answer((combine_tasks if of_tasks else combine)(tables), noun="task" if of_tasks else "study")


@dataclass(frozen=True)
class Answer:
    """The answer of several studies: paragraphs, further ones with details, plots, the table of all verdicts, and notes."""

    paragraphs: Sequence[Sentence]
    details: Sequence[Sentence]
    plots: Sequence[Figure]
    table: Table
    notes: Sequence[str]


def make_answer(result: JointResult, *, noun: str = "study") -> Answer | None:
    """Return the answer of several studies; None when they compare nothing.

    Args:
        result: As `attnlab.stats.contrasts.combine` returns it.
        noun: The noun for a table: "study", or "task" for the tasks of one study.
    """
    if not result.contrasts:
        return None
    shared = [contrast for contrast in result.contrasts if len(contrast.studies) > 1]
    unit = Unit(noun, "studies" if noun == "study" else f"{noun}s")
    shared.sort(key=lambda contrast: not _has_verdict(contrast))
    paragraphs = [_paragraph(contrast, unit, of=len(result.tables)) for contrast in shared[:MAX_NAMED]]
    single = [contrast for contrast in result.contrasts if len(contrast.studies) == 1]
    details = [text for contrast in shared[:MAX_NAMED] if (text := _details(contrast, unit))]
    if single:
        (details if shared else paragraphs).append(_single_studies(single, unit))
    if more := shared[MAX_NAMED:]:
        paragraphs.append([f"In the table only: {'; '.join(contrast.label for contrast in more)}."])
    if controls := _controls(result.tables):
        paragraphs.append([controls])
    plots = [
        Figure(f"effect{f'-{i}' if len(shared) > 1 else ''}.svg", f"effect of {contrast.label}", draw_effects(contrast, unit))
        for i, contrast in enumerate(shared[:MAX_NAMED])
        if any(study.effect for study in contrast.studies)
    ]
    return Answer(paragraphs, details, plots, effect_table(result, unit), effect_notes(result, unit))


# ---------------------------------------------------------------- sentences


def _paragraph(contrast: Contrast, unit: Unit, *, of: int) -> list[str]:
    """Return the paragraph on a contrast that several of so many studies have."""
    by_study = _by_study(contrast, unit, of=of)
    mean, trends = _mean_sentence(contrast, unit), _trend_sentences(contrast)
    return [*mean, " ", *by_study, *trends] if contrast.pooled else [*by_study, " ", *mean, *trends]


def _has_verdict(contrast: Contrast) -> bool:
    """Return True when a contrast has a conclusive verdict in any study, or its mean has one."""
    kinds = [cell.verdict.kind for study in contrast.studies for cell in study.comparisons if cell.verdict]
    kinds += [mean_kind(contrast.pooled.mean)] if contrast.pooled else []
    return any(kind in CONCLUSIVE for kind in kinds)


def _by_study(contrast: Contrast, unit: Unit, *, of: int) -> list[str]:
    """Return the sentence in plain words on the verdicts of a contrast in its studies, and its effects."""
    clauses: dict[Sentence, dict[str, list[CellSummary]]] = {}  # text -> study -> the cells that it is about
    for study in contrast.studies:
        for cell in study.comparisons:
            if cell.verdict is not None:
                clause = Clause(contrast.baseline, cell.verdict.kind, remark_of(cell, cell.verdict, study.table.spec))
                text = tuple(describe_clause(clause, [cell], [contrast.name], spec=study.table.spec))
                clauses.setdefault(text, {}).setdefault(study.table.name, []).append(cell)
    judged = {study.table.name: [cell for cell in study.comparisons if cell.verdict is not None] for study in contrast.studies}
    parts: list[str] = []
    n = len(contrast.studies)
    everywhere = f"{'both' if n == 2 else f'all {n}'} {unit.many}{'' if n == of else ' that compare them'}"
    for text, studies in clauses.items():
        places = [f"{name}{_which(cells, judged[name])}" for name, cells in studies.items()]
        where = join(places) if len(clauses) > 1 or n == 1 else [everywhere]
        parts += ["; in " if parts else "in ", *where, ", ", *text]
    return [*as_sentence(parts), f" Effects: {', '.join(_named_effects(study) for study in contrast.studies)}."]


def _which(cells: Sequence[CellSummary], judged: Sequence[CellSummary]) -> str:
    """Return which of a study's comparisons are meant, as in " (delta, ssd)"; "" when it has no others."""
    if len(cells) == len(judged):
        return ""
    apart = [axis for axis in judged[0].axes if len({cell.axes.get(axis) for cell in judged}) > 1]
    return f" ({', '.join(cell_name({axis: cell.axes[axis] for axis in apart}) or cell.name for cell in cells)})"


def _named_effects(study: ContrastEffect) -> str:
    """Return a study with its effects as in "wo-enwik8 (-1.63 %)"."""
    several, texts = len(study.comparisons) > 1, []
    for cell, effect in zip(study.comparisons, study.effects, strict=True):
        size = cell.difference.format(short=True) if cell.difference else ""
        size = format_percent(effect.mean) if effect else size
        texts.append(f"{f'{cell.name} ' if several else ''}{size}")
    return f"{study.table.name} ({', '.join(texts)})"


def _mean_sentence(contrast: Contrast, unit: Unit) -> list[str]:
    """Return the sentences on the mean of a contrast, or on the reason why there is none."""
    pooled, independent = contrast.pooled, len(contrast.groups)
    if pooled is None:
        if any(study.effect is None for study in contrast.studies):
            return [f"There is no mean, because not all of these {unit.many} have a metric with a natural zero."]
        if independent >= MIN_STUDIES:
            return [f"There is no mean, because these {unit.many} have the same effect."]
        effects = [study.effect.mean for study in contrast.studies if study.effect]
        sign = "both signs" if len(effects) > 2 else "opposite signs"
        sign = sign if min(effects) < 0 < max(effects) else "the same sign" if all(effects) else "no opposite signs"
        least = f"a mean needs {MIN_STUDIES} independent {unit.many}, and there {'is' if independent == 1 else 'are'} "
        return [f"The estimates have {sign}; {least}{independent}."]
    mean, p = pooled.mean, format_p_value(pooled.mean.p_holm, equals=True)
    kind = mean_kind(mean)
    verdict = {
        VerdictKind.INCONCLUSIVE: f"the mean effect of {contrast.label} over {unit.count(independent)} is inconclusive",
    }.get(kind, f"on average over {unit.count(independent)}, {contrast.name} is {kind}")
    low, high = pooled.prediction
    parts = [
        Strong(f"{verdict[0].upper()}{verdict[1:]}"),
        f": {format_mean(mean, unit)} of the {_scales(contrast)}, p {p}. ",
    ]
    expected = f"between {format_percent(low)} and {format_percent(high)}"
    return [*parts, f"The effect in a further {unit.one} of this kind is expected {expected}."]


def _details(contrast: Contrast, unit: Unit) -> list[str]:
    """Return a paragraph on the spread of a contrast over studies and its share of training; empty without a mean."""
    pooled, parts = contrast.pooled, []
    if pooled is None:
        return []
    if pooled.heterogeneity is not None:
        parts.append(f"{contrast.label}: {_describe_heterogeneity(pooled.heterogeneity, unit)}")
    if contrast.pooled_share is not None:
        share = share_of(contrast.pooled_share.mean.interval)
        interval = f" [{share.low:.2f}, {share.high:.2f}]" if share.low is not None and share.high is not None else ""
        parts.append(
            f"On average, {contrast.name} takes {share.mean:.2f}{interval} of the steps to the score of {contrast.baseline}."
        )
    return [" ".join(parts)] if parts else []


def _scales(contrast: Contrast) -> str:
    """Return the quantities that the effects are per cent of."""
    return " or ".join(dict.fromkeys(scale_of(study.table.spec) for study in contrast.studies))


def _describe_heterogeneity(spread: Heterogeneity, unit: Unit) -> str:
    """Describe the differences between the effects of studies in one sentence."""
    i_squared, low, high = (f"{100 * value:.0f} %" for value in (spread.i_squared, spread.low, spread.high))
    shown = f"I² {i_squared}, 95 % interval {low} to {high}"
    if spread.low > 0:
        tau = f"a standard deviation of {spread.tau:.2f} %"
        return f"the effects differ between {unit.many} by more than chance, with {tau} ({shown})."
    return f"whether the true effects differ between {unit.many} is open ({shown})."


def _trend_sentences(contrast: Contrast) -> list[str]:
    from attnlab.report.trend import describe_ends, describe_verb

    parts: list[str] = []
    for study in contrast.studies:
        for trend in study.trends:
            if not trend.levels:
                continue
            spec = study.table.spec
            about = f" In {study.table.name}, " if len(study.trends) == 1 else f" In {study.table.name}, for {trend.name}, "
            if trend.kind is TrendKind.INCONCLUSIVE:
                parts.append(f"{about}the trend of the difference over {level_noun(spec)} is inconclusive.")
            else:
                levels = f"from {trend.levels[0]:,.6g} to {trend.levels[-1]:,.6g} {level_noun(spec)}"
                parts += [about, "the difference ", Strong(describe_verb(trend)), f" {levels} ({describe_ends(trend)})."]
    return parts


def _single_studies(contrasts: Sequence[Contrast], unit: Unit) -> list[str]:
    """Return the paragraph on contrasts that only one study has."""
    parts: list[str] = [f"In one {unit.one} only:"]
    for contrast in contrasts[:MAX_NAMED]:
        parts += [" ", *_by_study(contrast, unit, of=1)]
    more = len(contrasts) - MAX_NAMED
    trends = [part for contrast in contrasts[:MAX_NAMED] for part in _trend_sentences(contrast)]
    return [*parts, f" And {more} more." if more > 0 else "", *trends]


def _controls(tables: Sequence[StudyTable]) -> str:
    """Return the sentence on the controls of the studies; "" if none has one."""
    shown = {table.name: _control_is_worse(table) for table in tables if table.spec.control}
    worse, not_worse = ([name for name, is_worse in shown.items() if is_worse is state] for state in (True, False))
    parts = [f"was found worse in {', '.join(worse)}"] if worse else []
    parts += [f"was not found worse in {', '.join(not_worse)}, where “equivalent” therefore shows little"] if not_worse else []
    without = [table.name for table in tables if not table.spec.control] if shown else []
    text = f"The control {', and '.join(parts)}." if parts else ""
    return f"{text} There is no control in {', '.join(without)}." if without else text


def _control_is_worse(table: StudyTable) -> bool:
    """Return True when every control of a study was found worse than its baseline, by at least the margin."""
    spec = table.spec
    controls = [cell for cell in table.cells if spec.is_control(cell.axes)]
    shown = [sensitivity(cell.verdict, cell.difference, margin=spec.margin) is Sensitivity.SHOWN for cell in controls]
    return bool(shown) and all(shown)
