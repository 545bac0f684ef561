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
    from attnlab.report.search import sentence
    from attnlab.stats.compare import fixed, gap, plus_minus, rows
    from attnlab.stats.search import reported, searched, unconfirmed

    plan, question, records = result.plan, result.question(looks=looks), result.records()
    order = {cell.name: i for i, cell in enumerate(plan.cells)}
    search = plan.study.search
    trials = sorted(searched(records, question, search), key=lambda cell: order[cell.cell]) if search else []
    compared = rows([*reported(records), *unconfirmed(records, question, trials)], question)
    costs = shown_in("terminal")
    headings = ["cell", plan.metric, "seeds", "difference", "verdict", *(metric.heading for metric in costs), "state"]
    table = [
        [
            row.name,
            plus_minus(row.value),
            str(len(row.values) or ""),
            gap(row),
            row.verdict,
            *(metric.format(row.costs[metric.name].mean) if metric.name in row.costs else "" for metric in costs),
            row.outcome,
        ]
        for row in sorted(compared, key=lambda row: order[row.name])
    ]
    for score, label in zip(result.reference_scores, labels(result.reference_scores), strict=True):
        table.append([label, fixed(score.value), *[""] * (len(headings) - 2)])
    better = "lower is better" if plan.direction == "min" else "higher is better"
    caption = f"{plan.metric} on the test split, {better}; mean ± half-width of the 95 % interval over seeds"
    caption += f", corrected for {looks.count} looks" if looks else ""
    print(f"\n{plan.study.study}: {caption}")
    print_table(headings, table)
    for cell in trials:
        print(f"search: {sentence(cell, question)}")
    for cell in trials:
        for edge in cell.edges:
            print(f"note: {cell.cell}: {edge}")


def print_omissions(plan: Plan) -> None:
    """Print the refused and skipped cells with their reasons, and the notes of the plan."""
    for cell, _ in plan.refused:
        print(f"refused: {cell.name}: {cell.refusal}")
    for skipped in plan.skipped:
        print(f"skipped: {skipped.name}: {skipped.because}")
    for note in plan.notes:
        print(f"note: {note}")


def print_failures(result: StudyResult) -> None:
    """Print why a run has not completed, and the file of its output. Refused cells and pruned trials are printed elsewhere."""
    for row in result.rows:
        if row.state not in ("completed", "pruned", "refused"):
            print(f"{row.state}: {row.name}: {row.reason}")
        if row in result.failed and row.log and row.log.is_file() and row.log.stat().st_size:
            print(f"  log: {relative(row.log)}")
