"""Axes of a grid: labels and selection of their values, and the fields that a value sets.

An axis that is a path sets one field, an axis with named levels several:
``size: {small: {model.dim: 64, train.lr: 2e-3}, large: {model: {dim: 256, depth: 4}}}`` is an axis ``size`` with two levels. A
level sets dotted paths, or fields of sections; fields that it leaves out keep their value in the base. ``with: gate`` in a
level adds a component to the variant, in addition to the components of the base and of other axes. The patterns of
``model.layers`` can be named, too: ``model.layers: {hybrid: [gru, gru, dense], dense: [dense]}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab._util.text import escape_controls
from attnlab.config.types import LAYERS, WITH, Label, canonical, layers_text, text
from attnlab.config.yaml import Loc, kind
from attnlab.errors import UserError, nearest

if TYPE_CHECKING:
    from attnlab.config.study import StudyConfig

NAMED = ("task", "variant", "position")  # fields with options, which the plan checks against their classes
SECTIONS = ("model", "train", "evaluate", "machine")
STAGES = "stages"  # the section of a study whose parts an axis sets as stages.NAME.PATH


def labels(values: Sequence[Any], *, axis: str = "") -> list[Label]:
    """Return a label for each value: scalars as they are, paths by their class unless two labels would be equal.

    Args:
        axis: the axis of the values; patterns of ``model.layers`` have short labels.
    """
    result: list[Label] = []
    for value in values:
        if isinstance(value, str):
            result.append(text({"name": value}))
        elif axis == LAYERS:
            result.append(layers_text(value))
        else:
            result.append(value if isinstance(value, int | float) else text(value))
    if len(set(map(str, result))) < len(result):
        result = [
            escape_controls(value) if isinstance(value, str) else value if isinstance(value, int | float) else json.dumps(value)
            for value in values
        ]
    return result


def label_text(label: Any) -> str:
    """Return a label as it is compared: equal numbers have one text, because a column with 0 and 0.1 has 0.0."""
    if isinstance(label, float) and label.is_integer() and abs(label) < 2**53:
        label = int(label)
    return str(label).lower() if isinstance(label, bool) else str(label)


def pick(axis: str, values: Sequence[Any], wanted: Any, *, place: str) -> list[int]:
    """Return the indices of the values that match ``wanted``: the equal one, else those with that label, else that name.

    Raises:
        UserError: no value matches; at ``place``.
    """
    written = [str(label) for label in labels(values, axis=axis)]
    tests = (
        lambda i: canonical(values[i]) == canonical(wanted),
        lambda i: written[i] == (layers_text(wanted) if axis == LAYERS else text(wanted)),
        lambda i: isinstance(wanted, str) and wanted in _names(values[i]),
    )
    for test in tests:
        matches = [i for i in range(len(values)) if test(i)]
        if matches:
            return matches
    near = nearest(wanted, written) if isinstance(wanted, str) else ""
    raise UserError(f"{axis}: expected one of {', '.join(written)}, got {kind(wanted)}{near}", place)


def _names(value: Any) -> list[str]:
    """Return the names of a value without its options: the full name, and the class name alone."""
    name = value.get("name") if isinstance(value, dict) else value
    return [name, name.rpartition(":")[2]] if isinstance(name, str) else []


def check_axis(study: StudyConfig, axis: str, *, place: str) -> None:
    """Raise ``UserError`` at ``place`` unless ``axis`` is an axis of the study's grid."""
    if axis not in study.grid:
        known = list(study.grid)
        expectation = f"expected one of {', '.join(known)}" if known else "the study has no grid"
        raise UserError(f"{axis!r} is not an axis of the grid{nearest(axis, known)}: {expectation}", place)


@dataclass(frozen=True)
class FieldSetting:
    """A field that a value of an axis sets.

    Attributes:
        path: dotted path of the field.
        value: of the field.
        loc: location of the value in the study.
        adds: True for components that are added to the variant's components instead of replacing them.
    """

    path: str
    value: Any
    loc: Loc
    adds: bool = False


