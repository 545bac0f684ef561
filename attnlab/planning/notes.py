"""Notes of a plan.

They are on equal cells, cells without a baseline, lengths at which a model is not evaluated, cells that differ from their
baseline in more than their subject, and levels with misleading names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from attnlab._util.text import count
from attnlab.config.axes import LAYERS, Label, text
from attnlab.config.command import CommandConfig
from attnlab.config.comparability import OTHER_FILES, describe_changes, describe_other_files, identity_of_test
from attnlab.config.grid import CellConfig
from attnlab.config.levels import field_settings, level_settings
from attnlab.config.paths import split_stage
from attnlab.config.run import ModelConfig, TrainConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import WITH, Named
from attnlab.errors import UserError
from attnlab.models.parts import parts
from attnlab.planning.cell import Cell
from attnlab.planning.effects import axis_notes, dead_axes
from attnlab.planning.matching import CellPair
from attnlab.planning.sizes import listed
from attnlab.planning.support import without_cache
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.tasks import SPLITS

# Fields of ``train`` that decide speed, memory or what is recorded, and not what is learned.
COSTS = {"gradient_accumulation", "activation_checkpointing", "precision", "compile"}
RECORDED = {"eval_every", "checkpoint_every", "log_every"}
TRAINING = [f"train.{name}" for name in TrainConfig.model_fields if name not in COSTS | RECORDED]
USUAL_DIRECTIONS = {  # words in the name of a metric -> direction
    ("accuracy", "precision", "recall", "f1", "auc", "bleu", "rouge", "exact_match"): "max",
    ("loss", "perplexity", "bits_per", "nats_per", "error", "mse", "rmse", "mae"): "min",
}


def double_notes(
    study: StudyConfig, resolved: Sequence[CellPair], doubles: Mapping[str, str], wanted: Sequence[str]
) -> Iterator[str]:
    """Yield a note on each axis that changes nothing, and on each wanted cell that is a double for another reason."""
    cells = {cell.name: cell for cell, _ in resolved}
    dead = dead_axes(study, list(cells.values()), {cell.name: resolution.key for cell, resolution in resolved})
    yield from axis_notes(study, dead, [(resolution.config, resolution.task) for _, resolution in resolved])
    for name in wanted:
        if name in doubles:
            chosen, first = cells[name].chosen, cells[doubles[name]].chosen
            if any(chosen[axis] != first[axis] for axis in chosen if axis not in dead):
                yield f"{name!r} is the same configuration as {doubles[name]!r}: it is run once, as that"


def direction_notes(metric: str, direction: str) -> Iterator[str]:
    """Yield a note on a metric if its name suggests the other direction."""
    usual = next(
        (usual for words, usual in USUAL_DIRECTIONS.items() if any(f"_{word}" in f"_{metric.lower()}" for word in words)),
        direction,
    )
    if usual != direction:
        better = "higher" if usual == "max" else "lower"
        yield f"{metric} is compared with direction {direction}, although {better} values of it are usually better"


def length_notes(cells: Sequence[CellPair]) -> Iterator[str]:
    """Yield notes on the values of ``evaluate.lengths`` at which a cell's trained model cannot be evaluated."""
    from attnlab.training.evaluate import unsupported_length

    for cell, resolution in cells:
        if resolution.refusal is not None:
            continue
        reasons: dict[str, list[int]] = {}
        for length in resolution.config.evaluate.lengths:
            reason = unsupported_length(resolution.config, resolution.task, length)
            if reason is not None:
                reasons.setdefault(reason, []).append(length)
        for reason, lengths in reasons.items():
            yield f"{cell.name!r} is not tested at length {', '.join(map(str, lengths))}: {reason}"


def layer_notes(cells: Sequence[CellPair]) -> Iterator[str]:
    """Yield a note on each cell in which the last repetition of ``model.layers`` is incomplete."""
    for cell, resolution in cells:
        layers, depth = resolution.config.model.layers, resolution.config.model.depth
        if resolution.refusal is None and layers is not None and depth % len(layers.pattern):
            n, rest = len(layers.pattern), depth % len(layers.pattern)
            last = "1 entry" if rest == 1 else f"{rest} entries"
            yield f"{cell.name!r}: model.depth {depth} is not a multiple of the {n} entries of {LAYERS}: it ends after {last}"


