"""The costs of the cells of a plan."""

from dataclasses import fields, replace

import torch

from attnlab._util.raise_site import describe_error
from attnlab.config.grid import CellConfig
from attnlab.errors import UserError
from attnlab.models.base import model_class
from attnlab.planning.cell import Cell
from attnlab.planning.evaluations import evaluation_schedule
from attnlab.planning.resolve import ResolvedCell
from attnlab.planning.stages import match_models
from attnlab.planning.traces import BuildError, Traces
from attnlab.tasks import Task


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
