"""The costs of the cells of a plan, and their CUDA memory compared with the memory of the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

import torch

from attnlab._util.progress import Progress, no_progress, track
from attnlab._util.raise_site import describe_error
from attnlab.config.grid import CellConfig
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.base import model_class
from attnlab.planning.cell import Cell
from attnlab.planning.evaluations import evaluation_schedule
from attnlab.planning.resolve import ResolvedCell
from attnlab.planning.stages import match_models
from attnlab.planning.traces import BuildError, Traces
from attnlab.tasks import Task
from attnlab.training import device as training_device
from attnlab.training.device import format_bytes

MIB = 2**20
OVERHEAD = 1024  # MiB for the CUDA context, workspaces of libraries and fragmentation


def planned_cell(cell: CellConfig, resolved: ResolvedCell) -> Cell:
    """Return the cell of a plan without its costs."""
    return Cell(
        cell.name,
        cell.axes,
        resolved.config,
        resolved.refusal,
        where=cell.place,
        matched=resolved.matched,
        cuda_backend=resolved.cuda_backend,
        fixed_costs=resolved.fixed_costs,
        factors={axis: index for axis, index in cell.chosen.items() if axis in cell.study.factors},
        stage=planned_cell(*resolved.stage) if resolved.stage else None,
    )


def with_costs(cell: CellConfig, resolved: ResolvedCell, traces: Traces) -> Cell:
    """Return the cell of a plan with its costs; it is refused if its model cannot be built.

    Raises:
        UserError: an error of its task.
    """
    result = planned_cell(cell, resolved)
    if resolved.refusal is not None:
        return result
    if resolved.stage is not None:
        result = _from_stage(result, resolved, with_costs(*resolved.stage, traces))
        if result.refusal is not None:
            return result
    from attnlab.training.train import total_steps

    try:
        figures = traces.figures(resolved.config, resolved.task)
    except BuildError as error:
        return replace(result, refusal=error.message)
    try:
        steps = total_steps(resolved.config.train, resolved.task)
    except UserError as error:
        raise UserError(error.message, error.where or cell.where("task")) from error
    except Exception as error:  # a user's task may raise anything
        message = f"task {resolved.config.task.label}: {describe_error(error, type(resolved.task))}"
        raise UserError(message, cell.where("task")) from error
    rows, flops = steps * resolved.config.train.batch_size, figures["flops_per_token"]
    train_flops = 3 * flops * _tokens(cell, resolved, "train", rows, traces)
    try:
        eval_flops = _eval_flops(cell, resolved, flops, traces)
    except BuildError as error:
        return replace(result, refusal=error.message)
    shown = {field.name for field in fields(Cell)} & figures.keys()  # a cost metric need not be a figure of the plan
    costs = {name: figures[name] for name in shown}
    unknown = traces.mean_length(resolved.config, resolved.task, "train") is None
    return replace(result, **costs, train_flops=train_flops, eval_flops=eval_flops, has_unknown_lengths=unknown)


def _tokens(cell: CellConfig, resolved: ResolvedCell, split: str, rows: int, traces: Traces) -> int:
    """Return the tokens of so many rows of a split; an encoder-decoder counts its source and its target."""
    model, task = model_class(resolved.config, resolved.task), resolved.task
    full = rows * model.example_batch(task, 1, device=torch.device("cpu")).tokens
    mean = _mean_length(cell, resolved, split, traces)
    return full if mean == task.length else round(full * mean / task.length)


def _from_stage(cell: Cell, resolved: ResolvedCell, stage: Cell) -> Cell:
    """Return a cell with the stage that it starts from; it is refused if the stage is, or if their models share no matrix."""
    assert resolved.stage is not None
    if stage.refusal is not None:
        return replace(cell, stage=stage, refusal=f"its stage {stage.name!r} is refused: {stage.refusal}")
    try:
        matching = match_models(stage.config, resolved.stage[1].task, cell.config, resolved.task)
    except BuildError as error:
        return replace(cell, stage=stage, refusal=error.message)
    if matching.is_empty:
        reason = f"no matrix of the stage {stage.name!r} has the name and the shape of one of its own"
        return replace(cell, stage=stage, refusal=f"init: {reason}")
    return replace(cell, stage=stage, taken=str(matching))


def _mean_length(cell: CellConfig, resolved: ResolvedCell, split: str, traces: Traces) -> float:
    """Return the mean tokens of a row of a split on one side, its full length if the task does not know it yet."""
    try:
        mean = traces.mean_length(resolved.config, resolved.task, split)
    except UserError as error:
        raise UserError(error.message, error.where or cell.where("task")) from error
    return resolved.task.length if mean is None else min(mean, resolved.task.length)


def _eval_flops(cell: CellConfig, resolved: ResolvedCell, flops_per_token: int, traces: Traces) -> int | None:
    """Return the FLOPs of all evaluations of a run, decoding included; None when the task does not estimate their tokens."""
    config, times = resolved.config.evaluate, evaluation_schedule(resolved.config, resolved.task).early + 1
    reads = [("valid", config.valid_limit, times)]
    if config.sample_limit is not None:  # after the last step, the sample is read and then the whole
        reads = [("valid", config.sample_limit, times), ("valid", config.valid_limit, 1)]
    if config.test:
        reads.append(("test", config.test_limit, 1))
    total = 0
    for split, limit, count in reads:
        tokens = resolved.task.eval_tokens(split, limit=limit, protocol=config.protocol, stride=config.stride)
        if tokens is None:
            return None
        rows = tokens // resolved.task.length
        scored = flops_per_token * _tokens(cell, resolved, split, rows, traces)
        total += count * (scored + rows * _decoding_flops(cell, resolved, split, traces))
    return total


def _decoding_flops(cell: CellConfig, resolved: ResolvedCell, split: str, traces: Traces) -> int:
    """Return the FLOPs with which an evaluation decodes one row; 0 for a task that generates nothing.

    Translations are taken to be as long as their references.
    """
    task = resolved.task
    if task.kind != "encoder_decoder" or type(task).generated_scores is Task.generated_scores:
        return 0
    options = task.decoding_options()
    tokens = max(1, min(round(_mean_length(cell, resolved, split, traces)), int(options.get("max_length", task.length))))
    return traces.decoding_flops(resolved.config, task, tokens=tokens, beam=int(options.get("beam", 1)))


def cuda_peaks(cells: Sequence[Cell], *, progress: Progress = no_progress) -> dict[str, float | str]:
    """Return cell name -> estimated peak memory of a training step in MiB, or the reason why there is no estimate.

    Cells that differ only in fields without an effect on memory are estimated once.
    """
    peaks: dict[str, float | str] = {}
    known: dict[str, float | str] = {}
    for cell in track(cells, "estimating CUDA memory", progress):
        if cell.refusal is None or _lacks_device(cell):
            shape = _shape(cell)
            key = shape.to_json()
            if key not in known:
                known[key] = _estimate(shape)
            peaks[cell.name] = known[key]
    return peaks


def requests_cuda(cell: Cell) -> bool:
    """Return True when the cell is for a CUDA device, whether this machine has one or not."""
    return cell.config.machine.device.startswith("cuda")


def _lacks_device(cell: Cell) -> bool:
    """Return True when the cell is refused because this machine has no CUDA device, the first rule of ``planning.support``."""
    device = cell.config.machine.device
    return device.startswith("cuda") and cell.refusal == training_device.unsupported(device)


def _shape(cell: Cell) -> RunConfig:
    """Return the configuration on CUDA, reduced to the fields that affect the memory of a step."""
    from attnlab.training.costs import one_step

    return one_step(cell.config).model_copy(update={"backend": cell.cuda_backend})


def _estimate(config: RunConfig) -> float | str:
    from attnlab.registry import TASKS
    from attnlab.training.cuda_memory import cuda_peak_mib

    try:
        return cuda_peak_mib(config, TASKS.get(config.task.name)(**config.task.options))
    except Exception as error:  # a user's variant may read values of a tensor, which fake tensors lack
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"


def memory_notes(cells: Sequence[Cell], peaks: Mapping[str, float | str]) -> Iterator[str]:
    """Yield notes on cells without an estimate, and on cells that do not fit into the memory of their device."""
    import torch

    for cell in cells:
        peak, device = peaks.get(cell.name), cell.config.machine.device
        if isinstance(peak, str):
            yield f"{cell.name!r} has no estimate of its memory on CUDA: {peak}"
        elif peak is not None and device.startswith("cuda") and torch.cuda.is_available():
            properties = torch.cuda.get_device_properties(torch.device(device))
            if peak + OVERHEAD > properties.total_memory / MIB:
                need, has = format_bytes((peak + OVERHEAD) * MIB), format_bytes(properties.total_memory)
                yield f"{cell.name!r} will not fit: about {need} with CUDA's own, and {properties.name} has {has}"
