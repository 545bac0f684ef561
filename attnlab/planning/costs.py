"""The costs of the cells of a plan."""

from dataclasses import fields, replace

import torch

from attnlab._util.raise_site import describe_error
from attnlab.config.grid import CellConfig
from attnlab.errors import UserError
from attnlab.models.base import model_class
from attnlab.planning.advice import evaluation_schedule
from attnlab.planning.building import BuildError
from attnlab.planning.cell import Cell
from attnlab.planning.resolve import ResolvedCell
from attnlab.planning.stages import match_models
from attnlab.planning.traces import Traces


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
    row = _row_tokens(resolved)
    tokens = steps * resolved.config.train.batch_size * row
    flops, read = figures["flops_per_token"], _eval_tokens(resolved)
    shown = {field.name for field in fields(Cell)} & figures.keys()  # a cost metric need not be a figure of the plan
    costs = {name: figures[name] for name in shown}
    return replace(result, **costs, train_flops=3 * flops * tokens, eval_flops=None if read is None else flops * read)


def _row_tokens(resolved: ResolvedCell) -> int:
    """Return the tokens of a row of full length; those of an encoder-decoder are in its source and in its target."""
    model = model_class(resolved.config, resolved.task)
    return model.example_batch(resolved.task, 1, device=torch.device("cpu")).tokens


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


def _eval_tokens(resolved: ResolvedCell) -> int | None:
    """Return the number of tokens that all evaluations of a run read, or None if the task does not estimate it."""
    config, times = resolved.config.evaluate, evaluation_schedule(resolved.config, resolved.task).early + 1
    reads = [("valid", config.valid_limit, times), *([("test", config.test_limit, 1)] if config.test else [])]
    total = 0
    for split, limit, count in reads:
        tokens = resolved.task.eval_tokens(split, limit=limit, protocol=config.protocol, stride=config.stride)
        if tokens is None:
            return None
        total += count * tokens
    return total * _row_tokens(resolved) // resolved.task.length
