"""Evaluation of a model on a split, as exact means over all targets.

The memory is empty at the beginning of each row, so the number of rows in a batch would decide how much of
the text is read with an incomplete memory. With memory, the number of rows is therefore limited: each row
has at least ``FILLED`` times the segments that fill the memory, and at most 1/16 of the text is read before
it is full, for any ``evaluate.batch_size``. A limited evaluation also empties the memory at the start of
each stretch of the text (``attnlab.tasks.stretches``).

On a CPU, which gains nothing from large batches, a batch is evaluated and decoded in parts, which bound its memory.
"""

from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from attnlab._util.metrics import merge
from attnlab._util.progress import show_progress
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.base import Model
from attnlab.models.decoding import decode
from attnlab.training.device import autocast
from attnlab.training.items import ItemScores

if TYPE_CHECKING:
    from attnlab.tasks import Batch, Task

FILLED = 16
MAX_LOGITS = 1 << 23  # of a part of a batch on a CPU, in float32 32 MiB
MAX_DECODING = 1 << 26  # logits, and keys and values of all positions, of the rows that a CPU decodes together
PROGRESS_SECONDS = 1.0  # between two reports of an evaluation that takes longer


def evaluate(
    model: Model,
    task: "Task",
    split: str,
    *,
    config: RunConfig,
    device: torch.device,
    items: ItemScores | None = None,
    sample: bool = False,
    label: str = "",
    release: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Return every metric of the task on ``valid`` or ``test``, under the configured protocol and limit.

    The model is in training mode afterwards.

    Args:
        model: in any mode.
        task: prepared.
        split: ``valid`` or ``test``.
        config: of the run.
        device: of the model.
        items: collects the score of each row.
        sample: of ``valid``, read only ``evaluate.sample``.
        label: the name of the evaluation in reports of its progress; default: the split.
        release: called after each batch; it may return memory that batches of other sizes have left.

    Raises:
        UserError: the task yields no batch for the split, or its scores lack its primary metric.
    """
    eval_config = config.evaluate
    limit = eval_config.test_limit if split == "test" else eval_config.valid_limit
    if sample:
        limit = eval_config.sample_limit or limit
    protocol: dict[str, Any] = {"limit": limit, "protocol": eval_config.protocol, "stride": eval_config.stride}
    # Limit the rows so that every row fills its memory early.
    rows = eval_config.batch_size or config.train.batch_size
    tokens = task.eval_tokens(split, **protocol)
    if tokens is not None and config.model.mem_len:
        segments = -(-config.model.mem_len // task.length)  # that fill the memory
        rows = max(1, min(rows, tokens // task.length // (FILLED * segments)))
    batches = task.eval_batches(split, batch_size=rows, **protocol)
    scores = []
    memory: list[Tensor] | None = None
    model.eval()
    with torch.inference_mode(), autocast(device, config.train.precision):
        for batch in _with_progress(batches, label or split, length=task.length, total=tokens):
            on_device = batch.to(device)
            for part in [on_device] if config.model.mem_len else _parts(on_device, _logits(batch, task), MAX_LOGITS):
                output, memory = model.forward_batch(part, memory)
                output = tree_map_only(Tensor, Tensor.float, output)
                scores.append(task.score(output, part))
                if items is not None:
                    items.add(task, output, part)
            release()
        generate = _generator(
            model, task, config, device, label=f"{label or split}, decoding", total=tokens and tokens // task.length
        )
        generated = task.generated_scores(generate, split, batch_size=rows, limit=limit)
        release()
    model.train()
    means = {name: mean.value for name, mean in merge(scores).items()} | generated
    if task.metric not in means:
        got = f"{len(scores)} batches with scores named {', '.join(means)}" if scores else "no batch"
        raise UserError(f"task {config.task.label}: expected a score named {task.metric} on {split}, got {got}")
    return means


def _parts(batch: "Batch", size: int, most: int) -> "list[Batch]":
    """Return the rows of a batch of ``size`` numbers in parts of at most about ``most``; on a GPU, the whole batch."""
    return batch.split(-(-size // most)) if batch.inputs.device.type == "cpu" and size > most else [batch]


def _logits(batch: "Batch", task: "Task") -> int:
    """Return the number of logits that a model returns for a batch."""
    if task.classes:
        return len(batch.inputs) * task.classes
    return (batch.inputs if batch.positions is None else batch.positions).numel() * task.vocabulary


def _generator(
    model: Any, task: "Task", config: RunConfig, device: torch.device, *, label: str, total: int | None
) -> "Callable[..., list[list[int]]]":
    """Return a function that decodes batches, and show at intervals how many of ``total`` rows it has decoded."""
    done, shown = 0, monotonic()

    def generate(batch: "Batch", **options: Any) -> list[list[int]]:
        nonlocal done, shown
        batch = batch.to(device)
        cached = 4 * config.model.depth * config.model.dim * task.length  # keys and values, of target and source
        size = len(batch.inputs) * options.get("beam", 1) * (task.vocabulary + cached)
        rows = []
        for part in _parts(batch, size, MAX_DECODING):
            assert part.source is not None
            rows += decode(model, part.source, part.source_mask, **options)
            if total and monotonic() - shown >= PROGRESS_SECONDS:
                shown = monotonic()
                show_progress(label, min(done + len(rows), total), total)
        done += len(rows)
        return rows

    return generate


def _with_progress(batches: "Iterable[Batch]", label: str, *, length: int, total: int | None) -> "Iterator[Batch]":
    """Yield the batches, and show at intervals how many of ``total`` tokens were read, with every row at full ``length``."""
    done, shown = 0, monotonic()
    for batch in batches:
        yield batch
        done += len(batch.inputs) * length
        if total and monotonic() - shown >= PROGRESS_SECONDS:
            shown = monotonic()
            show_progress(label, min(done, total), total)
