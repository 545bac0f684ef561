"""A task may be anyone's: what is wrong with it is said of the task and its method, and not of the line of ours that met it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from attnlab.errors import UserError
from attnlab.registry import MODELS
from attnlab.tasks import Batch, Task

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig

CHOICES: dict[str, tuple[str, ...]] = {
    "role": ("causal", "bidirectional"),
    "direction": ("min", "max"),
}
METHODS = ("identity", "prepare", "steps_per_epoch", "train_batch", "eval_batches")  # what every task has of its own
OPTIONAL = ("eval_tokens", "encode", "decode", "unsupported", "reference_scores", "loss", "score")


def check_definition(task: Task, *, name: str) -> None:
    """Look at a task's attributes and at how its methods can be called, without calling one.

    Raises:
        UserError: an attribute that is missing or no such thing, a method that is missing or takes something else.
    """
    for attribute, known in {"kind": MODELS.names(), **CHOICES}.items():
        if (found := getattr(task, attribute, None)) not in known:
            raise UserError(f"task {name}: expected {attribute} to be {' or '.join(known)}, got {found!r}")
    if not isinstance(found := getattr(task, "metric", None), str):
        raise UserError(f"task {name}: expected metric to be the name of a score, got {found!r}")
    for attribute in ("length", "vocabulary", *(["classes"] if task.kind == "classifier" else [])):
        found = getattr(task, attribute, None)
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            raise UserError(f"task {name}: expected {attribute} to be a whole number of at least 1, got {found!r}")
    for method in METHODS:
        if getattr(type(task), method) is getattr(Task, method):
            raise UserError(f"task {name}: expected a method {method}{_signature(method)}, got none")
    for method in (*METHODS, *OPTIONAL):
        found = inspect.signature(getattr(task, method))
        try:
            _bind(found, method)
        except TypeError as error:
            raise UserError(f"task {name}: expected {method}{_signature(method)}, got {method}{found}: {error}") from None


def _signature(method: str) -> str:
    """``(step, *, seed, batch_size)``: what a method is called with."""
    parameters = [p.replace(annotation=p.empty) for p in _parameters(method)]
    return str(inspect.Signature(parameters))


def _parameters(method: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(Task, method)).parameters.values())[1:]


def _bind(found: inspect.Signature, method: str) -> None:
    """Call a method as we do: what has a default by its name, what has none in its place unless it is keyword-only."""
    named = [p.name for p in _parameters(method) if p.kind is p.KEYWORD_ONLY or p.default is not p.empty]
    found.bind(*[None] * (len(_parameters(method)) - len(named)), **dict.fromkeys(named))


def check_first_batch(task: Task, config: RunConfig) -> None:
    """Look at the first batch of a run, and at the names of its scores, before the first step is taken.

    Raises:
        UserError: what came is no batch, is none of this task's, or is not scored by what the task names as its metric.
    """
    batch: Any = task.train_batch(0, seed=config.seed, batch_size=config.train.batch_size)
    if wrong := _wrong(batch, task):
        raise UserError(f"task {config.task.label}: {wrong} of train_batch()")
    row = batch.split(len(batch.inputs))[0]
    shape = (*row.inputs.shape, task.vocabulary) if task.kind == "language_model" else (1, task.classes)
    scores: Any = task.score(torch.zeros(()).expand(shape), row)
    if not isinstance(scores, dict) or task.metric not in scores:
        named = ", ".join(scores) or "nothing" if isinstance(scores, dict) else repr(scores)
        raise UserError(f"task {config.task.label}: expected score() to name the metric {task.metric}, got {named}")


def _wrong(batch: Any, task: Task) -> str:
    """What a batch should be and is not; "" where it is."""
    if not isinstance(batch, Batch):
        return f"expected an attnlab.tasks.Batch, got {type(batch).__name__}"
    for name in ("inputs", "targets"):
        if getattr(batch, name).dtype != torch.int64:
            return f"expected {name} of int64, got {getattr(batch, name).dtype}"
    size = tuple(batch.inputs.shape)
    if len(size) != 2 or not size[0] or not 1 <= size[1] <= task.length:
        return f"expected inputs of (b, t), t from 1 to the length {task.length}, got {size}"
    wanted, below = (size, task.vocabulary) if task.kind == "language_model" else (size[:1], task.classes)
    if tuple(batch.targets.shape) != wanted:
        return f"expected targets of {wanted} beside inputs of {size}, got {tuple(batch.targets.shape)}"
    if batch.mask is not None and tuple(batch.mask.shape) != size:
        return f"expected a mask of {size} beside the inputs, got {tuple(batch.mask.shape)}"
    for name, tokens, most in (("inputs", batch.inputs, task.vocabulary), ("targets", batch.targets, below)):
        if int(tokens.max()) >= most or (name == "inputs" and int(tokens.min()) < 0):
            return f"expected {name} from 0 to {most - 1}, got {int(tokens.min())} to {int(tokens.max())}"
    return ""
