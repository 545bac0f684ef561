"""Seeds that are trained as one model (``run: {fuse: seeds}``): cells that do not support it, and a note where it is slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from attnlab._util.progress import Progress, no_progress, track
from attnlab.config.study import StudyConfig
from attnlab.planning.building import BuildError, build_errors
from attnlab.planning.matching import CellPair
from attnlab.planning.resolve import ResolvedCell

# The largest batch and width with which fusing is faster on a CPU, by ``benchmarks.fused``; docs/how-to/gpu.md has the numbers.
MAX_TOKENS = 512
MAX_WIDTH = 64


def refuse_unfusable(study: StudyConfig, cells: Sequence[CellPair], *, progress: Progress = no_progress) -> list[CellPair]:
    """Return the cells of a study with ``run.fuse``, those whose seeds cannot be trained as one model with the reason."""
    if study.run.fuse is None:
        return list(cells)
    return [(cell, _with_refusal(resolved)) for cell, resolved in track(cells, "checking fused steps", progress)]


def _with_refusal(resolved: ResolvedCell) -> ResolvedCell:
    from attnlab.training.fused.support import unsupported

    if resolved.refusal is not None:
        return resolved
    try:
        with build_errors(resolved.config, resolved.task):
            return replace(resolved, refusal=unsupported(resolved.config, resolved.task))
    except BuildError as error:
        return replace(resolved, refusal=error.message)


def fuse_notes(study: StudyConfig, cells: Sequence[CellPair]) -> Iterator[str]:
    """Yield a note on the cells of each size whose seeds train no faster on a CPU as one model."""
    if study.run.fuse is None:
        return
    slow: dict[str, list[str]] = {}
    for cell, resolved in cells:
        width, tokens = resolved.config.model.dim, resolved.config.train.batch_size * resolved.task.length
        on_cpu = resolved.refusal is None and resolved.config.machine.device == "cpu"
        if on_cpu and (width > MAX_WIDTH or tokens > MAX_TOKENS):
            slow.setdefault(f"width {width} and {tokens:,} tokens in a batch", []).append(repr(cell.name))
    for size, names in slow.items():
        pays = f"it pays up to about width {MAX_WIDTH} and {MAX_TOKENS} tokens"
        yield f"run.fuse: seeds is not advised on a CPU at {size} ({', '.join(names)}): {pays}"
