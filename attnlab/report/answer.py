"""The answer at the top of a page on several studies: sentences, plots and a table, with verdicts over the whole page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnlab.config.grid import cell_name
from attnlab.report.effects_by_study import (
    Unit,
    draw_effects,
    effect_notes,
    effect_table,
    format_mean,
    format_percent,
)
from attnlab.report.plain import Clause, as_sentence, describe_clause, join, remark_of
from attnlab.report.section import Figure, Sentence, Strong
from attnlab.report.table import Table
from attnlab.report.wording import describe_corrections, format_p_value, level_noun
from attnlab.stats.cells import CellSummary
from attnlab.stats.contrasts import Contrast, ContrastEffect, JointResult, StudyTable, combine, combine_tasks, mean_kind
from attnlab.stats.control import sensitivity
from attnlab.stats.corrections import Choice, correct_joint, for_choice
from attnlab.stats.pooling import MIN_STUDIES, Heterogeneity, PooledEffect, scale_of
from attnlab.stats.training_share import share_of
from attnlab.stats.trend import TrendKind
from attnlab.stats.verdict import Sensitivity, VerdictKind

MAX_NAMED = 3  # contrasts with a paragraph and a plot; the table has all of them
CONCLUSIVE = (VerdictKind.BETTER, VerdictKind.WORSE, VerdictKind.EQUIVALENT, VerdictKind.IDENTICAL)


def answer_of(
    tables: Sequence[StudyTable], others: Sequence[Mapping[Choice, StudyTable]], *, of_tasks: bool = False
) -> Answer | None:
    """Return the answer of several studies, or of the tasks of one; None when they compare nothing.

    Args:
        tables: The table of each.
        others: Of each, the table that it would have without a choice of its records.
        of_tasks: The tables are of the tasks of one study.
    """
    combined = combine_tasks if of_tasks else combine
    choices = [choice for choice in Choice if any(choice in of_table for of_table in others)]
    without = {
        choice: combined([for_choice(choice, of_table, table) for table, of_table in zip(tables, others, strict=True)])
        for choice in choices
    }
    return make_answer(correct_joint(combined(tables), without, tables), noun="task" if of_tasks else "study")


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
        texts.append(f"{f'{cell.name} ' if several else ''}{size}{_chosen(cell)}")
    return f"{study.table.name} ({', '.join(texts)})"


def _chosen(cell: CellSummary) -> str:
    verdict = cell.verdict
    return "".join(f", {text}" for text in (describe_corrections(verdict.kind, verdict.corrections) if verdict else ()))


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
    corrections = "".join(f", {text}" for text in describe_corrections(kind, contrast.corrections))
    parts = [
        Strong(f"{verdict[0].upper()}{verdict[1:]}"),
        f": {format_mean(mean, unit)} of the {_scales(contrast)}, p {p}{corrections}. ",
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
            f"On average, {contrast.name} takes {share.mean:.2f}{interval} of the steps to the score of {contrast.baseline}"
            f"{''.join(f', {_other_share(choice, other)}' for choice, other in contrast.other_shares)}."
        )
    return [" ".join(parts)] if parts else []


def _other_share(choice: str, other: PooledEffect | None) -> str:
    share = share_of(other.mean.interval) if other else None
    return f"but {f'{share.mean:.2f}' if share else 'an unknown share'} {choice}"


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
                corrections = "".join(f", {text}" for text in describe_corrections(trend.kind, trend.corrections))
                parts.append(f"{about}the trend of the difference over {level_noun(spec)} is inconclusive{corrections}.")
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
