"""The stages of a plan: which stage each cell starts from, and what its model takes over from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from attnlab._util.text import count
from attnlab.config.grid import Cell
from attnlab.config.stages import stage_of
from attnlab.config.study import StudyConfig
from attnlab.planning.resolve import Resolver
from attnlab.tasks.overlap import NOTABLE


def resolve_stages(cells: list[Cell], resolver: Resolver) -> list[Cell]:
    """Return the cells with the stages that they start from; equal stages of several cells become one.

    Args:
        cells: with the costs of their variants matched.

    Raises:
        UserError: a stage that does not exist or starts from itself, or a mistake in one; with its place in the study.
    """
    known: dict[str, Cell] = {}
    return [_with_stage(cell, resolver, known) for cell in cells]


def _with_stage(cell: Cell, resolver: Resolver, known: dict[str, Cell]) -> Cell:
    """Return a resolved cell, or stage, with the stage that it starts from.

    Args:
        known: key of each stage so far -> the stage, to which this function adds.
    """
    declared = stage_of(cell)
    if declared is None or cell.config.init is None:
        return cell
    own = _with_stage(resolver(declared), resolver, known)
    stage = known.setdefault(own.key, own)
    init = cell.config.init.model_copy(update={"fingerprint": stage.config.fingerprint()})
    config, refusal = cell.config.model_copy(update={"init": init}), cell.refusal
    if refusal is None and stage.refusal is not None:
        refusal = f"its stage {stage.name!r} is refused: {stage.refusal}"
    if refusal is None and (tokens := cell.task.vocabulary_identity()) != (others := stage.task.vocabulary_identity()):
        refusal = f"its tokens ({tokens or 'not stated'}) differ from its stage {stage.name!r} ({others or 'not stated'})"
    return replace(cell, settings=config, key=f"{cell.key}<{own.key}", refusal=refusal, stage=stage)


def test_text_notes(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a note on each stage of which the training text contains text of the test of a cell that starts from it."""
    notes: dict[str, None] = {}
    for cell in cells:
        for stage in cell.stages if cell.refusal is None else ():
            files, of_stage = (getattr(of.task, "split_files", None) for of in (cell, stage))
            if files is not None and of_stage is not None and (share := files.test_share_in(of_stage)) >= NOTABLE:
                notes[f"the stage {stage.name!r} trains on {100 * share:.1f} % of the test text: use another text"] = None
    yield from notes


def stage_notes(study: StudyConfig, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a note on each distinct transfer of weights, and on each stage that no cell starts from."""
    transfers: dict[tuple[str, str], dict[str, None]] = {}
    for cell in cells:
        for part in (*cell.stages, cell):
            if part.config.init is not None and part.taken:
                transfers.setdefault((part.config.init.stage, part.taken), {})[part.name] = None
    for (stage, taken), names in transfers.items():
        shown = repr(next(iter(names))) if len(names) == 1 else count(len(names), "cell")
        yield f"{shown} from {stage!r}: {taken}"
    used = {stage.name.partition(":")[0] for cell in cells for stage in cell.stages}
    for name in study.stages:
        if name not in used:
            yield f"the stage {name!r} is not trained: no cell starts from it"
