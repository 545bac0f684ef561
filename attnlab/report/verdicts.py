"""The tables of a report (verdicts, costs, single runs) and the notes that explain their figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from attnlab._util.cost_metrics import CostMetric, shown_in
from attnlab._util.metrics import GENERATED_SCORES
from attnlab._util.run_state import RunState
from attnlab.config.comparability import describe_changes, is_program_test
from attnlab.report.notes import (
    NEW_ITEMS,
    control_notes,
    margin_notes,
    notes_on_equal_results,
    notes_on_intervals,
)
from attnlab.report.section import Column, Table, TableRow
from attnlab.report.wording import (
    describe_looks,
    describe_verdict,
    format_difference,
    format_metric,
    format_p_value,
)
from attnlab.stats.compare import CellSummary, ComparisonSpec, cell_of, comparisons
from attnlab.stats.paired import describe_level, rounded
from attnlab.stats.records import TRAINING_PASSES, is_present
from attnlab.stats.search import NOT_CONFIRMED
from attnlab.stats.verdict import p_of_verdict

HOW_TO_READ = "Columns, marks and tests: docs/studies/report.md#how-to-read-a-page."
PETA = 1e15


def verdict_table(cells: Sequence[CellSummary], spec: ComparisonSpec, *, colors: Mapping[str, str] | None = None) -> Table:
    """Return the main table, one row per cell, without the columns that no cell fills.

    Args:
        cells: In the report's order.
        spec: The comparison that the study makes.
        colors: Cell -> color of its swatch.
    """
    by_name = {cell.name: cell for cell in cells}
    compared = any(cell.baseline for cell in comparisons(cells))
    several = any(cell.further for cell in cells)
    has_items = any(cell.verdict and cell.verdict.new_items for cell in comparisons(cells))
    has_states = any(set(cell.states) != {RunState.COMPLETED} for cell in cells)
    costs = present_costs(cells, shown_in("verdict table"))
    columns = [Column("cell", is_text=True), Column(spec.estimator.words.heading), Column("seeds")]
    columns += [Column("compared with", is_text=True)] if several else []
    if compared:
        columns += [
            Column("difference"),
            *([Column(NEW_ITEMS)] if has_items else []),
            Column("p (Holm)"),
        ]
        columns += [Column("verdict", is_text=True)]
    columns += [Column(metric.heading, hide_on_phone=not metric.relative) for metric in costs]
    columns += [Column("state", is_text=True)] if has_states else []
    rows = []
    for cell in cells:
        texts = [cell.name, spec.estimator.format(cell), str(cell.seeds or "")]
        texts += _comparison_texts(cell, several=several, items=has_items) if compared else []
        texts += [_cost(cell, metric, by_name.get(cell.baseline)) for metric in costs]
        texts += ["" if cell.outcome == RunState.COMPLETED else cell.outcome] if has_states else []
        kind = "missing" if not cell.has_result else "baseline" if cell.is_baseline else ""
        link = "" if cell.outcome == NOT_CONFIRMED else anchor(cell.name)  # the table of runs has no trials
        rows.append(TableRow(texts, (colors or {}).get(cell.name, ""), kind, link=link))
        for further in cell.further:  # the cell's own figures stand in its first row
            texts = [cell.name, "", "", *_comparison_texts(further, several=True, items=has_items)]
            texts += [""] * (len(columns) - len(texts))
            rows.append(TableRow(texts, (colors or {}).get(cell.name, ""), link=link))
    return Table(columns, rows)


def _comparison_texts(cell: CellSummary, *, several: bool, items: bool) -> list[str]:
    """Return the texts of a comparison for the verdict table: with which baseline, the difference, and the verdict."""
    new = cell.verdict.new_items if cell.verdict else None
    texts = [*([cell.baseline] if several else []), format_difference(cell)]
    texts += [f"± {rounded(new.half_width, new.half_width)}" if new else ""] if items else []
    return [*texts, verdict_p_value(cell), describe_verdict(cell.verdict)]


def anchor(cell: str) -> str:
    """Return the anchor of a cell's first row in the table of runs."""
    return f"runs-{crc32(cell.encode()):08x}"


def verdict_p_value(cell: CellSummary) -> str:
    """Format the p-value that the verdict rests on."""
    text = format_p_value(p_of_verdict(cell.difference))
    return f"{text} (equivalence)" if cell.difference and cell.difference.conclusion == "equivalent" else text


def present_costs(cells: Sequence[CellSummary], metrics: Sequence[CostMetric]) -> list[CostMetric]:
    """Return the metrics that at least one cell has; a counted one that is 0 in every cell is left out."""

    def shown(metric: CostMetric) -> bool:
        means = [cell.costs[metric.name].mean for cell in cells if metric.name in cell.costs]
        return bool(means) and (metric.measured or any(means))

    return [metric for metric in metrics if shown(metric)]


def _cost(cell: CellSummary, metric: CostMetric, baseline: CellSummary | None) -> str:
    """Format a mean cost, with its range over seeds if measured, or its difference from the baseline in percent."""
    if metric.name not in cell.costs:
        return ""
    mean = cell.costs[metric.name].mean
    if seed_range := metric.format_range(cell.ranges.get(metric.name, ())):
        return f"{metric.format(mean)} {seed_range}"
    reference = baseline.costs.get(metric.name) if baseline is not None else None
    if not metric.relative or reference is None or not reference.mean:
        return metric.format(mean)
    percent = 100 * (mean / reference.mean - 1)
    if percent == 0:
        return f"{metric.format(mean)} (same)"
    return f"{metric.format(mean)} ({percent:+.1f} %)" if abs(percent) >= 0.05 else f"{metric.format(mean)} ({percent:+.1g} %)"


