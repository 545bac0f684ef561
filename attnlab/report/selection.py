"""The sentences on the choice of records behind a table: what it leaves out, what was known before, and other verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from attnlab._util.metrics import in_words
from attnlab.config.axes import text as axis_text
from attnlab.config.question import EstimandConfig
from attnlab.report.wording import count, describe_correction, format_p_value
from attnlab.stats.compare import CellSummary, ComparisonSpec, cell_of, comparisons
from attnlab.stats.corrections import Choice
from attnlab.stats.factorial import FactorialResult
from attnlab.stats.records import comparison_name
from attnlab.stats.selection import Selection
from attnlab.stats.trend import Trend
from attnlab.stats.verdict import Correction, p_of_verdict

MAX_NAMED = 6  # cells in one list

CorrectedVerdict = tuple[str, str, Sequence[Correction]]  # name, verdict, and the verdicts without each choice of records


def describe_selection(
    selection: Selection,
    cells: Sequence[CellSummary],
    spec: ComparisonSpec,
    *,
    corrected: Sequence[CorrectedVerdict],
    changes: Sequence[str] = (),
) -> str:
    """Name the results that a table leaves out, and what was planned, seen and asked before; "" if its records were not chosen.

    Args:
        cells: Summaries of the table.
        spec: The comparison that the study makes.
        corrected: As `described_verdicts` returns them.
        changes: As `describe_changes_of` returns them.
    """
    selection = _of_task(selection, cells, spec)
    sentences = [
        *_left_out(selection, corrected, spec),
        *_lost(selection),
        *_not_run(selection),
        *(f"The comparison was changed after the study had results. Before: {change}." for change in changes),
        *_corrections("As first asked", Choice.QUESTION, corrected),
        *_corrections("As first asked, with the results that are left out", Choice.BOTH, corrected),
        *_retried(selection, corrected),
        *_smoke_runs(selection),
        *_renamed(selection),
        *_elsewhere(selection),
    ]
    return " ".join(sentences)


def _of_task(selection: Selection, cells: Sequence[CellSummary], spec: ComparisonSpec) -> Selection:
    """Return the part of a selection that is about the cells of a table, and about cells that the table does not have."""
    if not spec.task:
        return selection
    shown = {cell.name for cell in cells}
    return replace(
        selection,
        left_out=tuple(run for run in selection.left_out if spec.includes(run)),
        lost=tuple(lost for lost in selection.lost if lost[0] in shown),
        retried=tuple(pair for pair in selection.retried if pair[0] in shown),
        smoke=tuple(pair for pair in selection.smoke if pair[0] in shown),
        elsewhere=tuple(judged for judged in selection.elsewhere if judged[1] in shown),
        not_run=tuple((cell, seeds) for cell, seeds in selection.not_run if cell in shown or spec.task in cell),
    )


def _left_out(selection: Selection, corrected: Sequence[CorrectedVerdict], spec: ComparisonSpec) -> list[str]:
    runs = selection.left_out
    if not runs:
        return []
    groups: dict[tuple[str, str], list[int]] = {}
    for run in runs:
        how = run.get("withdrawn") or (f"of the study {other}" if (other := run.get("other_study")) else "")
        label = "the cell " if run["left_out"] == "cell" else ""
        groups.setdefault((f"{label}{cell_of(run, spec)}", how), []).append(int(run["seed"]))
    named = [f"{cell} ({_seeds(seeds)}{f', {how}' if how else ''})" for (cell, how), seeds in groups.items()]
    texts = [f"{count(len(runs), 'finished run')} left out of this study: {_listed(named)}."]
    if spec.is_judged:
        texts += _corrections("With them", Choice.RUNS, corrected) or ["They change no verdict."]
        texts += ["If runs are left out after their results are known, p-values are too small."]
    return texts


def _lost(selection: Selection) -> list[str]:
    named = [f"{cell} ({_seeds(seeds)}, in the study {study})" for cell, seeds, study in selection.lost]
    return [f"Results that were known before and are not at hand: {_listed(named)}."] if named else []


def _not_run(selection: Selection) -> list[str]:
    left_out = {(run.get("cell"), run["seed"]) for run in selection.left_out}  # they have run, and are named before
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for cell, seeds in selection.not_run:
        if missing := tuple(seed for seed in seeds if (cell, seed) not in left_out):
            by_seeds.setdefault(missing, []).append(cell)
    named = [f"{_listed(cells, ', ')} ({_seeds(seeds)})" for seeds, cells in by_seeds.items()]
    return [f"This is a part of the study. Planned and not run: {_listed(named)}."] if named else []


def _retried(selection: Selection, corrected: Sequence[CorrectedVerdict]) -> list[str]:
    if not selection.retried:
        return []
    texts = [f"The configuration was changed after this study was judged. Judged before: {_by_number(selection.retried)}."]
    texts += _corrections("Corrected for them", Choice.TRIES, corrected)
    return [*texts, *_corrections("With all of these corrections", Choice.ALL, corrected)]


def _by_number(pairs: Iterable[tuple[str, str, int]]) -> str:
    cells: dict[int, dict[str, None]] = {}
    for cell, baseline, number in pairs:
        cells.setdefault(number, {})[comparison_name(cell, baseline)] = None
    return _listed([f"{_listed([*names], ', ')} ({count(number, 'other configuration')})" for number, names in cells.items()])


def _smoke_runs(selection: Selection) -> list[str]:
    if not selection.smoke:
        return []
    return [
        f"Judged before, after at most a tenth of this training: {_by_number(selection.smoke)}; no verdict is corrected for it."
    ]


def _elsewhere(selection: Selection) -> list[str]:
    studies: dict[str, dict[str, None]] = {}
    for study, cell, baseline in selection.elsewhere:
        studies.setdefault(study, {})[comparison_name(cell, baseline)] = None
    named = [f"{_listed([*cells], ', ')} (in the study {study})" for study, cells in studies.items()]
    text = "The same comparisons were judged before with other configurations"
    return [f"{text}: {_listed(named)}; no verdict is corrected for it."] if named else []


def _renamed(selection: Selection) -> list[str]:
    looks: dict[str, list[int]] = {}
    for study, seeds in selection.renamed:
        looks.setdefault(study, []).append(seeds)
    return [
        f"These runs were judged before in the study {study}, with {_listed([str(n) for n in sorted(seeds)], ', ')} seeds; the "
        "verdicts are corrected for it."
        for study, seeds in looks.items()
    ]


def described_verdicts(
    cells: Sequence[CellSummary], trends: Sequence[Trend], effects: FactorialResult | None
) -> list[CorrectedVerdict]:
    """Return the verdicts of a study that have corrected ones: cells, trends and effects, with their names."""
    several = any(cell.further for cell in cells)
    found: list[CorrectedVerdict] = [
        (
            comparison_name(cell.name, cell.baseline) if several else cell.name,
            _verdict(cell.verdict.kind, p_of_verdict(cell.difference)),
            cell.verdict.corrections,
        )
        for cell in comparisons(cells)
        if cell.verdict and cell.difference
    ]
    found += [(f"the trend of {trend.name}", _verdict(trend.kind, trend.p_value), trend.corrections) for trend in trends]
    if effects is None:
        return found
    from attnlab.report.factorial import short_name

    found += [
        (f"the effect of {short_name(effect)}", _verdict(effect.verdict.kind, p_of_verdict(effect.difference)), corrections)
        for effect in effects.effects
        if (corrections := effect.verdict.corrections)
    ]
    return found


def _corrections(label: str, choice: Choice, corrected: Sequence[CorrectedVerdict]) -> list[str]:
    """Return a sentence as in "With them: no_wo inconclusive, p 0.039 (instead of better, p 0.022)."; [] without a change."""
    texts = [
        f"{name} {describe_correction(correction)} (instead of {verdict})"
        for name, verdict, corrections in corrected
        for correction in corrections
        if correction.choice == choice
    ]
    return [f"{label}: {_listed(texts)}."] if texts else []


def _verdict(kind: StrEnum, p: float | None) -> str:
    text = format_p_value(p)
    return f"{kind.value}{f', p {text}' if text else ''}"


def _listed(texts: Sequence[str], separator: str = "; ") -> str:
    more = len(texts) - MAX_NAMED
    return separator.join(texts[:MAX_NAMED]) + (f"{separator}and {more} more" if more > 0 else "")


def _seeds(seeds: Iterable[int]) -> str:
    numbers = sorted({*seeds})  # of a sweep, several runs have one seed
    return f"seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


# ---------------------------------------------------------------- questions


def describe_changes_of(selection: Selection, study: str) -> list[str]:
    """Return the changed fields of each earlier comparison of the same runs, with its study if that had another name."""
    now = selection.question or {}
    texts = [(name, _describe_change(before, now)) for name, before in selection.questions]
    return [text if name == study else f"{text}, in the study {name}" for name, text in texts]


def _describe_change(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the changed fields as in "margin 0.01 (now 0.02), baseline variant dense (now variant basic)"."""
    before, now = (
        {"moderate": True, **asked, "estimand": _estimand(asked), "questions": _further(asked)} for asked in (before, now)
    )
    names = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {_field_text(before.get(name))} (now {_field_text(now.get(name))})" for name in names)


def _estimand(question: Mapping[str, Any]) -> str:
    """Return the label of the estimand of a recorded question, which has one unless it is the mean."""
    return EstimandConfig.model_validate(question.get("estimand") or {}).label


def _further(question: Mapping[str, Any]) -> list[str] | None:
    """Return the further questions of a recorded question as text; None without any."""
    asked = question.get("questions") or ()
    return [in_words(metric) + ("" if margin is None else f" (margin {margin:g})") for metric, _, margin in asked] or None


def _field_text(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(map(_field_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{axis} {axis_text(axis_value)}" for axis, axis_value in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else axis_text(value)
