"""A trained model at lengths that it was not trained on (``evaluate.lengths``).

The same items are scored at every length, by the same protocol, limit and memory, so that the figures of one run compare: of
a text every byte but the first, of reviews the same ones, each cut off there. The trained length has the normal score.

A batch has as many rows as make the tokens of a normal one, and never more rows than that has: memory carries on from as many
beginnings or fewer.

A score is called ``bits_per_byte_at/512`` in a run's summary and in MLflow, where its step is the length. A length that cannot
be had costs the run nothing: the reason is among the result's tags as ``length.1024``, in MLflow ``attnlab.length.1024``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from attnlab._util.metrics import at_length
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.models.classifier import Classifier
from attnlab.models.language_model import LanguageModel
from attnlab.registry import POSITIONS, TASKS, options_of
from attnlab.tasks.verification import verified
from attnlab.training.evaluate import evaluate
from attnlab.training.out_of_memory import asked, is_out_of_memory

if TYPE_CHECKING:
    from attnlab.tasks import Task


def evaluate_lengths(
    model: LanguageModel | Classifier, task: Task, test: dict[str, float], *, config: RunConfig, device: torch.device
) -> tuple[dict[str, float], dict[str, str]]:
    """The scores on ``test`` at every length of ``config.evaluate.lengths``, and the reason for each that has none.

    Args:
        task: at the trained length.
        test: the scores there.

    Returns:
        Metrics by ``at_length``, and tags ``length.N``.
    """
    scores: dict[str, float] = {}
    tags: dict[str, str] = {}
    for length in config.evaluate.lengths:
        if length == task.length:
            found: dict[str, float] | str = test
        else:
            found = unreachable(config, task, length) or _evaluated(model, task, length, config=config, device=device)
        if isinstance(found, str):
            tags[f"length.{length}"] = found
        else:
            scores |= {at_length(name, length): score for name, score in found.items()}
    return scores, tags


def unreachable(config: RunConfig, task: Task, length: int) -> str | None:
    """Why a model trained on ``task`` cannot be evaluated at ``length``, as far as it is known before training; else None.

    Args:
        config: resolved.
    """
    if length == task.length:
        return None
    assert config.position is not None  # resolved
    if length > task.length and not POSITIONS.get(config.position.name).extrapolates:
        name = config.position.name.rpartition(":")[2]
        return f"{name} positions: trained up to {task.length}"
    try:
        training = config.train.model_copy(update={"batch_size": 1})  # at this length nothing is trained: any batch would fit
        return _task(config, length).unsupported(config.model_copy(update={"train": training}))
    except UserError as error:
        return error.message


def _evaluated(
    model: LanguageModel | Classifier, task: Task, length: int, *, config: RunConfig, device: torch.device
) -> dict[str, float] | str:
    """The scores at one length, or why there are none: whatever fails here, the run itself has gone well."""
    normal = config.evaluate.batch_size or config.train.batch_size
    rows = max(1, normal * task.length // max(length, task.length))
    how = config.evaluate.model_copy(update={"batch_size": rows})
    try:
        other = verified(_task(config, length), config)
        scores = evaluate(model, other, "test", config=config.model_copy(update={"evaluate": how}), device=device)
    except Exception as error:  # a scheme or a variant of someone else's may raise anything
        reason = f"out of memory: asked for {asked(error)}" if is_out_of_memory(error) else _told(error)
    else:
        wrong = [name for name in scores if name in (task.metric, "loss") and not math.isfinite(scores[name])]
        if not wrong:
            return scores
        reason = f"{wrong[0]} became {scores[wrong[0]]}"
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what a length that was too long has left
    return reason


def _told(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}")


def _task(config: RunConfig, length: int) -> Any:
    """The run's task at another length; ``UserError`` where it has none such."""
    cls = TASKS.get(config.task.name)
    if "length" not in options_of(cls):
        raise UserError(f"the task {config.task.label} has no option 'length'")
    return cls(**{**config.task.options, "length": length})