def cache_notes(cells: Sequence[CellPair]) -> Iterator[str]:
    """Yield a note on the encoder-decoders that decode without a cache of keys and values, by what supports none."""
    names: dict[str, list[str]] = {}
    for cell, resolution in cells:
        if resolution.refusal is None and resolution.task.kind == "encoder_decoder":
            decoding = [part for part in parts(resolution.config, resolution.task) if part.name in ("decoder", "cross")]
            without = sorted({label for part in decoding for label in without_cache(part)})
            if without:
                names.setdefault(" and ".join(without), []).append(repr(cell.name))
    for variants, own in names.items():
        yield f"{', '.join(own)}: {variants} supports no cache of keys and values, so decoding repeats earlier positions"


def data_sizes(cells: Sequence[CellPair]) -> dict[str, str]:
    """Return the number of items of each split as text, by the name of the cell; nothing of tasks that do not know it."""
    sizes: dict[str, str] = {}
    for cell, resolution in cells:
        with suppress(Exception):  # any exception: the task may be the user's own, and later steps report its errors
            task, evaluate = resolution.task, resolution.config.evaluate
            limits = {"valid": evaluate.valid_limit, "test": evaluate.test_limit if evaluate.test else 0}
            noun = getattr(task, "text_unit", "row")
            counts = {split: size for split in SPLITS if (size := task.split_size(split)) is not None}
            texts = [_size_text(split, size, limits.get(split), noun) for split, size in counts.items()]
            texts += [f"{task.classes} classes"] if task.classes else []
            sizes[cell.name] = ", ".join(texts)
    return sizes


def _size_text(split: str, size: int, limit: int | None, noun: str) -> str:
    scored = "" if limit == 0 or split == "train" else " (all scored)" if (limit or size) >= size else f" ({limit:,} scored)"
    return f"{split} {size:,} {noun}s{scored}"


def data_notes(cells: Sequence[CellPair]) -> dict[str, tuple[str, ...]]:
    """Return the notes of each cell's task on its data, by the name of the cell.

    Raises:
        UserError: the method ``data_notes`` of a user's task failed.
    """
    notes: dict[tuple[str | None, str], tuple[str, ...]] = {}  # of several cells: by their data and the options of their task
    keys = {cell.name: (resolution.config.data, resolution.config.task.model_dump_json()) for cell, resolution in cells}
    for cell, resolution in cells:
        if resolution.refusal is None and (key := keys[cell.name]) not in notes:
            try:
                notes[key] = tuple(resolution.task.data_notes())
            except UserError as error:
                raise UserError(error.message, error.where or cell.where("task")) from error
            except Exception as error:  # any exception: the task may be the user's own
                message = f"task {resolution.config.task.label}: data_notes() failed: {type(error).__name__}: {error}"
                raise UserError(message, cell.where("task")) from error
    return {cell.name: notes[keys[cell.name]] for cell, resolution in cells if resolution.refusal is None}


def baseline_notes(
    study: StudyConfig, cells: Sequence[Cell], baseline_of: Callable[[Cell, int], Cell | None], *, every: Sequence[CellConfig]
) -> Iterator[str]:
    """Yield notes on cells without a baseline to compare with.

    Args:
        cells: of the plan.
        baseline_of: returns the baseline of a cell with this number, or None.
        every: the cells of the whole grid.
    """
    for number, baseline in enumerate(study.baselines):
        shown = ", ".join(f"{axis} {value}" for axis, value in baseline.items())
        for cell in cells:
            base = baseline_of(cell, number)
            if base is None:
                axes = {**cell.axes, **baseline}
                exists = any(candidate.axes == axes for candidate in every)
                why = "is not among the cells chosen" if exists else "is not in the grid"
                yield f"{cell.name!r} has no baseline: its cell with {shown} {why}"
            elif base.refusal is not None and cell.refusal is None:
                yield f"{cell.name!r} has no baseline: {base.name!r} is refused"
            elif isinstance(cell.settings, CommandConfig):
                if files := describe_other_files(*map(identity_of_test, (cell.settings, base.settings))):
                    yield f"{cell.name!r} is compared with {base.name!r} on other files: {files}. {OTHER_FILES}"
            elif change := _change_of_test(cell, base):
                yield f"{cell.name!r} is not compared with {base.name!r}: not the same test ({change})"


