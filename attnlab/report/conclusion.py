"""The conclusion of a study in sentences and as a data frame, the same for its page, the terminal and Python.

Lines on the choice of the records behind it come with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnlab.report.analysis import Analyzed, analyze_tasks
from attnlab.report.answer import make_answer
from attnlab.report.summary import Summary, summarize
from attnlab.report.wording import describe_verdict
from attnlab.stats.cells import CellSummary, comparisons, split_tasks
from attnlab.stats.compared import Compared
from attnlab.stats.contrasts import StudyTable
from attnlab.stats.joint import simultaneous_interval
from attnlab.stats.selection import Named, Seeds, Selection
from attnlab.stats.verdict import p_of_verdict

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
COLUMNS = ("cell", "baseline", *NUMBERS, "verdict", "seeds")
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

    questions = [compared, *compared.further] if compared else []
    parts = [part for asked in questions for part in split_tasks(asked.cells, asked.spec)]
    several = ("metric",) if len(questions) > 1 else ("task",) if len(parts) > 1 else ()
    rows = [
        [*([getattr(part, name) for name in several]), *_verdict_record(cell)]
        for part, of_task in parts
        if any(cell.has_result for asked in questions for cell in asked.cells)
        for cell in comparisons(of_task)
    ]
    frame = pandas.DataFrame(rows, columns=[*several, *COLUMNS])
    return frame.astype({**dict.fromkeys(NUMBERS, float), "seeds": int})


def _verdict_record(cell: CellSummary) -> list[Any]:
    difference, value = cell.difference, cell.estimate or cell.value
    interval = difference.interval if difference else None
    outer = simultaneous_interval(difference) if difference else None
    numbers = [value and value.mean, interval and interval.mean]
    numbers += [end for pair in (interval, outer) for end in ((pair.low, pair.high) if pair else (None, None))]
    numbers += cell.for_new_items or (None, None)
    verdict = describe_verdict(cell.verdict) or ("" if cell.has_result else cell.outcome)
    seeds = interval.n if interval else cell.seeds
    return [cell.name, cell.baseline, *numbers, p_of_verdict(difference), verdict, seeds]
