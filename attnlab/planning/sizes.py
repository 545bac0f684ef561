"""Notes on sizes and training schedules, with the runs that share each note.

- Sizes that contradict each other: of evaluations, batches and patterns of attention against data and rows.
- Schedules: warm-ups that do not end, evaluations that decide nothing, too few of them for a margin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from attnlab._util.metrics import is_share
from attnlab._util.text import count
from attnlab.config.axes import Label
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.tasks import TaskQuestion, task_axis
from attnlab.errors import UserError
from attnlab.models.parts import Part, build_attention, build_components, parts
from attnlab.planning.evaluations import EvaluationSchedule, evaluation_schedule
from attnlab.planning.matching import CellPair
from attnlab.tasks.bucketing import BucketedTask
from attnlab.tasks.sequence import SequenceTask
from attnlab.training.optim import warmup_steps
from attnlab.training.selection import MIN_POINTS
from attnlab.variants import Variant

SHOWN = 3  # names of cells in a note
FEW_UNITS, FEW_ITEMS = 1_000, 30  # bytes or tokens of a text, and rows, of which a score says little
ROWS_CHECKED = 64  # rows of a pattern that are compared with those of dense attention


class PlannedRun(NamedTuple):
    """The configuration of a cell or of a stage, without its seed.

    Attributes:
        name: of the cell, or ``stage pretrain``.
        axes: axis -> label; of a stage, those that concern it.
    """

    name: str
    config: RunConfig
    task: Any
    axes: Mapping[str, Label]
    is_stage: bool = False


def planned_runs(cells: Sequence[CellPair]) -> list[PlannedRun]:
    """Return the cells that are not refused, and the stages that they start from, each once."""
    runs: dict[str, PlannedRun] = {}
    for cell, resolution in cells:
        if resolution.refusal is not None:
            continue
        runs[cell.name] = PlannedRun(cell.name, resolution.config, resolution.task, cell.axes)
        stage = resolution.stage
        while stage is not None:
            name = f"stage {stage[0].name}"
            runs.setdefault(name, PlannedRun(name, stage[1].config, stage[1].task, stage[0].axes, is_stage=True))
            stage = stage[1].stage
    return list(runs.values())


def shared_notes(notes: Iterable[tuple[str, str]], runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield each distinct note once, with the names of the cells that it concerns unless it concerns all runs.

    Args:
        notes: name of a run, and a note on it.
        runs: of the plan.
    """
    names: dict[str, list[str]] = {}
    for name, note in notes:
        names.setdefault(note, []).append(name)
    for note, concerned in names.items():
        if len(set(concerned)) == len(runs):
            yield note
        else:
            yield f"{listed(concerned)}: {note}"


def listed(names: Sequence[str]) -> str:
    """Return names of cells as in "'a', 'b', 'c' and 4 more cells"."""
    shown = ", ".join(map(repr, names[:SHOWN]))
    return shown if len(names) <= SHOWN else f"{shown} and {count(len(names) - SHOWN, 'more cell')}"


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
        split, size = ("test" if name == "test_limit" else "valid"), None
        with suppress(Exception):  # any exception: the task may be the user's own
            size = task.split_size(split)
        if size is not None and limit > size and name != "sample":
            yield f"evaluate.{name}: {limit:,} is more than the {size:,} {unit or 'row'}s of {split}, which are all read"
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
            yield from _on_chosen_keys(name, component, longest, task.unit)
        yield from _on_variant(config, task, part, longest)


def _on_variant(config: RunConfig, task: Any, part: Part, longest: int) -> Iterator[str]:
    import torch

    kernel = part.variant.options.get("kernel")
    if isinstance(kernel, int) and kernel >= 2 * longest:
        yield f"most of a kernel of {kernel:,} is never used in rows of {longest:,} {task.unit}s: set it lower"
    if not (hasattr(part.variant_class, "visible") or hasattr(part.variant_class, "most_keys")):
        return
    with torch.device("meta"):
        variant = build_attention(config, task, part)
    yield from _on_chosen_keys(part.variant.short_name, variant, longest, task.unit)
    if not hasattr(variant, "visible"):
        return
    heads = part.heads(config)
    if dense := sum(_is_dense(variant, head, longest) for head in range(heads)):
        yield (
            f"{dense} of {heads} heads of {part.variant.short_name} attend to all of {longest:,} {task.unit}s, as dense "
            "attention does: choose options for rows of this length"
        )


def _on_chosen_keys(name: str, module: object, longest: int, unit: str) -> Iterator[str]:
    """Yield a note on a choice of keys, by content, that is as large as the rows."""
    most = getattr(module, "most_keys", None)
    if isinstance(most, int) and most >= longest:
        yield f"{name} chooses up to {most:,} keys of rows of {longest:,} {unit}s, which is all of them: choose fewer"