def control_notes(
    study: StudyConfig, cells: Sequence[Cell], *, refusals: Mapping[tuple[Label, ...], str | None]
) -> Iterator[str]:
    """Yield notes on a control that supports nothing: without a margin, not in the grid, or refused.

    Args:
        cells: of the plan.
        refusals: the labels of each cell of the whole grid -> the reason why it cannot run, or None.
    """
    if study.control is None:
        return
    shown = ", ".join(f"{axis} {value}" for axis, value in study.control.items())
    if study.margin is None:
        yield f"the control ({shown}) supports verdicts of equivalent, which need a margin: the study has none"
    for cell in cells:
        axes = tuple({**cell.axes, **study.control}.values())
        if axes not in refusals:
            yield f"{cell.name!r} has no control: its cell with {shown} is not in the grid"
        elif refusals[axes] is not None and axes != tuple(cell.axes.values()):
            yield f"{cell.name!r} has no control: its cell with {shown} is refused"


def margin_notes(study: StudyConfig) -> Iterator[str]:
    """Yield a note on a margin of a study that compares no cells."""
    if study.margin is not None and not study.baselines and not study.factors:
        yield "the margin has no effect, because no cells are compared: write a 'baseline', such as {variant: dense}"


def _change_of_test(cell: Cell, base: Cell) -> str:
    """Return how the test of a cell differs from its baseline's; "" if they are the same."""
    test, base_test = (json.loads(identity_of_test(c.settings)) for c in (cell, base))
    return describe_changes(test, base_test)


TRAINING += [f"model.{name}" for name in ModelConfig.model_fields if name.endswith("dropout") or name == "initialization"]
BUDGET = {"train.steps", "train.epochs", "train.batch_size"}
EQUAL_COSTS = 0.02  # relative difference of the training FLOPs up to which unequal steps are a match of costs

BaselineOf = Callable[[Cell, int], Cell | None]


def confound_notes(study: StudyConfig, cells: Sequence[Cell], baseline_of: BaselineOf) -> Iterator[str]:
    """Yield notes on cells that are trained in another way than their baseline, and on the names of levels.

    Args:
        cells: of the plan.
        baseline_of: returns the baseline of a cell with this number, or None.
    """
    pairs = [
        (cell, base)
        for number in range(len(study.baselines))
        for cell in cells
        if cell.refusal is None and (base := baseline_of(cell, number)) is not None
        if base is not cell and base.refusal is None
    ]
    names: dict[str, list[str]] = {}
    for cell, base in pairs:
        for note in (*_on_training(study, cell, base), *_on_stages(cell, base), *_on_rates(cells, cell, base)):
            names.setdefault(note, []).append(cell.name)
    for note, concerned in names.items():
        yield f"{listed(concerned)}: {note}"
    yield from _on_factors(study)
    yield from _on_level_names(study)


def _on_factors(study: StudyConfig) -> Iterator[str]:
    """Yield a note on each factor that changes the training together with something else."""
    for axis in study.factors:
        for i in range(len(study.grid[axis]) if isinstance(study.grid[axis], dict) else 0):
            paths = [setting.path for setting in field_settings(study, axis, i)]
            training = [path for path in paths if split_stage(path)[1] in TRAINING]
            if 0 < len(training) < len(paths):
                yield f"the effect of {axis!r} may be due to {', '.join(training)}, which it sets, too: make it another factor"


def _on_training(study: StudyConfig, cell: Cell, base: Cell) -> Iterator[str]:
    if study.control and study.control.items() <= cell.axes.items():
        if changed := _changes(cell, base, TRAINING):
            yield (
                f"the control is trained in another way than {base.name!r} ({changed}): being worse then does not show that "
                "the study sees differences; train both alike"
            )
        return
    axes = [axis for axis in cell.axes if axis != study.over_axis and cell.axes[axis] != base.axes[axis]]
    own, other = ({s.path: s for axis in axes for s in level_settings(study, axis, of.axes[axis])} for of in (cell, base))
    private = [path for path in {**own, **other} if split_stage(path)[1] in TRAINING]
    # A stage keeps the options that the level of its baseline writes out, unless its own level sets others.
    subjects = [path for path in {**own, **other} if path not in private and (path in own or not split_stage(path)[0])]
    if any(_value(cell, path) != _value(base, path) for path in subjects) and (changed := _changes(cell, base, private)):
        yield (
            f"trained differently from {base.name!r} ({changed}), which may explain a difference; train both alike, or "
            "make it an axis"
        )


