"""The stages of a plan: which stage each cell starts from, and what its model takes over from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from attnlab._util.text import count
from attnlab.config.grid import Cell, CellConfig, CellPair, ResolvedCell
from attnlab.config.stages import stage_of
from attnlab.config.study import StudyConfig
from attnlab.planning.resolve import Resolver
from attnlab.tasks.overlap import NOTABLE


def resolve_stages(cells: list[CellPair], resolver: Resolver) -> list[CellPair]:
    """Return the cells with the stages that they start from; equal stages of several cells become one.

    Args:
        cells: with the costs of their variants matched.

    Raises:
        UserError: a stage that does not exist or starts from itself, or a mistake in one; with its place in the study.
    """
    known: dict[str, CellPair] = {}
    return [(cell, _with_stage(cell, resolved, resolver, known)) for cell, resolved in cells]


def _with_stage(cell: CellConfig, resolved: ResolvedCell, resolver: Resolver, known: dict[str, CellPair]) -> ResolvedCell:
    """Return a resolved cell, or stage, with the stage that it starts from.

    Args:
        known: key of each stage so far -> the stage, to which this function adds.
    """
    stage = stage_of(cell, resolved.config)
    if stage is None or cell.config.init is None:
        return resolved
    of_stage = _with_stage(stage, resolver(stage), resolver, known)
    first, shared = known.setdefault(of_stage.key, (stage, of_stage))
    init = cell.config.init.model_copy(update={"fingerprint": shared.config.fingerprint()})
    config = resolved.config.model_copy(update={"init": init})
    refusal = resolved.refusal
    if refusal is None and shared.refusal is not None:
        refusal = f"its stage {first.name!r} is refused: {shared.refusal}"
    if refusal is None and (tokens := resolved.task.vocabulary_identity()) != (others := shared.task.vocabulary_identity()):
        refusal = f"its tokens ({tokens or 'not stated'}) differ from its stage {first.name!r} ({others or 'not stated'})"
    return replace(resolved, config=config, key=f"{resolved.key}<{of_stage.key}", refusal=refusal, stage=(first, shared))


def test_text_notes(cells: Sequence[CellPair]) -> Iterator[str]:
    """Yield a note on each stage of which the training text contains text of the test of a cell that starts from it."""
    notes: dict[str, None] = {}
    for _, resolution in cells:
        files, stage = getattr(resolution.task, "split_files", None), resolution.stage
        while files is not None and stage is not None and resolution.refusal is None:
            of_stage = getattr(stage[1].task, "split_files", None)
            if of_stage is not None and (share := files.test_share_in(of_stage)) >= NOTABLE:
                notes[f"the stage {stage[0].name!r} trains on {100 * share:.1f} % of the test text: use another text"] = None
            stage = stage[1].stage
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
