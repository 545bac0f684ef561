"""Notes on cells that differ from their baseline in more than their subject, and on levels with misleading names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attnlab.config.axes import text
from attnlab.config.levels import FieldSetting, field_settings
from attnlab.config.paths import split_stage
from attnlab.config.run import ModelConfig, TrainConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import WITH, Named
from attnlab.planning.cell import Cell
from attnlab.planning.named_notes import listed
from attnlab.registry import POSITIONS, VARIANTS

# Fields of ``train`` that decide speed, memory or what is recorded, and not what is learned.
COSTS = {"gradient_accumulation", "activation_checkpointing", "precision", "compile"}
RECORDED = {"eval_every", "checkpoint_every", "log_every"}
TRAINING = [f"train.{name}" for name in TrainConfig.model_fields if name not in COSTS | RECORDED]
TRAINING += [f"model.{name}" for name in ModelConfig.model_fields if name.endswith("dropout")]
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
        for note in (*_on_training(study, cell, base), *_on_stages(cell, base)):
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
    own, other = ({s.path: s for axis in axes for s in _level_settings(study, axis, of)} for of in (cell, base))
    private = [path for path in {**own, **other} if split_stage(path)[1] in TRAINING]
    # A stage keeps the options that the level of its baseline writes out, unless its own level sets others.
    subjects = [path for path in {**own, **other} if path not in private and (path in own or not split_stage(path)[0])]
    if any(_value(cell, path) != _value(base, path) for path in subjects) and (changed := _changes(cell, base, private)):
        yield (
            f"trained differently from {base.name!r} ({changed}), which may explain a difference; train both alike, or "
            "make it an axis"
        )


def _level_settings(study: StudyConfig, axis: str, cell: Cell) -> list[FieldSetting]:
    """Return the fields that the level of a cell sets on an axis with named levels; none on other axes."""
    levels = study.grid[axis]
    return field_settings(study, axis, list(levels).index(str(cell.axes[axis]))) if isinstance(levels, dict) else []


def _changes(cell: Cell, base: Cell, paths: Sequence[str]) -> str:
    """Return the paths in which two cells differ as in "train.lr 0.003, not 0.001"; not steps that match the costs."""
    changes = []
    for path in paths:
        own, other = _value(cell, path), _value(base, path)
        if own != other and not (split_stage(path)[1] in BUDGET and _costs_match(cell, base, split_stage(path)[0])):
            changes.append(f"{path} {_shown(own)}, not {_shown(other)}")
    return "; ".join(changes)


def _costs_match(cell: Cell, base: Cell, stage: str) -> bool:
    """Return True if the trainings of two cells, or of a stage of both, cost nearly the same FLOPs."""
    parts = [_stage(of, stage) for of in (cell, base)]
    costs, base_costs = (part.train_flops if part else None for part in parts)
    return costs is not None and base_costs is not None and abs(costs - base_costs) <= EQUAL_COSTS * base_costs


def _stage(cell: Cell, name: str) -> Cell | None:
    """Return a stage of a cell, which is the cell itself for the name ""; None if it has none of this name."""
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
