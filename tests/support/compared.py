"""The compared cells of a study, as it is recorded or of made-up rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnlab.config.comparability import flatten_config, identity_of_test, task_length
from attnlab.config.run import RunConfig
from attnlab.planning.plan import Cell, Plan
from attnlab.stats.compared import Compared, compare_cells
from attnlab.study.comparison import StudyInfo, compare_info, comparison_of, load_info
from attnlab.tracking.record import RunRecord


def recorded(study: str, root: str | Path | None) -> tuple[StudyInfo, Compared]:
    """Return a study as it is recorded, without a look at it."""
    info, runs = load_info(study, root)
    return info, compare_info(info, runs)


def fake_record(cell: str, seed: int, summary: dict[str, float], state: str = "completed") -> RunRecord:
    """Return the record of a run that was not trained."""
    return RunRecord.model_construct(name=f"{cell} s{seed}", cell=cell, seed=seed, metrics=summary, state=state)


def of_rows(plan: Plan, rows: Iterable[RunRecord]) -> tuple[StudyInfo, Compared]:
    """Return the study that has these rows."""
    cells = [*plan.stages, *plan.cells, *plan.unselected]
    fields = {cell.name: {**_fields(cell), **cell.axes, "data_sizes": cell.data_sizes} for cell in cells}
    keys = ("cell", "seed", "state", "reason", "phase", "trial", "params")
    records = [{**row.summary, **fields[row.cell], **row.params, **{key: getattr(row, key) for key in keys}} for row in rows]
    spec = comparison_of(plan)
    return StudyInfo(spec), compare_cells(records, spec)


def _fields(cell: Cell) -> dict[str, Any]:
    test = {"test": identity_of_test(cell.settings)}
    if not isinstance(cell.settings, RunConfig):
        return test
    return {**flatten_config(json.loads(cell.settings.to_json())), "length": task_length(cell.settings), **test}
