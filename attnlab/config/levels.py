"""The fields that an axis sets: one field for an axis that is a path, several for an axis with named levels.

``size: {small: {model.dim: 64, train.lr: 2e-3}, large: {model: {dim: 256, depth: 4}}}`` is an axis ``size`` with two levels. A
level sets dotted paths, or fields of sections; fields that it leaves out keep their value in the base. ``with: gate`` in a
level adds a component to the variant, in addition to the components of the base and of other axes. The patterns of
``model.layers`` can be named, too: ``model.layers: {hybrid: [gru, gru, dense], dense: [dense]}``.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from attnlab._util.cost_metrics import COST_METRICS
from attnlab.config.axes import LAYERS, Label
from attnlab.config.paths import NAMED, check_path, check_value
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import WITH
from attnlab.config.validation import field_names
from attnlab.config.yaml import Loc, kind, within
from attnlab.errors import UserError

# Names of columns, params and metrics of runs: an axis with such a name would hide them.
# fmt: off
RESERVED = frozenset(
    (
        "run_id", "name", "study", "cell", "seed", "state", "reason", "phase", "trial", "params", "test",
        "length", "data", "depth", "dim", "heads", "mem_len", "precision", "device", "lr", "batch_size",
        "steps", "epochs", "accuracy", "loss", "bits_per_byte", "bits_per_token", "tokens", "started",
        "seconds", "folder", "versions", "commit", "matched", "sources", "packages", "left_out",
        "data_notes", "data_sizes", "order",
    )
)
# fmt: on


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
    settings = _settings_of_level(values[name], ("grid", axis, name))
    return [part for setting in settings for part in _with_position(setting)]


def _with_position(setting: FieldSetting) -> Iterator[FieldSetting]:
    """Yield the setting, or two of them for a variant with a position scheme: ``{name: dense, position: rotary}``."""
    if setting.path == "variant" and isinstance(setting.value, dict) and "position" in setting.value:
        variant = {key: value for key, value in setting.value.items() if key != "position"}
        yield FieldSetting("variant", variant, setting.loc)
        yield FieldSetting("position", setting.value["position"], (*setting.loc, "position"))
    else:
        yield setting


def _settings_of_level(level: dict[str, Any], loc: Loc) -> Iterator[FieldSetting]:
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


def check_levels(study: StudyConfig) -> None:
    """Check the axes with named levels: their names, and the fields that they set.

    Also check that no two axes set one field, by a level or by the position scheme or components in the entry of a variant.

    Raises:
        UserError: the first mistake, with its place.
    """
    for axis, levels in study.grid.items():
        if isinstance(levels, dict) and axis == LAYERS:
            for name, pattern in levels.items():
                _check_level_name(study, axis, name)
                check_value(axis, pattern, where=within(study.place, "grid", axis, name))
        elif isinstance(levels, dict):
            _check_name(study, axis)
            for name, level in levels.items():
                _check_level(study, axis, name, level)
    for axis, levels in study.grid.items():  # of which each has been checked
        if isinstance(levels, dict) and axis != LAYERS:
            _check_overlap(study, axis, paths_of_axis(study, axis, added=False))
        elif axis == "variant":
            paths = {path: loc for path, loc in paths_of_axis(study, axis).items() if path == "position"}
            composed = (i for i, value in enumerate(levels) if isinstance(value, dict) and WITH in value)
            paths |= {f"variant.{WITH}": ("grid", axis, i, WITH) for i in itertools.islice(composed, 1)}
            _check_overlap(study, axis, paths)


def _check_name(study: StudyConfig, axis: str) -> None:
    place, section = study.where("grid", axis, key=True), study.section(axis)
    if "." in axis or axis in field_names(RunConfig, ()):
        message = "expected a list of values; named levels that set several fields need an axis of another name"
        raise UserError(f"{section}.{axis}: {message}, such as size: {{small: ..., large: ...}}", place)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,49}", axis):
        raise UserError(f"{section}: expected the name of an axis in letters, digits, '_' and '-', got {kind(axis)}", place)
    if axis in RESERVED or axis in {metric.name for metric in COST_METRICS}:
        raise UserError(f"{section}: expected another name for the axis {axis!r}, which names a column of the runs", place)


def _check_level(study: StudyConfig, axis: str, name: str, level: Any) -> None:
    place, label = study.where("grid", axis, name), f"{study.section(axis)}.{axis}"
    _check_level_name(study, axis, name)
    if level == {} and axis in study.factors:  # the level of the base
        return
    if not isinstance(level, dict) or not list(_settings_of_level(level, ())):
        message = f"{label}.{name}: expected the fields that this level sets, such as {{model.dim: 64}}, got {kind(level)}"
        raise UserError(message, place)
    seen: set[str] = set()
    for setting in _settings_of_level(level, ("grid", axis, name)):
        check_path(setting.path, place=study.where(*setting.loc, key=True), stages=study.stages)
        check_value(setting.path, setting.value, where=within(study.place, *setting.loc))
        if setting.path in seen:
            message = f"{label}.{name}: expected each field once, got {setting.path} again"
            raise UserError(message, study.where(*setting.loc, key=True))
        seen.add(setting.path)


def _check_level_name(study: StudyConfig, axis: str, name: str) -> None:
    if not re.fullmatch(r"[^\s,=]{1,50}", name):
        message = f"expected the name of a level without spaces, ',' and '=', got {kind(name)}"
        raise UserError(f"{study.section(axis)}.{axis}: {message}", study.where("grid", axis, name, key=True))


def _check_overlap(study: StudyConfig, axis: str, paths: dict[str, Loc]) -> None:
    for path, loc in paths.items():
        for other in study.grid:
            for taken in paths_of_axis(study, other, added=False) if other != axis else ():
                if path == taken or path.startswith(f"{taken}.") or taken.startswith(f"{path}."):
                    message = f"{study.section(axis)}.{axis}: expected no {path!r}: the axis {other!r} sets {taken!r}"
                    raise UserError(message, study.where(*loc, key=True))
