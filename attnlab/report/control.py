"""Notes on a study's control: what it is, and whether it supports a verdict of equivalent."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.stats.compare import CellSummary, ComparisonSpec
from attnlab.stats.verdict import Sensitivity

MARKS = {
    Sensitivity.NOT_SHOWN: "control not worse",
    Sensitivity.WITHIN_MARGIN: "control within the margin",
    Sensitivity.NO_RESULT: "control without a result",
    Sensitivity.WIDE_MARGIN: "margin too wide",
}


def plot_label(cell: CellSummary, spec: ComparisonSpec) -> str:
    """Return the name of a cell with a mark if it is a control, or if its control does not support its verdict."""
    if spec.is_control(cell.axes):
        return f"{cell.name} (control)"
    mark = MARKS.get(cell.verdict.sensitivity) if cell.verdict and cell.verdict.sensitivity else None
    return f"{cell.name} ({mark})" if mark else cell.name


def control_notes(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    """Return a note on the study's control, if it has one."""
    if not spec.control:
        return []
    names = ", ".join(cell.name for cell in cells if spec.is_control(cell.axes)) or "not in the table"
    limit = "" if spec.margin is None else f" by at least the margin of {spec.margin:g}"
    return [
        f"Control: {names}. It must be found worse than its baseline{limit}; otherwise a verdict of equivalent or identical "
        "does not show that the cells agree, because the study might see no difference at all. The control takes part in "
        "Holm's correction of the tests for a difference, and is not tested for equivalence."
    ]
