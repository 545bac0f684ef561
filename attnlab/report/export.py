"""Export of a report's tables as CSV files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.cost_metrics import shown_in
from attnlab.report.wording import describe_verdict, export_corrections
from attnlab.stats.compare import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.simultaneous import simultaneous_interval

if TYPE_CHECKING:
    import pandas

PRIVATE = ("folder", "sources")  # columns with paths of one machine


def export(
    folder: Path,
    *,
    cells: Sequence[CellSummary],
    runs: pandas.DataFrame,
    spec: ComparisonSpec,
    further: Mapping[str, pandas.DataFrame] | None = None,
) -> None:
    """Write the tables of a report, each as .csv.

    `cells` has one row per cell, and another one for each comparison with a further baseline; `runs` has one row per run,
    trials included. `further` are the tables of the study's analyses, by name.
    """
    frames = {"cells": cells_frame(cells, spec), "runs": _single_typed(runs), **(further or {})}
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)


def cells_frame(cells: Sequence[CellSummary], spec: ComparisonSpec) -> pandas.DataFrame:
    """Return the verdict table in full precision."""
    import pandas

    return pandas.DataFrame([_cell_record(cell, spec) for cell in comparisons(cells)])


def _cell_record(cell: CellSummary, spec: ComparisonSpec) -> dict[str, Any]:
    value, difference = cell.value, cell.difference
    paired = difference.interval if difference else None
    simultaneous = simultaneous_interval(difference) if difference else None
    for_new_items = cell.for_new_items
    return {
        "cell": cell.name,
        **{axis: cell.axes[axis] for axis in spec.axes},
        "n": value.n if value else 0,
        spec.metric: value.mean if value else None,
        "sd": value.sd if value else None,
        "low": value.low if value else None,
        "high": value.high if value else None,
        "baseline": cell.baseline,
        "n_paired": paired.n if paired else 0,
        "difference": paired.mean if paired else None,
        "difference_low": paired.low if paired else None,
        "difference_high": paired.high if paired else None,
        "simultaneous_low": simultaneous.low if simultaneous else None,
        "simultaneous_high": simultaneous.high if simultaneous else None,
        "new_items_low": for_new_items[0] if for_new_items else None,
        "new_items_high": for_new_items[1] if for_new_items else None,
        "p": difference.p if difference else None,
        "p_holm": difference.p_holm if difference else None,
        "p_equivalent_holm": difference.p_equivalent_holm if difference else None,
        **spec.estimator.columns(cell),
        "effect_size": difference.effect_size if difference else None,
        "verdict": describe_verdict(cell.verdict),
        "corrected": export_corrections(cell.verdict.corrections) if cell.verdict else "",
        "fragile": bool(cell.verdict and cell.verdict.fragile),
        **{m.name: cell.costs[m.name].mean if m.name in cell.costs else None for m in shown_in("cost table")},
        "outcome": cell.outcome,
        "reasons": "; ".join(cell.reasons),
    }


def _single_typed(runs: pandas.DataFrame) -> pandas.DataFrame:
    """Return the runs with one type per column: columns of mixed types, lists or dicts become text."""
    frame = runs.drop(columns=[name for name in PRIVATE if name in runs])
    for name in frame.columns:
        types = {type(value) for value in frame[name] if value is not None and value == value}
        if types & {list, dict, tuple} or (len(types) > 1 and not types <= {int, float}):
            frame[name] = [_text(value) for value in frame[name]]
    return frame


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return None if value != value else json.dumps(value, default=str)
