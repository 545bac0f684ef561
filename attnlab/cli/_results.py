"""The results that `attnlab run` and `attnlab train` print: a table of cells, failures, and the cells that are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnlab._util.run_state import RunState
from attnlab.cli._printing import constant_columns, print_table, print_text, relative

if TYPE_CHECKING:
    from attnlab.config.search import SearchConfig
    from attnlab.report.analysis import Analyzed
    from attnlab.stats.compare import CellSummary, ComparisonSpec
    from attnlab.stats.compared import Compared
    from attnlab.stats.search import SearchSummary
    from attnlab.study.comparison import StudyInfo
    from attnlab.study.result import StudyResult


def print_results(info: StudyInfo, compared: Compared, analyzed: Sequence[Analyzed] | None = None) -> None:
    """Print a row per cell: the metric over its seeds, its difference from the baseline, its costs.

    In a searched study the table holds only the confirmed runs; a line per cell below it summarizes the search.

    Args:
        info: the study as it is recorded.
        compared: its compared cells.
        analyzed: the analyses of each task; None: compute them.
    """
    from attnlab.report.analysis import analyze_tasks
    from attnlab.report.conclusion import describe_choice
    from attnlab.report.notes import notes_on_equal_results, notes_on_intervals
    from attnlab.stats.cells import split_tasks

    spec, cells = compared.spec, compared.cells
    tables = split_tasks(cells, spec)
    for line in describe_choice(compared):
        print_text(f"note: {line}")
    for part, of_task in tables:
        if of_task:  # none of a task that `--only` leaves out
            _print_table(info, compared.for_task(part))
    if all(cell.outcome == RunState.COMPLETED for cell in cells):
        where = " in the cells that were run" if compared.selection.not_run else " in all cells"
        print(f"state: completed{where if len(cells) > 1 else ''}")
    for note in (*notes_on_intervals(cells), *notes_on_equal_results(cells)):
        print_text(note)
    for (part, of_task), found in zip(tables, analyzed or analyze_tasks(compared), strict=True):
        print_lines(found)
        for warning in part.estimator.warnings(of_task):
            print_text(f"note: {warning}")
        if spec.search:
            _print_searches(compared.searches[part.task], part, spec.search)


def print_lines(analyzed: Analyzed) -> None:
    """Print the paragraphs and tables of analyses."""
    for line in analyzed.lines():
        if isinstance(line, str):
            print_text(line)
            continue
        print()
        rows = [list(row.cells) for row in line.rows]
        print_table([column.heading for column in line.columns], rows, wrap=[c.heading for c in line.columns if c.is_text])


def _print_table(info: StudyInfo, compared: Compared) -> None:
    """Print the cells of one task, with its reference scores."""
    from attnlab.report.notes import is_of_program, margin_notes, split_notes
    from attnlab.report.reference_scores import labels, matching_scores, score_warnings
    from attnlab.report.verdicts import note_on_batches
    from attnlab.report.wording import better, describe_test, format_metric
    from attnlab.stats.cells import comparisons

    cells, spec, records = compared.cells, compared.spec, compared.compared_records
    (headings, rows, costs), references = _cell_rows(cells, spec), list[list[str]]()
    scores = matching_scores(info.reference_scores, records, metric=spec.metric)
    for score, label in zip(scores, labels(scores), strict=True):
        references.append([label, format_metric(score.value), *[""] * (len(headings) - 2)])
    caption = f"{spec.metric} {describe_test(cells)}, {better(spec.direction)}; {spec.estimator.words.caption}"
    caption += f", corrected for {spec.looks.count} looks" if spec.looks and spec.looks.count > 1 else ""
    print()
    print_text(f"{spec.study}{f', {spec.task}' if spec.task else ''}: {caption}")
    _print_cells(headings, rows, references, costs=costs)
    batches = [] if is_of_program(records) else note_on_batches(comparisons(cells))
    warnings = score_warnings(cells, scores, metric=spec.metric)
    for note in (*split_notes(records), *margin_notes(cells, spec), *batches, *warnings):
        print_text(f"note: {note}")


def print_verdict(texts: Sequence[str]) -> None:
    """Print the conclusion of a study, one line for each task and one for all of them."""
    for text in texts:
        print_text(f"verdict: {text}")


def _print_searches(searches: Sequence[SearchSummary], spec: ComparisonSpec, search: SearchConfig) -> None:
    from attnlab.report.search import describe_search
    from attnlab.stats.search import different_values

    for summary in searches:
        print_text(f"search: {describe_search(summary, spec)}")
    for summary in searches:
        for warning in summary.warnings:
            print_text(f"note: {summary.cell}: {warning}")
    for warning in different_values(searches, search):
        print_text(f"note: search: {warning}")


def _cell_rows(cells: Sequence[CellSummary], spec: ComparisonSpec) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the headings of the table, its rows, and the headings that are costs."""
    from attnlab._util.cost_metrics import shown_in
    from attnlab.report.wording import describe_verdict, format_difference

    costs = shown_in("terminal")
    headings = [
        "cell",
        spec.estimator.words.heading,
        "seeds",
        "difference",
        "verdict",
        "state",
        *(metric.heading for metric in costs),
    ]
    rows, several = [], any(cell.further for cell in cells)
    for cell in cells:
        rows.append(
            [
                cell.name,
                spec.estimator.format(cell),
                str(cell.seeds or ""),
                format_difference(cell),
                _against(cell, describe_verdict(cell.verdict), several=several),
                cell.outcome if cell.has_result and cell.outcome != RunState.COMPLETED else "",
                *(metric.format(cell.costs[metric.name].mean) if metric.name in cell.costs else "" for metric in costs),
            ]
        )
        for further in cell.further:
            verdict = _against(further, describe_verdict(further.verdict), several=several)
            rows.append([cell.name, "", "", format_difference(further), verdict, *[""] * (len(headings) - 5)])
    return headings, rows, [metric.heading for metric in costs]


