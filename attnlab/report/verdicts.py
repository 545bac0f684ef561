"""The tables of a report: verdicts, costs and single runs, and what a reader must know to read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab._util.cost_metrics import CostMetric, shown_in
from attnlab.report.table import Column, Line, Table
from attnlab.stats.compare import BASELINE, Question, Row, fixed, gap, p_value, plus_minus

TRAINING = 3  # times the FLOPs of a forward pass
PETA = 1e15


def verdict_table(table: Sequence[Row], question: Question, *, colors: Mapping[str, str] | None = None) -> Table:
    """The main table: a line a cell. Columns that no cell fills are left out."""
    by_name = {row.name: row for row in table}
    compared = any(row.baseline for row in table)
    effects = any(_effect(row) for row in table)
    states = any(set(row.states) != {"completed"} for row in table)
    costs = _present(table, shown_in("verdict table"))
    columns = [Column("cell", words=True), Column(question.metric), Column("seeds")]
    if compared:
        columns += [Column("difference"), Column("p (Holm)"), *([Column("effect size")] if effects else [])]
        columns += [Column("verdict", words=True)]
    columns += [Column(metric.heading, minor=not metric.relative) for metric in costs]
    columns += [Column("state", words=True)] if states else []
    lines = []
    for row in table:
        cells = [row.name, plus_minus(row.value) or row.outcome, str(len(row.values) or "")]
        if compared:
            cells += [gap(row), _p(row)]
            cells += [*([_effect(row)] if effects else []), row.verdict]
        cells += [_cost(row, metric, by_name.get(row.baseline)) for metric in costs]
        cells += ["" if row.outcome == "completed" else row.outcome] if states else []
        kind = "missing" if row.value is None else "baseline" if row.verdict == BASELINE else ""
        lines.append(Line(cells, (colors or {}).get(row.name, ""), kind))
    return Table(columns, lines)


def _p(row: Row) -> str:
    """The p-value that the verdict rests on: of two cells that are equivalent not that of the test for a difference."""
    d = row.difference
    if d is None or d.finding != "equivalent":
        return p_value(d.p_holm if d else None)
    return f"{p_value(d.p_equivalent_holm)} (equivalence)"


def _effect(row: Row) -> str:
    effect = row.difference and row.difference.effect
    return "" if effect is None else f"{effect:+.2f}"


def _present(table: Sequence[Row], metrics: Sequence[CostMetric]) -> list[CostMetric]:
    """Return those of the metrics that at least one cell has."""
    return [metric for metric in metrics if any(metric.name in row.costs for row in table)]


def _cost(row: Row, metric: CostMetric, base: Row | None) -> str:
    """Format a mean cost, with its range over seeds where it is measured, or its difference from the baseline in percent."""
    if metric.name not in row.costs:
        return ""
    mean = row.costs[metric.name].mean
    if spread := _spread(row, metric):
        return f"{metric.format(mean)} {spread}"
    if not metric.relative or base is None or not (base.costs.get(metric.name) and base.costs[metric.name].mean):
        return metric.format(mean)
    share = 100 * (mean / base.costs[metric.name].mean - 1)
    if share == 0:
        return f"{metric.format(mean)} (same)"
    return f"{metric.format(mean)} ({share:+.1f} %)" if abs(share) >= 0.05 else f"{metric.format(mean)} ({share:+.1g} %)"


def _spread(row: Row, metric: CostMetric) -> str:
    """Return the range over seeds of a measured cost, as in "(800 to 12,600)"; "" where all seeds agree as printed."""
    ends = [metric.format(value) for value in row.ranges.get(metric.name, ())]
    return f"({' to '.join(ends)})" if len(set(ends)) > 1 else ""


def cost_table(table: Sequence[Row], *, colors: Mapping[str, str] | None = None) -> Table | None:
    """What one run of each cell costs, means over seeds; None where nothing completed."""
    by_name = {row.name: row for row in table}
    costs = _present(table, shown_in("cost table"))
    if not costs:
        return None
    arithmetic = any(_pflop(row) for row in table)
    columns = [Column("one run of", words=True), *(Column(metric.heading) for metric in costs)]
    columns += [Column("training PFLOP")] if arithmetic else []
    lines = []
    for row in table:
        cells = [_cost(row, metric, by_name.get(row.baseline)) for metric in costs]
        cells += [_pflop(row)] if arithmetic else []
        if any(cells):
            lines.append(Line([row.name, *cells], (colors or {}).get(row.name, "")))
    return Table(columns, lines)


def _pflop(row: Row) -> str:
    if "flops_per_token" not in row.costs or "tokens" not in row.costs:
        return ""
    return f"{TRAINING * row.costs['flops_per_token'].mean * row.costs['tokens'].mean / PETA:.3g}"


def notes(table: Sequence[Row], question: Question) -> list[str]:
    """What a reader must know to read the table's figures, and nothing about figures that are not there."""
    found = []
    counts = {row.value.n for row in table if row.value is not None}
    if counts - {1}:
        found.append("± is half of the 95 % t-interval over seeds.")
    seen = [each for row in table for each in (row.value, row.difference and row.difference.interval)]
    wide = {each.half / each.sd * math.sqrt(2) for each in seen if each and each.n == 2 and each.half and each.sd}
    if wide:
        found.append(f"From two seeds that interval is {max(wide):.1f} standard errors to either side: run more of them.")
    if 1 in counts:
        found.append("One seed: no interval. How much another seed would change the figure is not known.")
    if any(row.difference for row in table):
        found.append(
            "Differences are taken seed by seed: with one seed, two cells see the same batches and shared "
            "modules start from the same values. Verdicts are at 5 %, corrected by Holm over all comparisons "
            "of the table, for each kind of verdict. “Not settled” means that these seeds cannot tell, not that "
            "the cells are equal. The t-tests are for differences that scatter about evenly to both sides: where one "
            "or two seeds lie far to one side of the others, verdicts are surer of themselves than they should be."
        )
        if any(row.difference and row.difference.interval.n < len(row.values) for row in table):
            found.append(
                "“3 of 8 seeds”: of the cell's seeds so many have completed at its baseline, too, and are compared. "
                "More seeds are seeds of both."
            )
        if any("would settle it" in row.verdict for row in table):
            found.append(
                "“About 5 more seeds would settle it”: 4 times in 5, if mean and spread stay as these seeds have them. They "
                "seldom do, and where the true difference is smaller than the one seen it takes more."
            )
        if any("are too few" in row.verdict for row in table):
            found.append("How many more seeds it takes is said from 4 on: before, their spread is too little known.")
        if any("the same difference in each" in row.verdict for row in table):
            found.append("Where all seeds show one and the same difference it is tested by its sign alone: there is no spread.")
        if any(_effect(row) for row in table):
            found.append("Effect size: the mean difference in standard deviations of the paired differences.")
        if question.margin is not None:
            found.append(
                f"Equivalent: two one-sided tests place the difference within ±{question.margin:g} of zero; the p-value beside "
                "such a verdict is theirs, the others are of the test for a difference. At 5 % they ask that the 90 % interval "
                "stays within the margin: the 95 % interval, which is shown, is wider and may leave it."
            )
        if question.looks is not None:
            found.append(question.looks.words)
        found.append("In brackets: parameters against the baseline's.")
    if any(_spread(row, metric) for row in table for metric in shown_in("verdict table")):
        found.append("In brackets behind what is measured (speed, peak memory): the lowest and the highest seed.")
    return found


