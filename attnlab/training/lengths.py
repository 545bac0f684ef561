"""Evaluation of a trained model at lengths other than the trained one (``evaluate.lengths``).

The same items are scored at every length, under the same protocol, limit and memory, so that the scores of one run are
comparable: every byte of a text but the first, or the same reviews, each truncated to the length. The score at the trained
length is the normal one.

A batch has as many rows as give the tokens of a normal batch, and at most the rows of a normal batch: with memory, no more
rows than usual start with an empty memory.

A score is named ``bits_per_byte_at/512`` in a run's summary and in MLflow, where its step is the length. If a length cannot
be evaluated, the run is still completed: the reason is in the result's tags as ``length.1024``, and in MLflow as
``attnlab.length.1024``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from attnlab._util.metrics import at_length
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.models.base import Model
from attnlab.registry import POSITIONS, TASKS, options_of
from attnlab.tasks.validation import prepare_task
from attnlab.training.device import is_out_of_memory, requested_memory
from attnlab.training.evaluate import evaluate

if TYPE_CHECKING:
    from attnlab.tasks import Task


def evaluate_lengths(
    model: Model, task: Task, test: dict[str, float], *, config: RunConfig, device: torch.device
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the scores on ``test`` at every length of ``config.evaluate.lengths``, or the reason why a length has none.

    Args:
        task: the task at the trained length.
        test: the scores at the trained length.

    Returns:
        Metrics named by ``at_length``, and the reasons as tags ``length.N``.
    """
    scores: dict[str, float] = {}
    tags: dict[str, str] = {}
    for length in config.evaluate.lengths:
        if length == task.length:
            outcome: dict[str, float] | str = test
        else:
            outcome = unsupported_length(config, task, length) or _evaluated(model, task, length, config=config, device=device)
        if isinstance(outcome, str):
            tags[f"length.{length}"] = outcome
        else:
            scores |= {at_length(name, length): score for name, score in outcome.items()}
    return scores, tags


def unsupported_length(config: RunConfig, task: Task, length: int) -> str | None:
    """Return the reason, if known before training, why a model trained on ``task`` cannot be evaluated at ``length``.

    Args:
        config: a resolved configuration.

    Returns:
        The reason, or None.
    """
    if length == task.length:
        return None
    layers = config.model.layers
    positions = [config.position] if layers is None else [entry.position for entry in layers.pattern]
    for position in positions:
        assert position is not None  # resolved
        if length > task.length and not POSITIONS.get(position.name).extrapolates:
            return f"{position.name.rpartition(':')[2]} positions: trained up to {task.length}"
    try:
        train_config = config.train.model_copy(update={"batch_size": 1})  # nothing is trained at this length
        return _task(config, length).unsupported(config.model_copy(update={"train": train_config}))
    except UserError as error:
        return error.message


def _evaluated(model: Model, task: Task, length: int, *, config: RunConfig, device: torch.device) -> dict[str, float] | str:
    """Return the scores at one length, or the reason why there are none. An error here does not fail the run."""
    normal = config.evaluate.batch_size or config.train.batch_size
    rows = max(1, normal * task.length // max(length, task.length))
    eval_config = config.evaluate.model_copy(update={"batch_size": rows})
    try:
        length_task = prepare_task(_task(config, length), config)
        config = config.model_copy(update={"evaluate": eval_config})
        scores = evaluate(model, length_task, "test", config=config, device=device, label=f"test at length {length}")
    except Exception as error:  # a user's position scheme or variant may raise anything
        reason = f"out of memory: requested {requested_memory(error)}" if is_out_of_memory(error) else _describe(error)
    else:
        wrong = [name for name in scores if name in (task.metric, "loss") and not math.isfinite(scores[name])]
        if not wrong:
            return scores
        reason = f"{wrong[0]} became {scores[wrong[0]]}"
    if device.type == "cuda":
        torch.cuda.empty_cache()  # return the memory of a failed evaluation
    return reason


def _describe(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}")


def _task(config: RunConfig, length: int) -> Any:
    """Return the run's task at another length; raise ``UserError`` if it has no option ``length`` or rejects the value."""
    cls = TASKS.get(config.task.name)
    if "length" not in options_of(cls):
        raise UserError(f"the task {config.task.label} has no option 'length'")
    return cls(**{**config.task.options, "length": length})
