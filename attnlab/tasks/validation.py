"""Validation of tasks: their definition, their first batch, and the identity of their data.

Users write tasks, too: an error names the task and the method at fault.
"""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import torch

from attnlab._util.raise_site import describe_error
from attnlab.errors import UserError
from attnlab.registry import ESTIMATORS
from attnlab.tasks import IGNORED, Batch, Task
from attnlab.tasks.masking import uniform_output

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig
    from attnlab.config.types import Named

CHOICES: dict[str, tuple[str, ...]] = {
    "kind": ("language_model", "classifier", "encoder_decoder", "masked_language_model"),
    "role": ("causal", "bidirectional"),
    "direction": ("min", "max"),
}
SAME_LOSS = 0.01  # relative difference of losses that are means over the same targets
METHODS = ("identity", "prepare", "steps_per_epoch", "train_batch", "eval_batches")  # that every task defines
OPTIONAL = (
    "eval_tokens",
    "mean_length",
    "encode",
    "decode",
    "unsupported",
    "reference_scores",
    "data_notes",
    "split_size",
    "target_logits",
    "loss",
    "score",
    "generated_scores",
)


def check_definition(task: Task, *, name: str) -> None:
    """Check a task's attributes and the signatures of its methods, without calling a method.

    Raises:
        UserError: an attribute is missing or invalid, or a method is missing or has another signature.
    """
    for attribute, known in {**CHOICES, "estimand": ESTIMATORS.names()}.items():
        if (value := getattr(task, attribute, None)) not in known:
            raise UserError(f"task {name}: expected {attribute} to be {' or '.join(known)}, got {value!r}")
    if not isinstance(value := getattr(task, "metric", None), str):
        raise UserError(f"task {name}: expected metric to be the name of a score, got {value!r}")
    for attribute in ("length", "vocabulary", *(["classes"] if task.kind == "classifier" else [])):
        value = getattr(task, attribute, None)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"task {name}: expected {attribute} to be a whole number of at least 1, got {value!r}")
    takes_threshold = ESTIMATORS.get(task.estimand).takes_threshold
    if takes_threshold and not (isinstance(task.threshold, int | float) and math.isfinite(task.threshold)):
        raise UserError(f"task {name}: expected threshold to be the score that solves it, got {task.threshold!r}")
    for method in METHODS:
        if getattr(type(task), method) is getattr(Task, method):
            raise UserError(f"task {name}: expected a method {method}{_signature(method)}, got none")
    for method in (*METHODS, *OPTIONAL):
        signature = inspect.signature(getattr(task, method))
        try:
            _bind(signature, method)
        except TypeError as error:
            raise UserError(f"task {name}: expected {method}{_signature(method)}, got {method}{signature}: {error}") from None


def _signature(method: str) -> str:
    """Return the expected signature of a method, for example ``(step, *, seed, batch_size)``."""
    parameters = [p.replace(annotation=p.empty) for p in _parameters(method)]
    return str(inspect.Signature(parameters))


def _parameters(method: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(Task, method)).parameters.values())[1:]


def _bind(signature: inspect.Signature, method: str) -> None:
    """Bind arguments as attnlab passes them: by keyword if they have a default or are keyword-only, else by position."""
    named = [p.name for p in _parameters(method) if p.kind is p.KEYWORD_ONLY or p.default is not p.empty]
    signature.bind(*[None] * (len(_parameters(method)) - len(named)), **dict.fromkeys(named))