def _is_dense(variant: Variant, head: int, length: int) -> bool:
    """Return True when the pattern of a head hides nothing, in rows that are spread evenly and begin with the last."""
    visible: Any = variant.visible  # type: ignore[attr-defined]
    queries = range(length - 1, -1, -max(1, length // ROWS_CHECKED))
    return all(visible(head, i, j) for i in queries for j in range(i + 1 if variant.causal else length))


def schedule_notes(study: StudyConfig, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield notes on the warm-up and the evaluations of each run."""
    notes: list[tuple[str, str]] = []
    short: dict[Label, str] = {}  # level of ``over`` -> the share of train.lr that its runs reach
    for run in runs:
        with suppress(Exception):  # any exception: the task may be the user's own, and the plan reports its errors elsewhere
            config = run.config if run.is_stage else _at_ends(study, run.config)
            schedule = evaluation_schedule(config, run.task)
            notes += ((run.name, note) for note in _on_evaluations(study, config, schedule))
            warmup = warmup_steps(config.train, schedule.steps)
            if study.over_axis in run.axes and schedule.steps < warmup:
                short[run.axes[study.over_axis]] = f"{schedule.steps / warmup:.2g}"
            else:
                notes += ((run.name, note) for note in _on_warmup(config, schedule, warmup))
    if short:
        levels, shares = ", ".join(map(str, short)), ", ".join(short.values())
        yield (
            f"over.{study.over_axis}: train.warmup is longer than the runs at {levels}, which reach {shares} of train.lr: a "
            "trend may be due to the rate; write train.warmup as a fraction, such as 0.1 of the run"
        )
    yield from shared_notes(notes, runs)


def _at_ends(study: StudyConfig, config: RunConfig) -> RunConfig:
    """Return the configuration with the longest warm-up and the fewest steps that a search may choose."""
    space = study.search.space if study.search else {}
    changes: dict[str, Any] = {}
    for name, choose in (("warmup", max), ("steps", min)):
        if (dimension := space.get(f"train.{name}")) is not None:
            changes[name] = choose(value for _, value in dimension.ends)
    if "steps" in changes:
        changes["epochs"] = None
    return config.model_copy(update={"train": config.train.model_copy(update=changes)})


def _on_warmup(config: RunConfig, schedule: EvaluationSchedule, warmup: int) -> Iterator[str]:
    train, total = config.train, schedule.steps
    if train.warmup == 1 and isinstance(train.warmup, int):
        yield "train.warmup: 1 is one step, which has no effect: write a fraction below 1, such as 0.1 of the run, or 0"
    elif warmup >= total > 1:
        length = "as long as the run" if warmup == total else f"longer than the run of {total:,} steps"
        reached = "" if warmup == total else f", to {total / warmup:.2g} of train.lr"
        yield (
            f"train.warmup: {train.warmup} is {length}, so the learning rate rises until the last step{reached}: set it lower, "
            "such as 0.1 of the run"
        )
    elif train.patience is not None and (first := (train.patience + 1) * schedule.every) <= min(warmup, schedule.last):
        yield (
            f"train.patience: {train.patience} can end a run at step {first:,}, before its warm-up of {warmup:,} steps ends: "
            "set train.patience or train.eval_every higher"
        )


def _on_evaluations(study: StudyConfig, config: RunConfig, schedule: EvaluationSchedule) -> Iterator[str]:
    train = config.train
    if schedule.early == 0 and study.search is None:
        acting = [name for name in ("patience", "stop_at") if getattr(train, name) is not None]
        acting += ["checkpoint_selection"] if train.checkpoint_selection == "best" else []
        for name in acting:
            yield (
                f"train.{name}: {getattr(train, name)} has no effect, because valid is read once, at the last step "
                f"({schedule.steps:,}): set train.eval_every lower"
            )
    elif train.patience is not None and train.patience >= schedule.early:
        yield (
            f"train.patience: {train.patience} ends no run: {train.patience + 1} evaluations are needed, and a run has "
            f"{schedule.early} before its last one: set train.patience or train.eval_every lower"
        )


def check_margin(study: StudyConfig, resolved: Sequence[CellPair], *, margins: Mapping[str, float | str | None]) -> None:
    """Raise ``UserError`` when a margin is a share of steps and a baseline is evaluated too seldom to estimate it.

    Args:
        margins: label of the task's value -> margin; "" -> margin in a study of one task.
    """
    shares = [margin for margin in margins.values() if isinstance(margin, str)]
    if not shares:
        return
    place, axis = study.where("margin"), task_axis(study)
    if not study.baselines:
        raise UserError(f"margin: {shares[0]} is estimated from the baseline: expected a 'baseline', got none", place)
    for cell, resolution in resolved:
        margin = margins[str(cell.axes[axis]) if axis else ""]
        if not isinstance(margin, str):
            continue
        if resolution.refusal is not None or not study.baselines[0].items() <= cell.axes.items():
            continue
        schedule = evaluation_schedule(resolution.config, resolution.task)
        steps, every = schedule.steps, schedule.every
        points = len({*range(every, steps + 1, every), steps} - set(range((steps + 1) // 2)))
        if points < MIN_POINTS:
            message = (
                f"margin: {margin} is estimated from the baseline's validation curve: expected at least {MIN_POINTS} "
                f"evaluations in the second half of training, got {points} of {cell.name!r}"
            )
            raise UserError(f"{message}; set train.eval_every to at most {max(1, steps // 4)}", place)
