"""The answer at the top of a page on several studies: sentences, plots and a table.

Comparisons that several studies share stand side by side, with the verdict and the effect that each study found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab._util.colors import PALETTE
from attnlab.config.grid import cell_name
from attnlab.report.plots.rows import ForestRow, forest_plot
from attnlab.report.section import Column, Figure, Sentence, Table, TableRow
from attnlab.report.summary import Clause, as_sentence, describe_clause, join, remark_of
from attnlab.report.verdicts import verdict_p_value
from attnlab.report.wording import describe_verdict
from attnlab.stats.cells import CellSummary, comparisons
from attnlab.stats.contrasts import Contrast, ContrastInStudy, Effect, Ends, StudyTable, contrasts_of, scale_of
from attnlab.stats.joint import hides_correction
from attnlab.stats.paired import NoTest
from attnlab.stats.verdict import VerdictKind

MAX_NAMED = 3  # contrasts with a paragraph and a plot; the table has all of them
CONCLUSIVE = (VerdictKind.BETTER, VerdictKind.WORSE, VerdictKind.EQUIVALENT, VerdictKind.IDENTICAL)


@dataclass(frozen=True)
class Unit:
    """The noun for the tables of a page, for example "study" and "studies"."""

    one: str
    many: str


def draw_effects(contrast: Contrast) -> str:
    """Draw the effect of each comparison of a contrast."""
    found = [(study, cell, study.effect(cell)) for study in contrast.studies for cell in study.comparisons]
    rows = [_row(contrast, study, cell, effect) for study, cell, effect in found if effect is not None]
    note = f"95 % interval; thin: holds for the whole study{'; blue: margin' if any(row.margin for row in rows) else ''}"
    return forest_plot(rows, title=f"{contrast.label}: effect in %", note=note, direction="min")


def _row(contrast: Contrast, study: ContrastInStudy, cell: CellSummary, effect: Effect) -> ForestRow:
    label = f"{study.table.name} {cell.name}" if len(study.comparisons) > 1 else study.table.name
    color, margin = PALETTE[1], study.table.spec.margin
    assert cell.difference is not None
    size = cell.difference.interval.mean
    options = {
        "decided": bool(cell.difference.conclusion),
        "margin": margin * abs(effect.mean / size) if margin and size else None,
    }
    return ForestRow(label, color, [], effect.mean, *effect.ends, _with_half_width(effect), *effect.outer, **options)


def effect_table(contrasts: Sequence[Contrast], unit: Unit) -> Table:
    """Return a table with a row per comparison, without the columns that no row fills."""
    columns = [Column("cell", is_text=True), Column("compared with", is_text=True), Column(unit.one, is_text=True)]
    columns += [Column("effect, %"), Column("p"), Column("verdict", is_text=True)]
    found = ((study, cell) for c in contrasts for study in c.studies for cell in (*study.lower_levels, *study.comparisons))
    rows = [_comparison_row(cell, study) for study, cell in found]
    kept = [i for i, column in enumerate(columns) if column.is_text or any(row.cells[i] for row in rows)]
    return Table([columns[i] for i in kept], [TableRow([row.cells[i] for i in kept], row.color, row.kind) for row in rows])


def _comparison_row(cell: CellSummary, study: ContrastInStudy) -> TableRow:
    effect = study.effect(cell)
    text = _with_half_width(effect) if effect else ""
    if cell.difference is not None and effect is not None and hides_correction(cell.difference):
        text += f" (study: ± {_half_width(effect.outer)})"
    return TableRow([cell.name, cell.baseline, study.table.name, text, verdict_p_value(cell), describe_verdict(cell.verdict)])


def effect_notes(tables: Sequence[StudyTable], contrasts: Sequence[Contrast]) -> list[str]:
    """Return notes on the answer and its table."""
    scales = {table.name: scale_of(table.spec) for table in tables}
    known = list(dict.fromkeys(scale for scale in scales.values() if scale))
    unknown = [name for name, scale in scales.items() if not scale]
    texts = [
        f"Effect: the difference from the baseline in per cent of the baseline's {' or '.join(known) or 'score'}; a positive "
        "one is worse. “study”: half the width of the interval that holds together with all others of the study.",
    ]
    if unknown:
        texts.append(f"The metric of {', '.join(unknown)} has no known natural zero, so that its effects are not in per cent.")
    lossy = [c for t in tables for c in comparisons(t.cells) if c.difference and c.difference.no_test is NoTest.LOSSES]
    if lossy:
        names = ", ".join(dict.fromkeys(cell.name for cell in lossy))
        texts.append(f"No effect: {names}, because the cell and its baseline lost different numbers of seeds.")
    if any(study.lower_levels for contrast in contrasts for study in contrast.studies):
        texts.append("Of several levels, the sentences and plots have the highest one.")
    return texts


def format_percent(value: float) -> str:
    """Format an effect as in "+1.63 %"."""
    if 0 < abs(value) < 0.005:
        return f"{value:+.1g} %"  # +0.00 would be no effect
    return f"{value:+.2f} %" if abs(value) < 100 else f"{value:+,.0f} %"


def _with_half_width(effect: Effect) -> str:
    """Format an effect as in "+0.80 ± 0.40", without the sign of per cent."""
    half_width = _half_width(effect.ends)
    return f"{effect.mean:+.2f}{f' ± {half_width}' if half_width else ''}"


def _half_width(ends: Ends) -> str:
    low, high = ends
    return "" if low is None or high is None else f"{(high - low) / 2:.2f}"


@dataclass(frozen=True)
class Answer:
    """The answer of several studies: paragraphs on the shared comparisons, plots, the table of all verdicts, and notes."""

    paragraphs: Sequence[Sentence]
    plots: Sequence[Figure]
    table: Table
    notes: Sequence[str]


def make_answer(tables: Sequence[StudyTable], *, noun: str = "study") -> Answer | None:
    """Return the answer of several studies; None when they compare nothing.

    Args:
        tables: The results of each.
        noun: The noun for a table: "study", or "task" for the tasks of one study.
    """
    contrasts = contrasts_of(tables)
    if not contrasts:
        return None
    shared = [contrast for contrast in contrasts if len(contrast.studies) > 1]
    unit = Unit(noun, "studies" if noun == "study" else f"{noun}s")
    shared.sort(key=lambda contrast: not _has_verdict(contrast))
    paragraphs = [_by_study(contrast, unit, of=len(tables)) for contrast in shared[:MAX_NAMED]]
    if more := shared[MAX_NAMED:]:
        paragraphs.append([f"In the table only: {'; '.join(contrast.label for contrast in more)}."])
    plots = [
        Figure(f"effect{f'-{i}' if len(shared) > 1 else ''}.svg", f"effect of {contrast.label}", draw_effects(contrast))
        for i, contrast in enumerate(shared[:MAX_NAMED])
        if any(study.effect(cell) for study in contrast.studies for cell in study.comparisons)
    ]
    return Answer(paragraphs, plots, effect_table(contrasts, unit), effect_notes(tables, contrasts))


# ---------------------------------------------------------------- sentences


def _has_verdict(contrast: Contrast) -> bool:
    """Return True when a contrast has a conclusive verdict in any study."""
    return any(cell.verdict and cell.verdict.kind in CONCLUSIVE for study in contrast.studies for cell in study.comparisons)


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


def _named_effects(study: ContrastInStudy) -> str:
    """Return a study with its effects as in "wo-enwik8 (-1.63 %)"."""
    several, texts = len(study.comparisons) > 1, []
    for cell in study.comparisons:
        effect = study.effect(cell)
        size = cell.difference.format(short=True) if cell.difference else ""
        size = format_percent(effect.mean) if effect else size
        texts.append(f"{f'{cell.name} ' if several else ''}{size}")
    return f"{study.table.name} ({', '.join(texts)})"
