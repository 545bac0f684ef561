"""The cells that a plan leaves out, and its notes: in groups by reason, so that a large grid stays readable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnlab.cli._printing import print_text

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan

Axes = Mapping[str, Any]  # axis -> label
MAX_VALUES = 8  # of one axis that are listed
MIN_NOTES = 3  # equal notes on fewer cells are printed for each cell


def print_omissions(plan: Plan, *, each: bool = False) -> None:
    """Print the refused and the skipped cells with their reasons, and the notes of the plan.

    Args:
        each: print a line for each cell instead of one for each reason.
    """
    refused = [(cell.name, cell.axes, str(cell.refusal)) for cell in plan.cells if cell.refusal is not None]
    skipped = [(cell.name, cell.axes, cell.because) for cell in plan.skipped]
    every = [cell.axes for cell in (*plan.cells, *plan.unselected, *plan.skipped)]
    grouped = False
    for kind, cells in (("refused", refused), ("skipped", skipped)):
        reasons: dict[str, list[tuple[str, Axes]]] = {}
        for name, axes, reason in cells:
            reasons.setdefault(f"{name}: {reason}" if each else reason, []).append((name, axes))
        for reason, group in reasons.items():
            print_text(f"{kind}: {reason if each else f'{_describe(group, every)}: {reason}'}")
            grouped |= len(group) > 1
    if grouped:
        print("(attnlab plan --all lists each of these cells.)")
    for note in plan.notes if each else _grouped_notes(plan, every):
        print_text(f"note: {note}")


def _describe(group: Sequence[tuple[str, Axes]], every: Sequence[Axes]) -> str:
    """Return the name of a single cell; of several, their number and the values of the axes that distinguish them."""
    if len(group) == 1:
        return group[0][0]
    values = " and ".join(_shared_values([axes for _, axes in group], every))
    return f"{len(group)} cells{f' with {values}' if values else ''}"


def _shared_values(group: Sequence[Axes], every: Sequence[Axes]) -> list[str]:
    """Return the values of each axis of which the group does not have all, as `--only` takes them: ``variant=dense,wide``."""
    ends = [axis.rpartition(".")[2] for axis in group[0]]
    texts = []
    for axis, end in zip(group[0], ends, strict=True):
        values = list(dict.fromkeys(str(axes[axis]) for axes in group))
        total = len({str(axes[axis]) for axes in every})
        if len(values) < total:
            listed = ",".join(values) if len(values) <= MAX_VALUES else f"({len(values)} of {total} values)"
            texts.append(f"{end if ends.count(end) == 1 else axis}={listed}")
    return texts


def _grouped_notes(plan: Plan, every: Sequence[Axes]) -> list[str]:
    """Return the notes; those that make the same statement on several cells are one."""
    statements: dict[str, list[tuple[str, Axes]]] = {}
    for note in plan.notes:
        cell = next((cell for cell in plan.cells if note.startswith(f"{cell.name!r} ")), None)
        if cell is None:
            statements[note] = []
        else:
            statements.setdefault(note.removeprefix(repr(cell.name)), []).append((cell.name, cell.axes))
    notes = []
    for statement, group in statements.items():
        if len(group) < MIN_NOTES:
            notes += [f"{name!r}{statement}" for name, _ in group] or [statement]
        else:
            notes.append(f"each of {_describe(group, every)}{statement}")
    return notes
