"""Notes on sizes that contradict each other: of evaluations, batches and patterns of attention against data and rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from attnlab._util.metrics import is_share
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.tasks import TaskQuestion
from attnlab.models.parts import Part, build_attention, build_components, parts
from attnlab.planning.named_notes import PlannedRun, shared_notes
from attnlab.tasks.bucketing import BucketedTask
from attnlab.tasks.sequence import SequenceTask
from attnlab.variants import Variant

FEW_UNITS, FEW_ITEMS = 1_000, 30  # bytes or tokens of a text, and rows, of which a score says little
ROWS_CHECKED = 64  # rows of a pattern that are compared with those of dense attention


def size_notes(study: StudyConfig, runs: Sequence[PlannedRun], questions: Iterable[TaskQuestion]) -> Iterator[str]:
    """Yield notes on the evaluations, the batches, the frozen blocks and the patterns of each run.

    Args:
        runs: of the plan.
        questions: of the study's tasks.
    """
    margins = [question.margin for question in questions if is_share(question.metric)]
    margin = min((m for m in margins if isinstance(m, float)), default=None)
    notes: list[tuple[str, str]] = []
    for run in runs:
        if not run.is_stage:
            notes += ((run.name, note) for note in _on_limits(run.config, run.task, margin))
        with suppress(Exception):  # any exception: classes may be the user's own, and the plan reports their errors elsewhere
            notes += ((run.name, note) for note in _on_batch(run.config, run.task))
        with suppress(Exception):
            notes += ((run.name, note) for note in _on_patterns(run.config, run.task))
        if run.config.train.frozen is not None and run.config.init is None:
            notes.append(
                (run.name, f"train.frozen: {run.config.train.frozen} keeps random weights, because there is no 'init'")
            )
    yield from shared_notes(notes, runs)


def _on_limits(config: RunConfig, task: Any, margin: float | None) -> Iterator[str]:
    """Yield a note on each evaluation of a few bytes or rows."""
    limits = dict(config.evaluate.limits)
    acts = config.train.checkpoint_selection == "best" or config.train.may_end_early
    if not acts:
        limits.pop("sample")
    if not config.evaluate.test:
        limits.pop("test_limit")
    unit = getattr(task, "text_unit", None)
    for name, limit in limits.items():
        if limit is None:
            continue
        few = f"evaluate.{name}: {limit:,} {unit or 'row'}s"
        if limit < (FEW_UNITS if unit else FEW_ITEMS):
            yield f"{few} say little about a model: set it higher; null reads all"
        elif name == "test_limit" and unit is None and margin is not None and margin * limit < 1:
            yield f"{few} resolve a share to {1 / limit:.2g}, less finely than the margin of {margin:g}: set it higher"


def _on_batch(config: RunConfig, task: Any) -> Iterator[str]:
    """Yield a note on a batch with more rows than the training data."""
    size = config.train.batch_size
    if isinstance(task, BucketedTask):
        if size > (rows := task.count("train")):
            yield f"train.batch_size: {size:,} rows are more than the {rows:,} of train, which are then all of each batch"
    elif (
        isinstance(task, SequenceTask)
        and size > 1
        and task.steps_per_epoch(size) == 1
        and task.steps_per_epoch((size + 1) // 2) == 1
    ):
        yield f"train.batch_size: {size:,} rows of {task.length:,} {task.unit}s are more than train has: each step reads it all"


def _on_patterns(config: RunConfig, task: Any) -> Iterator[str]:
    """Yield a note on each pattern of attention that hides nothing at the length of the rows."""
    import torch

    longest = max((task.length, *config.evaluate.lengths)) + config.model.mem_len
    for part in parts(config, task):
        if part.role == "cross":
            continue
        with torch.device("meta"):
            components = build_components(config, task, part)
        for name, component in components.items():
            window = getattr(component, "window", None)
            if isinstance(window, int) and window >= longest:
                yield f"a {name} of {window:,} hides nothing in rows of {longest:,} {task.unit}s: set it lower"
        yield from _on_variant(config, task, part, longest)


def _on_variant(config: RunConfig, task: Any, part: Part, longest: int) -> Iterator[str]:
    import torch

    kernel = part.variant.options.get("kernel")
    if isinstance(kernel, int) and kernel >= 2 * longest:
        yield f"most of a kernel of {kernel:,} is never used in rows of {longest:,} {task.unit}s: set it lower"
    if not hasattr(part.variant_class, "visible"):
        return
    with torch.device("meta"):
        variant = build_attention(config, task, part)
    heads = part.heads(config)
    if dense := sum(_is_dense(variant, head, longest) for head in range(heads)):
        yield (
            f"{dense} of {heads} heads of {part.variant.short_name} attend to all of {longest:,} {task.unit}s, as dense "
            "attention does: choose options for rows of this length"
        )


def _is_dense(variant: Variant, head: int, length: int) -> bool:
    """Return True if the pattern of a head hides nothing, in rows that are spread evenly and begin with the last."""
    visible: Any = variant.visible  # type: ignore[attr-defined]
    queries = range(length - 1, -1, -max(1, length // ROWS_CHECKED))
    return all(visible(head, i, j) for i in queries for j in range(i + 1 if variant.causal else length))
