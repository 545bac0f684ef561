"""The results that `attnlab run` and `attnlab train` print: a table of cells, failures, and the cells that are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab.cli._printing import print_table, relative

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.stats.sequential import Looks
    from attnlab.study.run import StudyResult


def print_results(result: StudyResult, *, looks: Looks | None = None) -> None:
    """Print a row per cell: the metric over its seeds, its difference from the baseline, its costs.

    In a searched study the table holds only the confirmed runs; a line per cell below it summarizes the search.

    Args:
        looks: the looks at the data of a study whose seeds were added until its verdicts were conclusive.
    """
    from attnlab._util.cost_metrics import shown_in
    from attnlab.report.reference_scores import labels
    from attnlab.report.search import describe_search
    from attnlab.report.wording import better, describe_verdict, format_difference, format_interval, format_metric
    from attnlab.stats.compare import summarize_cells
    from attnlab.stats.search import exclude_trials, summarize_searches, unconfirmed_cells

    plan, spec, records = result.plan, result.comparison(looks=looks), result.records()
    order = {cell.name: i for i, cell in enumerate(plan.cells)}
    search = plan.study.search
    searches = summarize_searches(records, spec, search) if search else []
    searches.sort(key=lambda summary: order[summary.cell])
    cells = summarize_cells([*exclude_trials(records), *unconfirmed_cells(records, spec, searches)], spec)
    costs = shown_in("terminal")
    headings = ["cell", plan.metric, "seeds", "difference", "verdict", *(metric.heading for metric in costs), "state"]
    table = [
        [
            cell.name,
            format_interval(cell.value),
            str(len(cell.values) or ""),
            format_difference(cell),
            describe_verdict(cell.verdict),
            *(metric.format(cell.costs[metric.name].mean) if metric.name in cell.costs else "" for metric in costs),
            cell.outcome,
        ]
        for cell in sorted(cells, key=lambda cell: order[cell.name])
    ]
    for score, label in zip(result.reference_scores, labels(result.reference_scores), strict=True):
        table.append([label, format_metric(score.value), *[""] * (len(headings) - 2)])
    caption = f"{plan.metric} on the test split, {better(plan.direction)}; mean ± half-width of the 95 % interval over seeds"
    caption += f", corrected for {looks.count} looks" if looks else ""
    print(f"\n{plan.study.study}: {caption}")
    print_table(headings, table)
    for summary in searches:
        print(f"search: {describe_search(summary, spec)}")
    for summary in searches:
        for warning in summary.warnings:
            print(f"note: {summary.cell}: {warning}")


def print_omissions(plan: Plan) -> None:
    """Print the refused and skipped cells with their reasons, and the notes of the plan."""
    for cell, _ in plan.refused:
        print(f"refused: {cell.name}: {cell.refusal}")
    for skipped in plan.skipped:
        print(f"skipped: {skipped.name}: {skipped.because}")
    for note in plan.notes:
        print(f"note: {note}")


def print_failures(result: StudyResult) -> None:
    """Print the reason and log of each run that has not completed; refused cells and pruned trials are printed elsewhere."""
    for row in result.rows:
        if row.state not in ("completed", "pruned", "refused"):
            print(f"{row.state}: {row.name}: {row.reason}")
        if row in result.failed and row.log and row.log.is_file() and row.log.stat().st_size:
            print(f"  log: {relative(row.log)}")
