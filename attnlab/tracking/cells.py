"""The cells of a study in MLflow: a run for each, with what its seeds show together; their runs are its children.

The cells are written when the study has an answer, from the same numbers. They have no key, so that no reader of runs takes
one for the run of a seed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.files import file_lock
from attnlab.tracking.client import log_batch, search_runs
from attnlab.tracking.record import CELL_RUN, PARENT_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


@dataclass(frozen=True)
class CellRun:
    """What MLflow shows of a cell: its axes as params, its results as metrics, its verdict as tags."""

    name: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]

    def fits(self, run: Run) -> bool:
        """Return whether a run can show this cell: params and names of metrics cannot be taken back."""
        return run.data.params == self.params and run.data.metrics.keys() <= self.metrics.keys()


def write_cells(client: MlflowClient, experiment_id: str, cells: Sequence[CellRun], root: Path) -> None:
    """Write the cells of a study in place of those that it had, once each, and make the runs of their seeds their children.

    Args:
        root: the runs folder; of the processes that share it, one writes at a time. Those of several machines agree on the
            first run of a cell, and the others are deleted.
    """
    with file_lock(root / "locks" / "cells.lock", activity="the cells of a study are being written", timeout=60):
        wanted = {cell.name: cell for cell in cells}
        known = {name for name, run in _cell_runs(client, experiment_id) if name in wanted and wanted[name].fits(run)}
        for name in wanted.keys() - known:
            tags = {CELL_RUN: name, **wanted[name].tags}
            created = client.create_run(experiment_id, run_name=name, tags=tags)
            log_batch(client, created.info.run_id, params=dict(wanted[name].params))
            client.set_terminated(created.info.run_id)
        runs: dict[str, Run] = {}
        for name, run in _cell_runs(client, experiment_id):
            if name in wanted and wanted[name].fits(run) and name not in runs:
                runs[name] = run
            else:
                client.delete_run(run.info.run_id)
        for name, run in runs.items():
            _update(client, run, wanted[name])
        for record in search_runs(client, experiment_id):
            run = runs.get(record.cell) if record.is_current and record.is_compared else None
            if run is not None and record.tags.get(PARENT_TAG) != run.info.run_id:
                client.set_tag(record.run_id, PARENT_TAG, run.info.run_id)


def _cell_runs(client: MlflowClient, experiment_id: str) -> Iterator[tuple[str, Run]]:
    """Yield the name of each cell with its run, the earliest first."""
    found = client.search_runs([experiment_id], f"tags.`{CELL_RUN}` != ''", max_results=50_000)
    for run in sorted(found, key=lambda run: (run.info.start_time, run.info.run_id)):
        yield run.data.tags[CELL_RUN], run


def _update(client: MlflowClient, run: Run, cell: CellRun) -> None:
    now, shown = int(1_000 * time.time()), run.data
    points = [(name, value, now, 0) for name, value in cell.metrics.items() if shown.metrics.get(name) != value]
    tags = {name: text for name, text in cell.tags.items() if shown.tags.get(name) != text}
    log_batch(client, run.info.run_id, points=points, tags=tags)