def _on_rates(cells: Sequence[Cell], cell: Cell, base: Cell) -> Iterator[str]:
    """Yield a note on two optimizers of which the one of the baseline, or AdamW, is tried at fewer learning rates."""
    optimizers = [of.config.train.optimizer for of in (cell, base)]
    configs = [of.config for of in cells if of.refusal is None]
    rates = [len({c.train.lr for c in configs if c.train.optimizer == optimizer}) for optimizer in optimizers]
    (fewer, few), (more, many) = sorted(zip(rates, optimizers, strict=True), key=lambda tried: tried[0])
    if fewer < more and (few == optimizers[1] or few.name == "adamw"):
        yield (
            f"compared with {base.name!r}, although {few.label} is tried at {count(fewer, 'learning rate')} and {many.label} "
            f"at {more}: try as many with both, for example with sweep: {{train.lr: [...]}}"
        )


def _changes(cell: Cell, base: Cell, paths: Sequence[str]) -> str:
    """Return the paths in which two cells differ as in "train.lr 0.003, not 0.001"; not steps that match the costs."""
    changes = []
    for path in paths:
        own, other = _value(cell, path), _value(base, path)
        if own != other and not (split_stage(path)[1] in BUDGET and _costs_match(cell, base, split_stage(path)[0])):
            changes.append(f"{path} {_shown(own)}, not {_shown(other)}")
    return "; ".join(changes)


def _costs_match(cell: Cell, base: Cell, stage: str) -> bool:
    """Return True when the trainings of two cells, or of a stage of both, cost nearly the same FLOPs."""
    parts = [_stage(of, stage) for of in (cell, base)]
    costs, base_costs = (part.train_flops if part else None for part in parts)
    return costs is not None and base_costs is not None and abs(costs - base_costs) <= EQUAL_COSTS * base_costs


def _stage(cell: Cell, name: str) -> Cell | None:
    """Return a stage of a cell, which is the cell itself for the name ""; None when it has none of this name."""
    return next((of for of in cell.stages if of.name.partition(":")[0] == name), None) if name else cell


def _value(cell: Cell, path: str) -> Any:
    """Return the value of a field of a cell or of one of its stages; of an option, all options; None without that stage."""
    stage, inner = split_stage(path)
    part = _stage(cell, stage)
    value = part and part.config
    for name in inner.split("."):
        value = getattr(value, name, value)
    return value


def _shown(value: Any) -> str:
    return value.label if isinstance(value, Named) else text(list(value) if isinstance(value, tuple) else value)


def _on_stages(cell: Cell, base: Cell) -> Iterator[str]:
    """Yield a note on a cell that starts from a stage where its baseline does not, or the reverse."""
    if bool(cell.stages) == bool(base.stages):
        return
    costs, base_costs = cell.chain_flops, base.chain_flops
    more = f": training costs {costs / base_costs:.2g} times as many FLOPs, stages included" if costs and base_costs else ""
    if cell.stages:
        yield f"training starts from the stage {cell.config.init.stage!r}, and {base.name!r} from scratch{more}"  # type: ignore[union-attr]
    else:
        yield f"training starts from scratch, and {base.name!r} from a stage{more}"


def _on_level_names(study: StudyConfig) -> Iterator[str]:
    """Yield a note on each level that has the name of another variant, position scheme or level's value."""
    for axis, levels in study.grid.items():
        if not isinstance(levels, dict):
            continue
        settings = {name: field_settings(study, axis, i) for i, name in enumerate(levels)}
        values = {name: {s.path: _names(s.value) for s in of} for name, of in settings.items()}
        for path in dict.fromkeys(path for of in values.values() for path in of):
            own = {name: of[path] for name, of in values.items() if path in of}
            known = {"variant": VARIANTS, "position": POSITIONS}.get(path)
            others = {name for of in own.values() for name in of[:1]}
            if known is None and others != own.keys():  # only names that are the values in another order mislead
                continue
            for name, given in own.items():
                is_other = name in known.names() or name in others if known else name in others
                mine = {value for of in values[name].values() for value in of}
                if is_other and len(others) > 1 and name not in mine:
                    yield f"{axis}: the level {name!r} has {path} {given[0]}, and the name of another level: rename it"


def _names(value: Any) -> list[str]:
    """Return the name or the text of a value, and the names of its components."""
    if isinstance(value, list):
        return [name for item in value for name in _names(item)]
    if isinstance(value, dict) and "name" in value:
        return [str(value["name"]).rpartition(":")[2], *_names(value.get(WITH, []))]
    return [text(value)]
