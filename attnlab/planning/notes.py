"""Notes of a plan: equal cells, cells without a baseline, and lengths at which a model is not evaluated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from attnlab.config.axes import LAYERS, Label
from attnlab.config.command import CommandConfig
from attnlab.config.comparability import OTHER_FILES, describe_changes, describe_other_files, identity_of_test
from attnlab.config.grid import CellConfig
from attnlab.config.study import StudyConfig
from attnlab.errors import UserError
from attnlab.models.parts import parts
from attnlab.planning.cell import Cell
from attnlab.planning.components import without_cache
from attnlab.planning.effects import axis_notes, dead_axes
from attnlab.planning.matching import CellPair

USUAL_DIRECTIONS = {  # words in the name of a metric -> direction
    ("accuracy", "precision", "recall", "f1", "auc", "bleu", "rouge", "exact_match"): "max",
    ("loss", "perplexity", "bits_per", "nats_per", "error", "mse", "rmse", "mae"): "min",
}


def double_notes(
    study: StudyConfig, resolved: Sequence[CellPair], doubles: Mapping[str, str], wanted: Sequence[str]
) -> Iterator[str]:
    """Yield a note on each axis that changes nothing, and on each wanted cell that is a double for another reason."""
    cells = {cell.name: cell for cell, _ in resolved}
    dead = dead_axes(study, list(cells.values()), {cell.name: resolution.key for cell, resolution in resolved})
    yield from axis_notes(study, dead, [(resolution.config, resolution.task) for _, resolution in resolved])
    for name in wanted:
        if name in doubles:
            chosen, first = cells[name].chosen, cells[doubles[name]].chosen
            if any(chosen[axis] != first[axis] for axis in chosen if axis not in dead):
                yield f"{name!r} is the same configuration as {doubles[name]!r}: it is run once, as that"


def direction_notes(metric: str, direction: str) -> Iterator[str]:
    """Yield a note on a metric if its name suggests the other direction."""
    usual = next(
        (usual for words, usual in USUAL_DIRECTIONS.items() if any(f"_{word}" in f"_{metric.lower()}" for word in words)),
        direction,
    )
    if usual != direction:
        better = "higher" if usual == "max" else "lower"
        yield f"{metric} is compared with direction {direction}, although {better} values of it are usually better"


def length_notes(cells: Sequence[CellPair]) -> Iterator[str]:
    """Yield notes on the values of ``evaluate.lengths`` at which a cell's trained model cannot be evaluated."""
    from attnlab.training.lengths import unsupported_length

    for cell, resolution in cells:
        if resolution.refusal is not None:
            continue
        reasons: dict[str, list[int]] = {}
        for length in resolution.config.evaluate.lengths:
            reason = unsupported_length(resolution.config, resolution.task, length)
            if reason is not None:
                reasons.setdefault(reason, []).append(length)
        for reason, lengths in reasons.items():
            yield f"{cell.name!r} is not tested at length {', '.join(map(str, lengths))}: {reason}"


def layer_notes(cells: Sequence[CellPair]) -> Iterator[str]:
    """Yield a note on each cell in which the last repetition of ``model.layers`` is incomplete."""
    for cell, resolution in cells:
        layers, depth = resolution.config.model.layers, resolution.config.model.depth
        if resolution.refusal is None and layers is not None and depth % len(layers.pattern):
            n, rest = len(layers.pattern), depth % len(layers.pattern)
            last = "1 entry" if rest == 1 else f"{rest} entries"
            yield f"{cell.name!r}: model.depth {depth} is not a multiple of the {n} entries of {LAYERS}: it ends after {last}"


def cache_notes(cells: Sequence[CellPair]) -> Iterator[str]:
    """Yield a note on the encoder-decoders that decode without a cache of keys and values, by what supports none."""
    names: dict[str, list[str]] = {}
    for cell, resolution in cells:
        if resolution.refusal is None and resolution.task.kind == "encoder_decoder":
            decoding = [part for part in parts(resolution.config, resolution.task) if part.name in ("decoder", "cross")]
            without = sorted({label for part in decoding for label in without_cache(part)})
            if without:
                names.setdefault(" and ".join(without), []).append(repr(cell.name))
    for variants, own in names.items():
        yield f"{', '.join(own)}: {variants} supports no cache of keys and values, so decoding repeats earlier positions"