def _against(cell: CellSummary, verdict: str, *, several: bool) -> str:
    """Return the text of a verdict, which names the baseline in a study with several."""
    return f"against {cell.baseline}: {verdict}" if several and cell.baseline else verdict


def _print_cells(headings: list[str], rows: list[list[str]], references: list[list[str]], *, costs: Sequence[str]) -> None:
    """Print the table of cells and reference scores; values that all cells have in common are printed once, below it."""
    at = headings.index("verdict")
    reason = _common_reason([row[at] for row in rows])
    if reason:
        rows = [[*row[:at], row[at].removesuffix(f": {reason}"), *row[at + 1 :]] for row in rows]
    common = constant_columns(headings, rows, among={"seeds", *costs})
    kept = [i for i, heading in enumerate(headings) if heading not in common]
    print_table(
        [headings[i] for i in kept],
        [[row[i] for i in kept] for row in (*rows, *references)],
        wrap=("cell", "verdict"),
        second_block=next((heading for heading in costs if heading not in common), ""),
    )
    if reason:
        print_text(f"inconclusive: {reason}")
    for heading, value in common.items():
        complete = all(row[headings.index(heading)] for row in rows)
        print(f"{heading}: {value} in all cells{'' if complete else ' with a result'}")


def _common_reason(verdicts: Sequence[str]) -> str:
    """Return the reason that all inconclusive verdicts share, or "" if there are less than two of them."""
    reasons = [verdict.partition(": ")[2] for verdict in verdicts if verdict.startswith("inconclusive: ")]
    return reasons[0] if len(reasons) > 1 and len(set(reasons)) == 1 else ""


def print_failures(result: StudyResult) -> None:
    """Print the reason and log of each run that has not completed; refused cells and pruned trials are printed elsewhere."""
    from attnlab.tracking.client import log_path, runs_folder

    for row in result.rows:
        if row.state not in (RunState.COMPLETED, RunState.PRUNED, RunState.REFUSED):
            print_text(f"{row.state}: {row.name}: {row.reason}")
        log = log_path(runs_folder(), row.key)
        if row in result.failed and log.is_file() and log.stat().st_size:
            print(f"  log: {relative(log)}")