def check_first_batch(task: Task, config: RunConfig) -> None:
    """Check the first batch of a run, and the names of its scores, before the first training step.

    Raises:
        UserError: ``train_batch`` returns no ``Batch`` or an invalid one, ``score`` does not return the task's metric, or
            ``loss`` is not a mean over the targets in a run with micro-batches.
    """
    batch: Any = task.train_batch(0, seed=config.seed, batch_size=config.train.batch_size)
    if mistake := describe_mistake(batch, task):
        raise UserError(f"task {config.task.label}: {mistake} from train_batch()")
    row = batch.split(len(batch.inputs))[0]
    scores: Any = task.score(_uniform_output(task, row), row)
    generates = type(task).generated_scores is not Task.generated_scores
    if not isinstance(scores, dict) or (task.metric not in scores and not generates):
        named = ", ".join(scores) or "nothing" if isinstance(scores, dict) else repr(scores)
        raise UserError(f"task {config.task.label}: expected score() to name the metric {task.metric}, got {named}")
    train = config.train
    if train.gradient_accumulation > 1 or config.machine.processes_per_run > 1:
        rows = max(2, train.batch_size // (train.gradient_accumulation * config.machine.processes_per_run))
        whole, parts = losses_of_parts(task, batch, rows=rows)
        if not math.isclose(whole, parts, rel_tol=SAME_LOSS, abs_tol=SAME_LOSS):
            raise UserError(
                f"task {config.task.label}: expected loss() to be a mean over the targets, got {whole:.4g} for several rows "
                f"and {parts:.4g} for one at a time, weighted by their targets: its gradient would depend on "
                "gradient_accumulation and processes_per_run. Set both to 1, or divide by the number of targets"
            )


def losses_of_parts(task: Task, batch: Batch, *, rows: int) -> tuple[float, float]:
    """Return the loss of some rows together, and the mean of their losses, each weighted by its share of the targets.

    Where a loss is a mean over targets, both are equal, and the micro-batches of a step have the gradient of the whole batch.

    Args:
        rows: about so many of the batch.
    """
    whole = batch.split(-(-len(batch.inputs) // rows))[0]
    parts = whole.split(len(whole.inputs))
    counts = [int((part.targets >= 0).sum()) for part in parts]
    if not sum(counts):
        return 0.0, 0.0
    outputs, together = [_uniform_output(task, part) for part in parts], _uniform_output(task, whole)
    if isinstance(together, torch.Tensor):  # else it has several parts, which stay uniform
        together = torch.randn(together.shape, generator=torch.Generator().manual_seed(0))
        outputs = list(together.split(1))
    with torch.no_grad():
        # The mean over no targets is NaN even with weight 0.
        losses = [float(task.loss(z, part)) * n for z, part, n in zip(outputs, parts, counts, strict=True) if n]
        return float(task.loss(together, whole)), sum(losses) / sum(counts)


def _uniform_output(task: Task, batch: Batch) -> Any:
    """Return the output of a model that predicts nothing, as ``score`` reads it."""
    if task.kind == "masked_language_model":
        return uniform_output(batch, vocabulary=task.vocabulary, classes=task.classes)
    shape = (len(batch.inputs), task.classes) if task.kind == "classifier" else (*batch.inputs.shape, task.vocabulary)
    return torch.zeros(()).expand(shape)


def describe_mistake(batch: Any, task: Task) -> str:
    """Describe the first mistake in a batch; "" if it is valid."""
    if not isinstance(batch, Batch):
        return f"expected an attnlab.tasks.Batch, got {type(batch).__name__}"
    for name in ("inputs", "targets"):
        if getattr(batch, name).dtype != torch.int64:
            return f"expected {name} of int64, got {getattr(batch, name).dtype}"
    size = tuple(batch.inputs.shape)
    if len(size) != 2 or not size[0] or not 1 <= size[1] <= task.length:
        return f"expected inputs of (b, t), t from 1 to the length {task.length}, got {size}"
    shape, most_targets = (size[:1], task.classes) if task.kind == "classifier" else (size, task.vocabulary)
    if tuple(batch.targets.shape) != shape:
        return f"expected targets of {shape} with inputs of {size}, got {tuple(batch.targets.shape)}"
    if batch.mask is not None and tuple(batch.mask.shape) != size:
        return f"expected a mask of {size}, the shape of the inputs, got {tuple(batch.mask.shape)}"
    read = [("inputs", batch.inputs, task.vocabulary), ("targets", batch.targets, most_targets)]
    if task.kind == "encoder_decoder":
        mistake = _describe_source_mistake(batch, task)
        if mistake or batch.source is None:
            return mistake
        read.append(("source", batch.source, task.vocabulary))
    if task.kind == "masked_language_model" and (mistake := _describe_masked_mistake(batch, task)):
        return mistake
    for name, tokens, most in read:
        if int(tokens.max()) >= most or (name != "targets" and int(tokens.min()) < 0):
            return f"expected {name} from 0 to {most - 1}, got {int(tokens.min())} to {int(tokens.max())}"
    return ""


def _describe_source_mistake(batch: Batch, task: Task) -> str:
    """Describe the first mistake in the shapes of the source of a batch; "" if they are valid."""
    if batch.source is None:
        return "expected a source for the encoder, got none"
    size, rows = tuple(batch.source.shape), len(batch.inputs)
    if len(size) != 2 or size[0] != rows or not 1 <= size[1] <= task.length:
        return f"expected a source of ({rows}, s), s from 1 to the length {task.length}, got {size}"
    if batch.source_mask is not None and tuple(batch.source_mask.shape) != size:
        return f"expected a source mask of {size}, the shape of the source, got {tuple(batch.source_mask.shape)}"
    return ""


def _describe_masked_mistake(batch: Batch, task: Task) -> str:
    """Describe the first mistake in the fields of a batch that only a masked language model reads; "" if they are valid."""
    size = tuple(batch.inputs.shape)
    if batch.segments is not None and tuple(batch.segments.shape) != size:
        return f"expected segments of {size}, the shape of the inputs, got {tuple(batch.segments.shape)}"
    if batch.segments is not None and not 0 <= int(batch.segments.min()) <= int(batch.segments.max()) < task.segments:
        return (
            f"expected segments from 0 to {task.segments - 1}, got {int(batch.segments.min())} to {int(batch.segments.max())}"
        )
    if task.classes and (batch.labels is None or tuple(batch.labels.shape) != size[:1]):
        return f"expected labels of {size[:1]}, got {None if batch.labels is None else tuple(batch.labels.shape)}"
    if batch.positions is not None:
        missed = batch.targets.scatter(1, batch.positions, IGNORED) != IGNORED
        if missed.any():
            row, column = (int(i) for i in missed.nonzero()[0])
            return f"expected every target at one of the positions, got one of row {row} at {column}"
    return ""


def prepare_task(task: Task, config: RunConfig) -> Task:
    """Prepare ``task`` and return it, after checking that its data are those that ``config`` was planned with.

    Hours may pass between the plan and a run, in which a file may change. Without this check, the seeds of one cell could be
    trained on different data, all recorded under the checksum of the first. If ``config`` names no data, any are accepted.

    Raises:
        UserError: the data are not available, or their identity differs from the planned one.
    """
    task.prepare()
    if config.data and (identity := task.identity()) != config.data:
        raise UserError(
            f"task {config.task.label}: its data have changed since this was planned: expected {config.data}, found {identity}"
        )
    return task


def construct(cls: Any, named: Named) -> Any:
    """Return a task; ``UserError`` if its class raises anything."""
    try:
        return cls(**named.options)
    except UserError:
        raise
    except Exception as error:  # a user's task may raise anything
        raise UserError(f"task {named.label}: {describe_error(error, cls)}") from error


def identity_of(task: Any, named: Named) -> str:
    """Return the checksum of a task's data; ``UserError`` if it has none."""
    try:
        return task.identity()
    except UserError:
        raise
    except Exception as error:  # a user's task may raise anything, or have no identity()
        reason = describe_error(error, type(task))
        raise UserError(f"task {named.label}: expected identity() to return a checksum of its data, got {reason}") from error