def field_settings(study: StudyConfig, axis: str, index: int) -> list[FieldSetting]:
    """Return the fields that one value of an axis sets."""
    values = study.grid[axis]
    if isinstance(values, list):
        return list(_with_position(FieldSetting(axis, values[index], ("grid", axis, index))))
    name = list(values)[index]
    if axis == LAYERS:  # named patterns
        return [FieldSetting(axis, values[name], ("grid", axis, name))]
    settings = settings_of_level(values[name], ("grid", axis, name))
    return [part for setting in settings for part in _with_position(setting)]


def _with_position(setting: FieldSetting) -> Iterator[FieldSetting]:
    """Yield the setting, or two of them for a variant with a position scheme: ``{name: dense, position: rotary}``."""
    if setting.path == "variant" and isinstance(setting.value, dict) and "position" in setting.value:
        variant = {key: value for key, value in setting.value.items() if key != "position"}
        yield FieldSetting("variant", variant, setting.loc)
        yield FieldSetting("position", setting.value["position"], (*setting.loc, "position"))
    else:
        yield setting


def settings_of_level(level: dict[str, Any], loc: Loc) -> Iterator[FieldSetting]:
    """Yield the fields that a named level sets."""
    for key, value in level.items():
        if key == WITH:
            yield FieldSetting(f"variant.{WITH}", value, (*loc, key), adds=True)
        elif isinstance(value, dict) and "." not in key and key not in NAMED:  # a section
            yield from (FieldSetting(f"{key}.{name}", inner, (*loc, key, name)) for name, inner in value.items())
        else:
            yield FieldSetting(key, value, (*loc, key))


def level_settings(study: StudyConfig, axis: str, level: Label) -> list[FieldSetting]:
    """Return the fields that a level sets on an axis with named levels; none on other axes."""
    levels = study.grid[axis]
    return field_settings(study, axis, list(levels).index(str(level))) if isinstance(levels, dict) else []


def paths_of_axis(study: StudyConfig, axis: str, *, added: bool = True) -> dict[str, Loc]:
    """Return the fields that an axis sets -> the location of the first value for each.

    Args:
        added: False to leave out components that are added to a variant, which no other axis contradicts.
    """
    settings = (setting for i in range(len(study.axes[axis])) for setting in field_settings(study, axis, i))
    paths: dict[str, Loc] = {}
    for setting in settings:
        if added or not setting.adds:
            paths.setdefault(setting.path, setting.loc)
    return paths


def split_stage(path: str) -> tuple[str, str]:
    """Return the stage that a dotted path leads into, and the path there: ``stages.pretrain.train.lr`` is ``train.lr``.

    The stage of other paths is "".
    """
    first, _, rest = path.partition(".")
    if first != STAGES:
        return "", path
    stage, _, inner = rest.partition(".")
    return stage, inner


def task_axis(study: StudyConfig) -> str:
    """Return the axis that sets the task, if its values have tasks of several names; else ""."""
    for axis in study.grid:
        if "task" in paths_of_axis(study, axis) and len(set(_task_names(study, axis))) > 1:
            return axis
    return ""


def _task_names(study: StudyConfig, axis: str) -> list[str]:
    """Return the name of the task of each value of an axis; "" for a value that leaves the task of the base."""
    names = []
    for index in range(len(study.axes[axis])):
        values = [setting.value for setting in field_settings(study, axis, index) if setting.path == "task"]
        value = values[-1] if values else study.base.get("task", "")
        names.append(str(value.get("name") if isinstance(value, dict) else value))
    return names


def by_label(study: StudyConfig, key: str, values: Mapping[str, Any]) -> dict[Label, Any]:
    """Return a mapping from tasks, which may be named without their options, with the labels of the axis as keys.

    Args:
        study: of several tasks.
        key: of the mapping in the study: ``metric`` or ``margin``.
        values: task -> value.
    """
    axis = task_axis(study)
    names = labels(study.axes[axis], axis=axis)
    matched: dict[Label, Any] = {}
    for task, value in values.items():
        for index in pick(axis, study.axes[axis], task, place=study.where(key, task, key=True)):
            if names[index] in matched:
                message = f"{key}: expected each task once, got {names[index]} again"
                raise UserError(message, study.where(key, task, key=True))
            matched[names[index]] = value
    return matched
