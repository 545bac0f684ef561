"""The conclusion of a study in sentences and as a data frame, the same for its page, the terminal and Python.

Lines on the choice of the records behind it come with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.cost_metrics import shown_in
from attnlab.report.analysis import Analyzed, analyze_tasks
from attnlab.report.answer import make_answer
from attnlab.report.summary import Clause, Summary, as_sentence, describe_clause, remark_of, summarize
from attnlab.report.wording import better, describe_verdict, format_difference, metric_name
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons, split_tasks
from attnlab.stats.compared import Compared
from attnlab.stats.contrasts import StudyTable
from attnlab.stats.joint import simultaneous_interval
from attnlab.stats.paired import Difference
from attnlab.stats.records import comparison_name
from attnlab.stats.selection import Named, Seeds, Selection
from attnlab.stats.verdict import VerdictKind, p_of_verdict
from attnlab.tracking.cells import CellRun
from attnlab.tracking.experiment import log_answer
from attnlab.tracking.record import BASELINE_TAG, NOTE_TAG, SENTENCE_TAG, VERDICT_TAG
from attnlab.tracking.tags import param_names
from attnlab.tracking.views import cells_view

if TYPE_CHECKING:
    import pandas

NUMBERS = (
    "value",
    "difference",
    "low",
    "high",
    "simultaneous_low",
    "simultaneous_high",
    "new_items_low",
    "new_items_high",
    "p",
)
COLUMNS = ("cell", "baseline", *NUMBERS, "verdict", "fragile", "items", "corrected", "note", "seeds")
WORDS = {
    VerdictKind.BETTER: "better",
    VerdictKind.WORSE: "worse",
    VerdictKind.EQUIVALENT: "equivalent",
    VerdictKind.IDENTICAL: "equivalent",
    VerdictKind.INCONCLUSIVE: "inconclusive",
}
MAX_NAMED = 6  # cells in one line
TITLES = {
    "withdrawn": "Withdrawn and run again, or deleted",
    "left_out": "Finished and left out of this study",
    "not_run": "Planned and not run",
    "retried": "Finished after failed attempts",
}


def conclude(analyzed: Analyzed) -> Summary:
    """Return the conclusion of a study, or of one of its tasks."""
    compared = analyzed.results.compared
    return analyzed.summarize(summarize(compared.cells, compared.spec))


def describe_choice(compared: Compared) -> list[str]:
    """Return the lines on the choice of the records behind a table."""
    return describe_selection(compared.selection.for_task(compared.spec, (cell.name for cell in compared.cells)))


def describe_selection(selection: Selection) -> list[str]:
    """Return a line on each choice: withdrawn runs, those left out, not run or tried again, and a changed comparison."""
    named = {title: getattr(selection, name) for name, title in TITLES.items()}
    lines = [f"{title}: {_listed(runs)}." for title, runs in named.items() if runs]
    return lines + ([f"The comparison differs from the one stated first: {selection.changed}."] if selection.changed else [])


def _listed(runs: Named) -> str:
    """Return cells with their seeds as in "a, b (seeds 1, 2); c (seed 0)"."""
    by_seeds: dict[Seeds, list[str]] = {}
    for cell, seeds in runs:
        by_seeds.setdefault(seeds, []).append(cell)
    named = [
        f"{_joined(cells, ', ')} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
        for seeds, cells in by_seeds.items()
    ]
    return _joined(named, "; ")


def _joined(texts: Sequence[str], separator: str) -> str:
    more = len(texts) - MAX_NAMED
    return separator.join([*texts[:MAX_NAMED], *([f"and {more} more"] if more > 0 else [])])


def conclusions(compared: Compared, analyzed: Sequence[Analyzed] | None = None) -> list[str]:
    """Return the conclusion of a study as text; of a study of several tasks one for each, and the answer over all of them."""
    found = analyzed or analyze_tasks(compared)
    parts, texts = [of_task.results.compared for of_task in found], [conclude(of_task).text for of_task in found]
    if len(parts) == 1:
        return texts
    tables = [StudyTable(part.spec.task, part.spec, part.cells) for part in parts]
    answer = make_answer(tables, noun="task")
    shared = ["".join(paragraph) for paragraph in answer.paragraphs] if answer else []
    return [*(f"{table.name}: {text}" for table, text in zip(tables, texts, strict=True)), *shared]


def verdicts_frame(compared: Compared | None) -> pandas.DataFrame:
    """Return the verdicts of a study, one row for each cell and baseline, in full precision; without a result, no rows."""
    import pandas

    columns, rows = list(COLUMNS), []
    if compared:
        rows = verdict_rows(compared)
        several = len(split_tasks(compared.cells, compared.spec)) > 1
        columns = [*(["metric"] if compared.further else ["task"] if several else []), *COLUMNS]
    frame = pandas.DataFrame(rows, columns=columns)
    return frame.astype({**dict.fromkeys(NUMBERS, float), "fragile": bool, "items": object, "corrected": int, "seeds": int})


def verdict_rows(compared: Compared) -> list[dict[str, Any]]:
    """Return the verdicts as dicts, each also with its task and metric, what its value is, and the mean costs of its cell."""
    questions = (compared, *compared.further)
    parts = [part for asked in questions for part in split_tasks(asked.cells, asked.spec)]
    return [
        {
            "task": part.task,
            "metric": part.metric,
            "estimand": part.estimand.name,
            "direction": part.estimator.value_direction,
            "control": part.is_control(cell.axes),
            **dict(zip(COLUMNS, _verdict_record(cell, part), strict=True)),
            "costs": {name: cost.mean for name, cost in cell.costs.items()},
        }
        for part, of_task in parts
        if any(cell.has_result for asked in questions for cell in asked.cells)
        for cell in comparisons(of_task)
    ]


def effect_rows(compared: Compared) -> list[dict[str, Any]]:
    """Return the effects of a factorial study as dicts; of another one none."""
    found = [(part, effect) for part in compared.spec.parts if (of := compared.effects(part)) for effect in of.effects]
    return [
        {
            "task": part.task,
            "effect": effect.name,
            **_numbers_of(effect.difference),
            "verdict": WORDS.get(effect.verdict.kind, ""),
        }
        for part, effect in found
    ]


def _numbers_of(difference: Difference) -> dict[str, float | None]:
    interval = difference.interval
    ends = (interval.mean, interval.low, interval.high) if interval else (None, None, None)
    return dict(zip(("difference", "low", "high", "p"), (*ends, p_of_verdict(difference)), strict=True))


def _verdict_record(cell: CellSummary, spec: ComparisonSpec) -> list[Any]:
    interval = cell.difference.interval if cell.difference else None
    verdict, note = word_and_note(cell)
    looks = spec.looks_of(comparison_name(cell.name, cell.baseline))
    items = cell.verdict.new_items.holds if verdict and cell.verdict and cell.verdict.new_items else None
    fragile = bool(cell.verdict and cell.verdict.fragile)
    corrected = looks.count if verdict and looks else 1
    return [
        cell.name, cell.baseline, *_numbers(cell).values(), verdict, fragile, items, corrected, note,
        interval.n if interval else cell.seeds,
    ]  # fmt: skip


def _numbers(cell: CellSummary) -> dict[str, float | None]:
    difference, value = cell.difference, cell.estimate or cell.value
    interval = difference.interval if difference else None
    outer = simultaneous_interval(difference) if difference else None
    numbers = [value and value.mean, interval and interval.mean]
    numbers += [end for pair in (interval, outer) for end in ((pair.low, pair.high) if pair else (None, None))]
    return dict(zip(NUMBERS, [*numbers, *(cell.for_new_items or (None, None)), p_of_verdict(difference)], strict=True))


def word_and_note(cell: CellSummary) -> tuple[str, str]:
    """Return the verdict in one word, "" for a cell that is not compared; and its conditions, or what the cell is instead."""
    text = describe_verdict(cell.verdict) or ("" if cell.has_result else cell.outcome)
    word = WORDS.get(cell.verdict.kind, "") if cell.verdict else ""
    return word, text.removeprefix(word).lstrip(",: ")


def cell_runs(compared: Compared) -> list[CellRun]:
    """Return the cells of a study as MLflow shows them: the means of all seeds, and the comparison with the first baseline."""
    texts = {axis: {str(cell.axes.get(axis)) for cell in compared.cells} for axis in compared.spec.axes}
    axes = [axis for axis in texts if len(texts[axis]) > 1] or [*texts][:1]
    names = param_names(axes)
    return [
        CellRun(cell.name, {names[axis]: str(cell.axes.get(axis)) for axis in axes}, _metrics(cell, part), _tags(cell, part))
        for part, of_task in split_tasks(compared.cells, compared.spec)
        for cell in of_task
    ]


def _metrics(cell: CellSummary, spec: ComparisonSpec) -> dict[str, float]:
    numbers = {spec.metric if name == "value" else name: number for name, number in _numbers(cell).items()}
    if cell.value:
        numbers["half_width"] = cell.value.half_width
    numbers |= {cost.name: cell.costs[cost.name].mean for cost in shown_in("mlflow columns") if cost.name in cell.costs}
    numbers["seeds"] = cell.seeds
    return {name: _readable(number) for name, number in numbers.items() if number is not None and number == number}


def _readable(number: float) -> float:
    """Round to the digits that a column of MLflow's table has room for."""
    return number if float(number).is_integer() else float(f"{number:.5g}")


def _tags(cell: CellSummary, spec: ComparisonSpec) -> dict[str, str]:
    word, note = word_and_note(cell)
    sentence = note
    if cell.verdict and cell.difference:
        clause = Clause(cell.baseline, cell.verdict.kind, remark_of(cell, cell.verdict, spec))
        text = "".join(as_sentence(describe_clause(clause, [cell], [cell.name], spec=spec)))
        unit = f"{metric_name(spec)} ({better(spec.direction)})"
        sentence = f"{text} Difference in {unit}: {format_difference(cell)}{f'; {note}' if note else ''}."
    return {VERDICT_TAG: word or note, BASELINE_TAG: cell.baseline, SENTENCE_TAG: sentence, NOTE_TAG: sentence}


def publish(study: str, compared: Compared, texts: Sequence[str], root: str | Path | None = None) -> None:
    """Write the answer of a study and its cells to MLflow, in place of the earlier ones."""
    cells, spec = cell_runs(compared), compared.spec
    log_answer(study, texts, cells, cells_view(cells, spec.metric, spec.direction) if cells else "", root)
