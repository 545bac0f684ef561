"""Extension of a sweep: values beyond its grid, for all cells, until the best value of each cell lies inside.

The values follow from the grid and from finished runs alone. Therefore rerunning the command resumes, and several parents on
one storage make the same plan.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnlab.config.types import text
from attnlab.stats.sweep import best_values
from attnlab.tracking.client import search_runs
from attnlab.tracking.runs import recorded_experiment

if TYPE_CHECKING:
    from pathlib import Path

    from attnlab.planning.plan import Plan, Run
    from attnlab.tracking.record import RunRecord

logger = logging.getLogger(__name__)

Extensions = tuple[int, int]  # numbers of values below and above the grid


def extend_sweep(plan: Plan, records: Callable[[], Iterable[RunRecord]]) -> Plan:
    """Return the plan with its sweep extended as far as finished runs require; a plan without a sweep is returned as it is.

    Where all runs of the grid have a result, and the best value of a cell is the smallest or largest, one value is added on
    that side, and so on, up to ``sweep.extensions`` on each side. Values at which an earlier call trained runs of this plan
    stay, also of cells that ``only`` leaves out: further seeds then have the same grid.

    Args:
        records: returns the records of the study; records of other plans are ignored.
    """
    sweep = plan.study.sweep
    if sweep is None:
        return plan
    widest = replace(plan, cells=[*plan.cells, *plan.unselected], sweep_extensions=(sweep.extensions, sweep.extensions))
    runs = {run.key: run for run in widest.runs}
    results: dict[str, RunRecord] = {}
    for record in records():
        if record.key in runs and record.has_result(retries=plan.study.retries):
            results.setdefault(record.key, record)
    extensions = _widen(plan, results, (0, 0))
    recorded = _union(extensions, *(_extensions_with(plan, runs[key]) for key in results))
    if recorded != extensions:
        extensions = _widen(plan, results, recorded)
    return plan if extensions == plan.sweep_extensions else replace(plan, sweep_extensions=extensions)


def with_recorded_extensions(plan: Plan, root: str | Path | None = None) -> Plan:
    """Return the plan with its sweep extended as its record requires; unchanged without a record. Nothing is written.

    Args:
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``./runs``.

    Raises:
        UserError: the MLflow store cannot be used or does not respond.
    """
    recorded = recorded_experiment(plan.study.study, root) if plan.study.sweep else None
    return plan if recorded is None else extend_sweep(plan, lambda: search_runs(recorded[0], recorded[1].experiment_id))


def _widen(plan: Plan, results: dict[str, RunRecord], extensions: Extensions) -> Extensions:
    """Return the extensions that the results on the grid with ``extensions`` require; unchanged if runs are left."""
    assert plan.study.sweep is not None
    limit = plan.study.sweep.extensions
    while True:
        runs = replace(plan, sweep_extensions=extensions).runs
        if any(run.key not in results for run in runs):
            return extensions
        rows = [_row(run, results[run.key]) for run in runs]
        goals = {cell.name: plan.metric_of(cell) for cell in plan.cells}
        best = [
            value
            for metric, direction in dict.fromkeys(goals.values())
            for value in best_values(
                [row for row in rows if goals[row["cell"]] == (metric, direction)],
                path=plan.study.sweep.path,
                metric=metric,
                direction=direction,
            )
        ]
        low, high = any(cell.is_smallest for cell in best), any(cell.is_largest for cell in best)
        wider = min(limit, extensions[0] + low), min(limit, extensions[1] + high)
        if wider == extensions:
            return extensions
        extensions = wider


def _row(run: Run, record: RunRecord) -> dict[str, Any]:
    fields = {"cell": run.cell.name, "seed": run.seed, "phase": run.phase, "params": run.params}
    return {**fields, "state": record.state, **record.summary}


def _extensions_with(plan: Plan, run: Run) -> Extensions:
    """Return the smallest extensions with which the sweep contains the value of a run."""
    assert plan.study.sweep is not None
    sweep, value = plan.study.sweep, run.params[plan.study.sweep.path]
    counts = range(sweep.extensions + 1)
    low = next((count for count in counts if value >= sweep.extended(count, 0)[0]), 0)
    high = next((count for count in counts if value <= sweep.extended(0, count)[-1]), 0)
    return low, high


def _union(*extensions: Extensions) -> Extensions:
    return max(low for low, _ in extensions), max(high for _, high in extensions)


def log_extension(before: Plan, after: Plan) -> None:
    """Log the values that were added to a sweep."""
    sweep = after.study.sweep
    if sweep is not None:
        added = ", ".join(text(value) for value in after.sweep_values if value not in before.sweep_values)
        reason = "the best value of a cell is the smallest or largest tried"
        logger.info("sweep: %s %s added, %d more runs: %s", sweep.path, added, after.total - before.total, reason)