def experimental_notes(cells: Sequence[CellPair]) -> Iterator[str]:
    """Yield a note on the cells that compute on CUDA with code that `attnlab gpu-check` has not passed on a GPU yet."""
    names = [
        repr(cell.name)
        for cell, resolution in cells
        if resolution.refusal is None
        and resolution.config.machine.device.startswith("cuda")
        and resolution.config.backend == "flex"
        and any(part.position_class.hook == "bias" for part in parts(resolution.config, resolution.task))
    ]
    if names:
        check = "`attnlab gpu-check --only agreement` compares it with float64 on your card"
        yield f"{', '.join(names)}: the backend flex with a position bias is experimental; {check}"


def data_notes(cells: Sequence[CellPair]) -> dict[str, tuple[str, ...]]:
    """Return the notes of each cell's task on its data, by the name of the cell.

    Raises:
        UserError: the method ``data_notes`` of a user's task failed.
    """
    notes: dict[tuple[str | None, str], tuple[str, ...]] = {}  # of several cells: by their data and the options of their task
    keys = {cell.name: (resolution.config.data, resolution.config.task.model_dump_json()) for cell, resolution in cells}
    for cell, resolution in cells:
        if resolution.refusal is None and (key := keys[cell.name]) not in notes:
            try:
                notes[key] = tuple(resolution.task.data_notes())
            except UserError as error:
                raise UserError(error.message, error.where or cell.where("task")) from error
            except Exception as error:  # any exception: the task may be the user's own
                message = f"task {resolution.config.task.label}: data_notes() failed: {type(error).__name__}: {error}"
                raise UserError(message, cell.where("task")) from error
    return {cell.name: notes[keys[cell.name]] for cell, resolution in cells if resolution.refusal is None}


def baseline_notes(
    study: StudyConfig, cells: Sequence[Cell], baseline_of: Callable[[Cell, int], Cell | None], *, every: Sequence[CellConfig]
) -> Iterator[str]:
    """Yield notes on cells without a baseline to compare with.

    Args:
        cells: of the plan.
        baseline_of: returns the baseline of a cell with this number, or None.
        every: the cells of the whole grid.
    """
    for number, baseline in enumerate(study.baselines):
        shown = ", ".join(f"{axis} {value}" for axis, value in baseline.items())
        for cell in cells:
            base = baseline_of(cell, number)
            if base is None:
                axes = {**cell.axes, **baseline}
                exists = any(candidate.axes == axes for candidate in every)
                why = "is not among the cells chosen" if exists else "is not in the grid"
                yield f"{cell.name!r} has no baseline: its cell with {shown} {why}"
            elif base.refusal is not None and cell.refusal is None:
                yield f"{cell.name!r} has no baseline: {base.name!r} is refused"
            elif isinstance(cell.settings, CommandConfig):
                if files := describe_other_files(*map(identity_of_test, (cell.settings, base.settings))):
                    yield f"{cell.name!r} is compared with {base.name!r} on other files: {files}. {OTHER_FILES}"
            elif change := _change_of_test(cell, base):
                yield f"{cell.name!r} is not compared with {base.name!r}: not the same test ({change})"


def control_notes(
    study: StudyConfig, cells: Sequence[Cell], *, refusals: Mapping[tuple[Label, ...], str | None]
) -> Iterator[str]:
    """Yield notes on a control that supports nothing: without a margin, not in the grid, or refused.

    Args:
        cells: of the plan.
        refusals: the labels of each cell of the whole grid -> the reason why it cannot run, or None.
    """
    if study.control is None:
        return
    shown = ", ".join(f"{axis} {value}" for axis, value in study.control.items())
    if study.margin is None:
        yield f"the control ({shown}) supports verdicts of equivalent, which need a margin: the study has none"
    for cell in cells:
        axes = tuple({**cell.axes, **study.control}.values())
        if axes not in refusals:
            yield f"{cell.name!r} has no control: its cell with {shown} is not in the grid"
        elif refusals[axes] is not None and axes != tuple(cell.axes.values()):
            yield f"{cell.name!r} has no control: its cell with {shown} is refused"


def margin_notes(study: StudyConfig) -> Iterator[str]:
    """Yield a note on a margin of a study that compares no cells."""
    if study.margin is not None and not study.baselines and not study.factors:
        yield "the margin has no effect, because no cells are compared: write a 'baseline', such as {variant: dense}"


def _change_of_test(cell: Cell, base: Cell) -> str:
    """Return the difference of the test of a cell from that of its baseline; "" if they are the same."""
    test, base_test = (json.loads(identity_of_test(c.settings)) for c in (cell, base))
    return describe_changes(test, base_test)
