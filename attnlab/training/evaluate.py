"""Evaluation of a model on a split, as exact means over all targets.

The memory is empty at the beginning of each row, so the number of rows in a batch would decide how much of
the text is read with an incomplete memory. With memory, the number of rows is therefore limited: each row
has at least ``FILLED`` times the segments that fill the memory, and at most 1/16 of the text is read before
it is full, for any ``evaluate.batch_size``. A limited evaluation also empties the memory at the start of
each stretch of the text (``attnlab.tasks.sequence``).

On a CPU, which gains nothing from large batches, a batch is evaluated and decoded in parts, which bound its memory.

**Scores of single items** of ``test``, segments of a text or documents, are kept with a run, so that a report can tell how much
of a difference's uncertainty comes from the choice of test items, and load as ``attnlab.load_items``. Few items are kept one by
one; of many segments, runs of consecutive ones are added up.

**Other lengths** than the trained one (``evaluate.lengths``): the same items are scored at every length, under the same
protocol, limit and memory, so that the scores of one run are comparable: every byte of a text but the first, or the same
reviews, each truncated to the length. The score at the trained length is the normal one. A batch has as many rows as give the
tokens of a normal batch, and at most the rows of a normal batch: with memory, no more rows than usual start with an empty
memory. A score is named ``bits_per_byte_at/512`` in a run's summary and in MLflow, where its step is the length. If a length
cannot be evaluated, the run is still completed: the reason is in the result's tags as ``length.1024``, and in MLflow as
``attnlab.length.1024``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from attnlab._util.files import replacing
from attnlab._util.metrics import ITEMS_FILE, at_length, merge
from attnlab._util.progress import show_progress
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.models.base import Model, TaskShape
from attnlab.models.decoding import decode
from attnlab.registry import POSITIONS, TASKS, options_of
from attnlab.tasks.validation import prepare_task
from attnlab.training.device import autocast, is_out_of_memory, requested_memory

if TYPE_CHECKING:
    from attnlab.tasks import Batch, Task

logger = logging.getLogger(__name__)

FILLED = 16
MAX_LOGITS = 1 << 23  # of a part of a batch on a CPU, in float32 32 MiB
MAX_DECODING = 1 << 26  # logits, and keys and values of all positions, of the rows that a CPU decodes together
PROGRESS_SECONDS = 1.0  # between two reports of an evaluation that takes longer
MAX_SEGMENTS, MAX_DOCUMENTS = 1_024, 32_768  # items that are kept; a file then has a few kB


def evaluate(
    model: Model,
    task: Task,
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


def _parts(batch: Batch, size: int, most: int) -> list[Batch]:
    """Return the rows of a batch of ``size`` numbers in parts of at most about ``most``; on a GPU, the whole batch."""
    return batch.split(-(-size // most)) if batch.inputs.device.type == "cpu" and size > most else [batch]


def _logits(batch: Batch, task: Task) -> int:
    """Return the number of logits that a model returns for a batch."""
    if task.classes:
        return len(batch.inputs) * task.classes
    return (batch.inputs if batch.positions is None else batch.positions).numel() * task.vocabulary


def _generator(
    model: Any, task: Task, config: RunConfig, device: torch.device, *, label: str, total: int | None
) -> Callable[..., list[list[int]]]:
    """Return a function that decodes batches, and show at intervals how many of ``total`` rows it has decoded."""
    done, shown = 0, monotonic()

    def generate(batch: Batch, **options: Any) -> list[list[int]]:
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


def _with_progress(batches: Iterable[Batch], label: str, *, length: int, total: int | None) -> Iterator[Batch]:
    """Yield the batches, and show at intervals how many of ``total`` tokens were read, with every row at full ``length``."""
    done, shown = 0, monotonic()
    for batch in batches:
        yield batch
        done += len(batch.inputs) * length
        if total and monotonic() - shown >= PROGRESS_SECONDS:
            shown = monotonic()
            show_progress(label, min(done, total), total)


class ItemScores:
    """Collects ``Task.item_metric``, or else the primary metric, of each row of an evaluation.

    Sums stay on their device until ``save``.
    """

    def __init__(self) -> None:
        self._numbers: list[Tensor] = []
        self._sums: list[Tensor] = []
        self._counts: list[Tensor] = []
        self._rows = 0
        self._failed = False
        self._limit = MAX_SEGMENTS
        self._metric = ""

    def add(self, task: Task, logits: Tensor, batch: Batch) -> None:
        """Score each row of a batch. Rows without a number are numbered in the order of the evaluation.

        A user's task that cannot score rows one by one keeps its result: it has no items, with a warning.
        """
        if self._failed:
            return
        try:
            sums, counts = task.item_scores(logits, batch)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            logger.warning("no scores of single test items: %s", one_line(f"{type(error).__name__}: {error}"))
            self._failed, self._rows = True, 0
            return
        rows = len(sums)
        numbers = torch.arange(self._rows, self._rows + rows) if batch.items is None else batch.items
        self._numbers.append(numbers)
        self._sums.append(sums)
        self._counts.append(counts)
        self._rows += rows
        self._metric = task.item_metric or task.metric
        self._limit = MAX_DOCUMENTS if task.kind == "classifier" else MAX_SEGMENTS

    def save(self, folder: Path) -> None:
        """Write ``items.npz``: ``score`` (n,) float32, the mean of each item; ``count`` (n,), what it is a mean of; ``metric``.

        Items without a target are left out. Nothing is written if nothing was scored.
        """
        if not self._rows:
            return
        sums = torch.cat([part.double().cpu() for part in self._sums]).numpy()
        counts = torch.cat([part.cpu() for part in self._counts]).numpy()
        order = np.argsort(torch.cat(self._numbers).numpy(), kind="stable")
        order = order[counts[order] > 0]
        sums, counts = _merged(sums[order], counts[order], self._limit)
        with replacing(folder / ITEMS_FILE) as half, half.open("wb") as file:
            score = (sums / counts).astype(np.float32)
            np.savez_compressed(file, score=score, count=counts.astype(np.int32), metric=np.array(self._metric))


def _merged(sums: np.ndarray, counts: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Add up runs of consecutive items, of sizes that differ by at most one, until at most ``limit`` are left."""
    if len(sums) <= limit:
        return sums, counts
    starts = np.arange(limit) * len(sums) // limit
    return np.add.reduceat(sums, starts), np.add.reduceat(counts, starts)


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


def longest_positions(config: RunConfig, task: TaskShape) -> str | None:
    """Return the reason why a model has no positions beyond the length of ``task``, or None."""
    layers = config.model.layers
    for position in [config.position] if layers is None else [entry.position for entry in layers.pattern]:
        assert position is not None  # resolved
        if not POSITIONS.get(position.name).extrapolates:
            return f"{position.name.rpartition(':')[2]} positions: trained up to {task.length}"
    return None


def unsupported_length(config: RunConfig, task: Task, length: int) -> str | None:
    """Return the reason, if known before training, why a model trained on ``task`` cannot be evaluated at ``length``.

    Args:
        config: a resolved configuration.

    Returns:
        The reason, or None.
    """
    if length == task.length:
        return None
    if length > task.length and (reason := longest_positions(config, task)):
        return reason
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
