"""Notes on verdicts: on the margin, the control, the data, the intervals and tests behind them, and on runs of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab._util.metrics import is_share
from attnlab.config.comparability import is_program_test
from attnlab.config.types import text
from attnlab.report.wording import describe_mark
from attnlab.stats.compare import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.paired import ROUNDING, Difference, NoTest, is_constant
from attnlab.stats.question import has_wide_margin
from attnlab.stats.records import comparison_name, is_present
from attnlab.stats.verdict import Sensitivity

MARKS = {
    Sensitivity.NOT_SHOWN: "control not worse",
    Sensitivity.WITHIN_MARGIN: "control within the margin",
    Sensitivity.NO_RESULT: "control without a result",
    Sensitivity.WIDE_MARGIN: "margin too wide",
}

NEW_ITEMS = "± for new test items"

SHOWN_DIGITS = 12  # of a digest


def margin_notes(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    """Return a note on a margin that is too wide for the scores."""
    if spec.margin is None or not has_wide_margin(cells, spec):
        return []
    scores = [score for cell in cells for score in cell.values.values()]
    points = (
        f" A margin of {spec.margin:g} percentage points would be {spec.margin / 100:g}."
        if is_share(spec.metric) and max(map(abs, scores)) <= 1
        else ""
    )
    return [
        f"The margin of {spec.margin:g} is too wide: the scores in {spec.metric} are between {min(scores):.4g} and "
        f"{max(scores):.4g}, so nearly every cell would be equivalent.{points}"
    ]


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
    return [f"Control: {names}. It must be found worse than its baseline{limit}."]


def notes_on_intervals(cells: Sequence[CellSummary]) -> list[str]:
    """Return the note on simultaneous intervals, if there are any."""
    compared = [cell for cell in comparisons(cells) if cell.difference is not None]
    return describe_mark({_comparison(cell, cells): cell.difference for cell in compared if cell.difference}, of="differences")


def _comparison(cell: CellSummary, cells: Sequence[CellSummary]) -> str:
    """Return the name of a compared cell, with its baseline if a cell is compared with several."""
    return comparison_name(cell.name, cell.baseline) if any(other.further for other in cells) else cell.name


def is_of_program(records: Sequence[Mapping[str, Any]]) -> bool:
    """Return True for the runs of a program."""
    return any(is_program_test(record.get("test")) for record in records)


def describe_command(records: Sequence[Mapping[str, Any]], *, axes: Sequence[str]) -> list[tuple[str, str]]:
    """Return (name, text) rows on the command of a study: its values, variables and files.

    Args:
        records: The compared runs.
        axes: Names of the grid's axes; their values are left out.
    """
    commands = dict.fromkeys(str(record["command"]) for record in records if is_present(record.get("command")))
    parts = {
        "values": {name: value for name, value in _fields(records, "values.").items() if name not in axes},
        "environment": _fields(records, "env."),
        "files": {name: digest[:SHOWN_DIGITS] for name, digest in _fields(records, "files.").items()},
    }
    rows = [("command", " or ".join(commands))]
    return rows + [(name, ", ".join(f"{field} {value}" for field, value in fields.items())) for name, fields in parts.items()]


def _fields(records: Sequence[Mapping[str, Any]], prefix: str) -> dict[str, str]:
    """Return the fields with a prefix that have one value in all runs."""
    names = dict.fromkeys(name for record in records for name in record if name.startswith(prefix))
    values = {name: {text(record.get(name)) for record in records if is_present(record.get(name))} for name in names}
    return {name.removeprefix(prefix): next(iter(found)) for name, found in values.items() if len(found) == 1}


def split_notes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note on the sizes of the splits."""
    sizes = dict.fromkeys(str(r["data_sizes"]) for r in records if is_present(r.get("data_sizes")) and r["data_sizes"])
    return [f"Data: {'; or '.join(sizes)}."] if sizes else []


def notes_on_equal_results(cells: Sequence[CellSummary]) -> list[str]:
    """Return notes on what makes no difference: seeds with one result, and axes that leave the baseline's results unchanged.

    Seeds and cells are equal up to the rounding of what was printed, differences also to within single precision
    (`attnlab.stats.paired`). Scores of attnlab's runs can be equal because a task is solved, so that only a difference between
    equal seeds, or equality with scores that scatter, is noted.
    """
    return [*_equal_seeds(cells), *_equal_cells(cells)]


def _equal_seeds(cells: Sequence[CellSummary]) -> list[str]:
    programs = [c.name for c in cells if is_program_test(c.test) and is_constant([*c.values.values()], relative=ROUNDING)]
    constant = [c for c in comparisons(cells) if c.difference and c.difference.no_test is NoTest.CONSTANT]
    others = [c.name for c in constant if not is_program_test(c.test) or not {c.name, c.baseline} <= set(programs)]
    texts = []
    if programs:
        texts.append(f"All seeds give the same result: {', '.join(programs)}. The program may not use {{seed}}.")
    if others:
        reason = (
            "the program may not use {seed} as it should"
            if is_program_test(constant[0].test)
            else "the seed does not change it"
        )
        texts.append(f"All seeds have the same difference from the baseline: {', '.join(others)}; {reason}.")
    return texts


def _equal_cells(cells: Sequence[CellSummary]) -> list[str]:
    by_name = {cell.name: cell for cell in cells}
    texts: dict[str, list[str]] = {}  # axes -> cells that they do not change
    for cell in comparisons(cells):
        if not _is_equal(cell.difference) or _is_saturated(cell):
            continue
        base = by_name[cell.baseline].axes
        axes = " and ".join(f"{{{axis}}}" for axis, value in cell.axes.items() if value != base[axis])
        if axes:
            texts.setdefault(axes, []).append(cell.name)
    is_program = any(is_program_test(cell.test) for cell in cells)
    why = "the program may not use {axes}" if is_program else "{axes} may have no effect"
    return [
        f"The same results as the baseline in every seed: {', '.join(names)}; {why.format(axes=axes)}."
        for axes, names in texts.items()
    ]


def _is_equal(difference: Difference | None) -> bool:
    """Return True when a cell and its baseline have the same score in each of several seeds."""
    return difference is not None and difference.interval.n > 1 and difference.has_equal_scores


def _is_saturated(cell: CellSummary) -> bool:
    """Return True for scores that two different cells can share: a solved task, or for attnlab's runs any constant."""
    values = [*cell.values.values()]
    return is_constant(values) and (not is_program_test(cell.test) or all(value in (0.0, 1.0, 100.0) for value in values))
