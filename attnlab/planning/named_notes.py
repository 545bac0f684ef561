"""The runs of a plan, stages included, and notes that several of them share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from attnlab._util.plural import count
from attnlab.config.axes import Label
from attnlab.config.run import RunConfig
from attnlab.planning.matching import CellPair

SHOWN = 3  # names of cells in a note


class PlannedRun(NamedTuple):
    """The configuration of a cell or of a stage, without its seed.

    Attributes:
        name: of the cell, or ``stage pretrain``.
        axes: axis -> label; of a stage, those that concern it.
    """

    name: str
    config: RunConfig
    task: Any
    axes: Mapping[str, Label]
    is_stage: bool = False


def planned_runs(cells: Sequence[CellPair]) -> list[PlannedRun]:
    """Return the cells that are not refused, and the stages that they start from, each once."""
    runs: dict[str, PlannedRun] = {}
    for cell, resolution in cells:
        if resolution.refusal is not None:
            continue
        runs[cell.name] = PlannedRun(cell.name, resolution.config, resolution.task, cell.axes)
        stage = resolution.stage
        while stage is not None:
            name = f"stage {stage[0].name}"
            runs.setdefault(name, PlannedRun(name, stage[1].config, stage[1].task, stage[0].axes, is_stage=True))
            stage = stage[1].stage
    return list(runs.values())


def shared_notes(notes: Iterable[tuple[str, str]], runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield each distinct note once, with the names of the cells that it concerns unless it concerns all runs.

    Args:
        notes: name of a run, and a note on it.
        runs: of the plan.
    """
    names: dict[str, list[str]] = {}
    for name, note in notes:
        names.setdefault(note, []).append(name)
    for note, concerned in names.items():
        if len(set(concerned)) == len(runs):
            yield note
        else:
            yield f"{listed(concerned)}: {note}"


def listed(names: Sequence[str]) -> str:
    """Return names of cells as in "'a', 'b', 'c' and 4 more cells"."""
    shown = ", ".join(map(repr, names[:SHOWN]))
    return shown if len(names) <= SHOWN else f"{shown} and {count(len(names) - SHOWN, 'more cell')}"