COST_NOTE = (
    "tokens/s counts training steps alone, after the first interval; saved MiB is what a step keeps for its backward "
    "pass, the same on every device. Of what is measured the lowest and the highest seed stand in brackets, where they differ: "
    "cells whose seeds overlap may well cost the same. Speeds compare only on an otherwise idle machine. Training PFLOP: "
    "3 x the forward pass x the tokens that were read."
)


def run_table(records: Sequence[Mapping[str, Any]], question: Question) -> Table:
    """A line a run."""
    costs = [metric for metric in shown_in("run table") if any(_given(r.get(metric.name)) for r in records)]
    columns = [Column("run", words=True), Column(question.metric), *(Column(metric.heading) for metric in costs)]
    columns += [Column("state", words=True), Column("device", words=True), Column("MLflow run", words=True)]
    lines = []
    for record in records:
        figures = [fixed(float(record[question.metric])) if _given(record.get(question.metric)) else ""]
        figures += [metric.format(record[metric.name]) if _given(record.get(metric.name)) else "" for metric in costs]
        state = str(record["state"])
        words = [state, str(record.get("device") or ""), str(record["run_id"])]
        kind = "" if state == "completed" else "missing"
        lines.append(Line([str(record["name"]), *figures, *words], kind=kind))
    return Table(columns, lines)


def _given(value: Any) -> bool:
    return value is not None and value == value