def cost_table(cells: Sequence[CellSummary], *, colors: Mapping[str, str] | None = None) -> Table | None:
    """Return the costs of one run of each cell, as means over seeds; None when no run completed."""
    by_name = {cell.name: cell for cell in cells}
    costs = present_costs(cells, shown_in("cost table"))
    if not costs:
        return None
    has_flops = any(training_pflop(cell) for cell in cells)
    columns = [Column("one run of", is_text=True), *(Column(metric.heading) for metric in costs)]
    columns += [Column("training PFLOP")] if has_flops else []
    has_chains = any("chain_flops" in cell.costs for cell in cells)
    columns += [Column("chain PFLOP")] if has_chains else []
    rows = []
    for cell in cells:
        texts = [_cost(cell, metric, by_name.get(cell.baseline)) for metric in costs]
        texts += [training_pflop(cell)] if has_flops else []
        texts += [_chain_pflop(cell)] if has_chains else []
        if any(texts):
            rows.append(TableRow([cell.name, *texts], (colors or {}).get(cell.name, "")))
    return Table(columns, rows)


def training_pflop(cell: CellSummary) -> str:
    if "flops_per_token" not in cell.costs or "tokens" not in cell.costs:
        return ""
    return f"{TRAINING_PASSES * cell.costs['flops_per_token'].mean * cell.costs['tokens'].mean / PETA:.3g}"


def _chain_pflop(cell: CellSummary) -> str:
    return f"{cell.costs['chain_flops'].mean / PETA:.3g}" if "chain_flops" in cell.costs else ""


def notes(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    """Return notes on the figures of the verdict table, and none on figures that it does not have."""
    texts = spec.estimator.notes(cells, margin=spec.margin, looks=spec.looks, family=spec.family) or _notes_on_intervals(cells)
    if any(cell.difference for cell in comparisons(cells)):
        texts += _notes_on_differences(cells, spec)
    return [*texts, HOW_TO_READ]


def _notes_on_intervals(cells: Sequence[CellSummary]) -> list[str]:
    counts = {cell.value.n for cell in cells if cell.value is not None}
    return ["± is half the width of the 95 % t-interval over seeds."] if counts - {1} else []


def _notes_on_differences(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    cells = comparisons(cells)
    texts = [*note_on_batches(cells), *notes_on_intervals(cells)]
    if not spec.estimator.is_exact:
        level = f"Verdicts are at {describe_level(spec.margin)}, corrected by Holm's method"
        moderated = any(cell.difference.interval.prior for cell in cells if cell.difference)
        texts.append(f"{level} over all comparisons of {spec.family}{', with moderated t-tests' if moderated else ''}.")
    if spec.looks is not None and spec.looks.count > 1:
        texts.append(describe_looks(spec.looks))
    texts += [*margin_notes(cells, spec), *control_notes(cells, spec)]
    return [*texts, *notes_on_equal_results(cells)]


def note_on_batches(cells: Sequence[CellSummary]) -> list[str]:
    """Return a note on cells that see other batches than their baseline, or on what the seeds of a program share."""
    if any(is_program_test(cell.test) for cell in cells):
        return ["Differences are paired by seed. The program decides what two runs with one seed have in common."]
    by_name = {cell.name: cell for cell in cells}
    changes: dict[str, dict[str, None]] = {}  # change -> names of the cells, each once
    for cell in cells:
        if cell.difference and (change := describe_changes(cell.batches, by_name[cell.baseline].batches)):
            changes.setdefault(change, {})[cell.name] = None
    groups = "; ".join(f"{', '.join(names)} ({change})" for change, names in changes.items())
    text = f"Not trained on the batches of their baseline: {groups}; pairing removes less of the variation between their seeds."
    return [text] if changes else []


def run_table(records: Sequence[Mapping[str, Any]], spec: ComparisonSpec) -> Table:
    """Return a table with one row per run."""
    costs = [metric for metric in shown_in("run table") if any(is_present(r.get(metric.name)) for r in records)]
    scores = [name for name in GENERATED_SCORES if name != spec.metric and any(is_present(r.get(name)) for r in records)]
    columns = [Column("run", is_text=True), *map(Column, [spec.metric, *scores, *(metric.heading for metric in costs)])]
    columns += [Column("state", is_text=True), Column("device", is_text=True), Column("MLflow run", is_text=True)]
    rows, seen = [], set()
    for record in records:
        cell = cell_of(record, spec)
        place = "" if cell in seen else anchor(cell)
        seen.add(cell)
        figures = [
            format_metric(float(record[name])) if is_present(record.get(name)) else "" for name in (spec.metric, *scores)
        ]
        figures += [metric.format(record[metric.name]) if is_present(record.get(metric.name)) else "" for metric in costs]
        state = str(record["state"])
        texts = [state, str(record.get("device") or ""), str(record["run_id"])]
        rows.append(
            TableRow(
                [str(record["name"]), *figures, *texts], kind="" if state == RunState.COMPLETED else "missing", anchor=place
            )
        )
    return Table(columns, rows)
