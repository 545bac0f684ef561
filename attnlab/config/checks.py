"""Checks of a study that need no class: the parts that exclude or need each other, the axes, the levels, the assignments.

The fields of the base, of stages and of values of axes are validated once, in the configuration of a cell (``grid``).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection
from typing import Any

from attnlab._util.cost_metrics import COST_METRICS
from attnlab._util.redact import holds_login, redact
from attnlab.config.axes import (
    NAMED,
    SECTIONS,
    STAGES,
    by_label,
    check_axis,
    paths_of_axis,
    pick,
    settings_of_level,
    split_stage,
    task_axis,
)
from attnlab.config.run import PARTS, RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import LAYERS, WITH, canonical, text
from attnlab.config.validation import FILLED_IN, field_names, unknown_key
from attnlab.config.yaml import Loc, Where, assignment, dotted, kind
from attnlab.errors import UserError, nearest

NOT_OPTIONS = {  # keys of a field with options that are none -> what to write instead
    "name": "write the names themselves, such as variant: [dense, no_wo]",
    "options": "write the options themselves, such as variant.stride",
    "position": "write position",
    "components": "write variant.with",
}
UNKNOWN_DATA = "on validation data, which attnlab does not know of a program; list the values in the grid"
# Part of a study -> the parts that have no meaning together with it -> the reason.
EXCLUDED = {
    "command": {
        "stages": "attnlab does not know the weights of a program",
        "search": f"trials are chosen {UNKNOWN_DATA}",
        "confirm": f"trials are chosen {UNKNOWN_DATA}",
        "sweep": f"the best value is chosen {UNKNOWN_DATA}",
        "over": "list its levels as an axis of the grid",
        "factors": "list the levels of each factor as an axis of the grid",
        "design": "it needs 'factors'",
        "questions": "attnlab does not know which way the other metrics of a program are better",
        "imports": "attnlab imports no code for a program; 'files' lists the files that determine its results",
        "reference_scores": "attnlab does not know the data of a program",
    },
    "factors": {
        "over": "make its axis a factor: its interactions are the changes of the other effects",
        "sweep": "effects are estimated from one value of each run",
        "grid": "make its axes factors",
        "skip": "a cell that is left out would leave a hole in the design",
        "baseline": "effects are estimated from all cells, and no cell is compared with another",
        "questions": "the effects of a design are differences in one metric",
    },
    "search": {
        "sweep": "a search chooses a value in each cell, a sweep tries all",
        "seeds": "only the fresh seeds of 'confirm: {seeds: [...]}' are reported",
        "questions": "a search chooses its values by one metric",
    },
    "sweep": {"questions": "a sweep chooses its rate by one metric"},
}
NEEDED = {  # part of a study -> the part that it needs
    **dict.fromkeys(("files", "env", "pattern"), "command"),
    **dict.fromkeys(("over", "control", "questions"), "baseline"),
    **{"design": "factors", "confirm": "search", "search": "confirm"},
}
# Fields of a run that a search must not choose -> the reason.
UNSEARCHABLE = {
    "seed": "trials are trained with search.seed, the confirming runs with confirm.seeds",
    "task": "cells are compared, so all must be trained and tested on the same data",
    "evaluate": "trials are compared, so all must be evaluated in the same way",
    "machine": "it decides speed: set it in the base or the grid",
    "backend": "it computes the same function in another way: set it in the base or the grid",
}
# Columns of `attnlab.load_runs`: an axis of such a name would hide one, or be hidden by it.
COLUMNS = frozenset(
    {"run_id", "name", "cell", "study", "state", "reason", "fingerprint", "attempt", "phase", "trial", "params", "test"}
    | {"started", "seconds", "folder", "device", "versions", "commit", "matched", "data_notes", "data_sizes", "left_out"}
    | {"command", "files", "env", "wall_seconds", "host_peak_mib"}
)
OF_TRAINING = frozenset(
    {"seed", "length", "data", "depth", "dim", "heads", "mem_len", "precision", "lr", "batch_size", "steps", "epochs"}
    | {"accuracy", "loss", "bits_per_byte", "bits_per_token", "tokens", "sources", "packages", "order"}
    | {metric.name for metric in COST_METRICS}
)


def check_secrets(value: Any, *, where: Where, loc: Loc = ()) -> None:
    """Raise if a text holds a password: every record of the study would repeat it."""
    if isinstance(value, str) and holds_login(value):
        message = "expected an address without a password, which every record would repeat: read it from the environment"
        raise UserError(f"{message}, got {redact(value)!r}", where(loc))
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        check_secrets(child, where=where, loc=(*loc, key))


def check_parts(study: StudyConfig) -> None:
    """Raise ``UserError`` for a part of a study that another one excludes, or without one that it needs."""
    stated = {part for part in study.model_fields_set if getattr(study, part)}
    for part, others in EXCLUDED.items():
        for other, reason in others.items():
            if part in stated and other in stated:
                raise UserError(f"{other}: expected none in a study with {part!r}: {reason}", study.where(other, key=True))
    for part, other in NEEDED.items():
        if part in stated and other not in stated:
            message = f"{part}: expected {other!r} in a study with {part!r}, got none"
            raise UserError(message, study.where(part, key=True))


def check_training(study: StudyConfig) -> None:
    """Check a study of attnlab's training, whose factors are axes.

    Raises:
        UserError: the first mistake, with its place.
    """
    _check_fields(study, study.base, "base")
    for name, fields in study.stages.items():
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,49}", name):
            message = f"stages: expected a name in letters, digits, '_' and '-', got {name!r}"
            raise UserError(message, study.where("stages", name, key=True))
        _check_fields(study, fields, "stages", name)
    for axis in study.grid:
        _check_axis(study, axis)
    for axis, levels in study.grid.items():  # of which each has been checked
        _check_overlap(study, axis, levels)
    if study.over is not None:
        _check_over(study)
    if study.search is not None and study.confirm is not None:
        for path in study.search.space:
            _check_searched(study, path)
        if (seed := study.search.seed) in study.confirm.seeds:
            place = study.where("confirm", "seeds", study.confirm.seeds.index(seed))
            raise UserError(f"confirm.seeds: expected fresh seeds, got {seed}, which is search.seed", place)
    if study.sweep is not None:
        _check_free(study, study.sweep.path, ("sweep", study.sweep.path))
    _check_tasks(study)
    _check_sets(study)


def _check_fields(study: StudyConfig, fields: dict[str, Any], *loc: str) -> None:
    """Raise ``UserError`` for fields of a run that the plan fills in, or for a section that is no mapping."""
    for key in FILLED_IN:
        if key in fields:
            message = unknown_key(key, field_names(RunConfig, ()), loc)
            if key == "seed":
                message = f"{loc[0]}: expected 'seeds: [...]' at the top level, got 'seed'"
            raise UserError(message, study.where(*loc, key, key=True))
    for key in SECTIONS:
        if key in fields and not isinstance(fields[key], dict | str):  # ``set_path`` would replace it
            raise UserError(f"{dotted((*loc, key))}: expected a mapping, got {kind(fields[key])}", study.where(*loc, key))


def _check_axis(study: StudyConfig, axis: str) -> None:
    """Check the name of an axis, and that its values differ; of one with named levels, its levels."""
    values, place = study.grid[axis], study.where("grid", axis, key=True)
    if isinstance(values, list) or axis == LAYERS:
        check_path(axis, place=place, stages=study.stages)
    else:
        _check_name(study, axis, place=place)
    if isinstance(values, dict):
        for name, level in values.items():
            check_level_name(study, axis, name)
            if axis != LAYERS:
                _check_level(study, axis, name, level)
        return
    seen: set[str] = set()
    for i, value in enumerate(values):
        if canonical(value) in seen:
            message = f"{study.section(axis)}.{axis}: expected each value once, got {text(value)} again"
            raise UserError(message, study.where("grid", axis, i))
        seen.add(canonical(value))


def _check_name(study: StudyConfig, axis: str, *, place: str) -> None:
    section = study.section(axis)
    if "." in axis or axis in field_names(RunConfig, ()):
        message = "expected a list of values; named levels that set several fields need an axis of another name"
        raise UserError(f"{section}.{axis}: {message}, such as size: {{small: ..., large: ...}}", place)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,49}", axis):
        raise UserError(f"{section}: expected the name of an axis in letters, digits, '_' and '-', got {kind(axis)}", place)
    if axis in COLUMNS | OF_TRAINING:
        raise UserError(f"{section}: expected another name for the axis {axis!r}, which names a column of the runs", place)


def check_level_name(study: StudyConfig, axis: str, name: str) -> None:
    """Raise ``UserError`` unless a named level can be a part of the name of a cell."""
    if not re.fullmatch(r"[^\s,=]{1,50}", name):
        message = f"expected the name of a level without spaces, ',' and '=', got {kind(name)}"
        raise UserError(f"{study.section(axis)}.{axis}: {message}", study.where("grid", axis, name, key=True))


def _check_level(study: StudyConfig, axis: str, name: str, level: Any) -> None:
    place, label = study.where("grid", axis, name), f"{study.section(axis)}.{axis}.{name}"
    if level == {} and axis in study.factors:  # the level of the base
        return
    settings = list(settings_of_level(level, ("grid", axis, name))) if isinstance(level, dict) else []
    if not settings:
        message = f"{label}: expected the fields that this level sets, such as {{model.dim: 64}}, got {kind(level)}"
        raise UserError(message, place)
    for i, setting in enumerate(settings):
        place = study.where(*setting.loc, key=True)
        check_path(setting.path, place=place, stages=study.stages)
        if any(setting.path == earlier.path for earlier in settings[:i]):
            raise UserError(f"{label}: expected each field once, got {setting.path} again", place)


def _check_overlap(study: StudyConfig, axis: str, levels: Any) -> None:
    """Check that no other axis sets a field of a named level, or the position scheme or components of a variant."""
    paths: dict[str, Loc] = {}
    if isinstance(levels, dict) and axis != LAYERS:
        paths = paths_of_axis(study, axis, added=False)
    elif axis == "variant":
        paths = {path: loc for path, loc in paths_of_axis(study, axis).items() if path == "position"}
        composed = (i for i, value in enumerate(levels) if isinstance(value, dict) and WITH in value)
        paths |= {f"variant.{WITH}": ("grid", axis, i, WITH) for i in itertools.islice(composed, 1)}
    for path, loc in paths.items():
        for other in study.grid:
            for taken in paths_of_axis(study, other, added=False) if other != axis else ():
                if path == taken or path.startswith(f"{taken}.") or taken.startswith(f"{path}."):
                    message = f"{study.section(axis)}.{axis}: expected no {path!r}: the axis {other!r} sets {taken!r}"
                    raise UserError(message, study.where(*loc, key=True))


def _check_over(study: StudyConfig) -> None:
    """Check that the levels of ``over`` are different positive numbers, and that each has a baseline of its own."""
    axis, place, levels = study.over_axis, study.where("over", study.over_axis, key=True), list[float]()
    for key, value in enumerate(values) if isinstance(values := study.grid[axis], list) else ((name, name) for name in values):
        try:
            level = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            level = math.nan
        if not 0 < level < math.inf or level in levels:
            message = f"over.{axis}: expected levels that are different numbers above 0, got {kind(value)}"
            raise UserError(message, study.where("over", axis, key, key=isinstance(key, str)))
        levels.append(level)
    if len(levels) < 2:
        raise UserError(f"over.{axis}: expected at least two levels, got {len(levels)}", place)
    _check_not_in_baselines(study, axis, "at each level of 'over', cells are compared with the baseline of that level")


def _check_not_in_baselines(study: StudyConfig, axis: str, reason: str) -> None:
    """Raise ``UserError`` when a baseline or the control names an axis at each value of which cells are compared."""
    for part, cells in (("control", study.control), ("baseline", study.baseline)):
        for i, cell in enumerate(cells if isinstance(cells, list) else [cells]):
            if cell and axis in cell:
                loc = (part, i, axis) if isinstance(cells, list) else (part, axis)
                raise UserError(f"{part}: expected no {axis!r}: {reason}", study.where(*loc, key=True))


def _check_searched(study: StudyConfig, path: str) -> None:
    """Check that a search chooses a single field that neither the grid nor the study itself sets."""
    place, first = study.where("search", "space", path, key=True), path.partition(".")[0]
    if first in UNSEARCHABLE:
        raise UserError(f"search.space: expected no {path!r}: {UNSEARCHABLE[first]}", place)
    check_path(path, place=place)
    if path == first:
        message = f"search.space: expected a path into {path!r}, got {path!r} itself"
        raise UserError(f"{message}: compare such values as an axis of the grid", place)
    _check_free(study, path, ("search", "space", path))


def _check_free(study: StudyConfig, path: str, loc: Loc) -> None:
    """Raise ``UserError`` when an axis of the grid sets a field that a search or a sweep sets."""
    for axis, values in study.grid.items():
        inner = path.removeprefix(f"{axis}.") if path.startswith(f"{axis}.") else ""
        in_values = isinstance(values, list) and any(isinstance(value, dict) and inner in value for value in values)
        if path in paths_of_axis(study, axis) or in_values:
            section = ".".join(map(str, loc[:-1]))
            message = f"{section}: expected no {path!r}: the axis {axis!r} of the grid sets it"
            raise UserError(message, study.where(*loc, key=True))


def _check_sets(study: StudyConfig) -> None:
    """Check the assignments over the base; fields that the grid, a sweep or a search sets cannot be assigned."""
    for path, value in study.sets.items():
        place = assignment(path, value)
        check_path(path, place=place)
        if study.search is not None and path in study.search.space:
            raise UserError("the search sets this field in each trial: change its range in search.space", place)
        if study.sweep is not None and path == study.sweep.path:
            raise UserError("the sweep sets this field in each run: change its values in sweep", place)
        for axis in study.grid:
            if any(path == taken or path.startswith(f"{taken}.") for taken in paths_of_axis(study, axis, added=False)):
                raise UserError(f"the axis {axis!r} of the grid sets this field in each cell: select cells with --only", place)


def check_skip(study: StudyConfig) -> None:
    """Raise ``UserError`` when ``skip`` names a cell that the grid does not have."""
    for i, skip in enumerate(study.skip):
        for axis, value in skip.where.items():
            loc = ("skip", i, "where", axis)
            check_axis(study, axis, place=study.where(*loc, key=True))
            if value == []:
                raise UserError(f"{axis}: expected at least one value, got an empty list", study.where(*loc))
            for n, item in enumerate(value if isinstance(value, list) else [value]):
                pick(axis, study.axes[axis], item, place=study.where(*loc, *([n] if isinstance(value, list) else [])))


def _check_tasks(study: StudyConfig) -> None:
    """Check what a study of several tasks states about each of them, and that cells are compared within their task."""
    axis = task_axis(study)
    for key, value in (("metric", study.metric), ("margin", study.margin)):
        if isinstance(value, dict):
            if not axis:
                message = f"{key}: expected one value, because the study has one task, got a value for each task"
                raise UserError(message, study.where(key))
            by_label(study, key, value)
    if not axis:
        return
    if axis in study.factors:
        message = f"factors.{axis}: expected one task: the effects of a design are differences in one metric"
        raise UserError(message, study.where("factors", axis, key=True))
    if study.questions:
        message = f"questions: expected none: the values of {axis!r} have tasks with metrics of their own"
        raise UserError(message, study.where("questions", key=True))
    _check_not_in_baselines(study, axis, "cells of several tasks are compared within their task")


def check_path(path: str, *, place: str, stages: Collection[str] = ()) -> None:
    """Raise ``UserError`` at ``place`` unless the dotted path is a field of a run, or of a run of one of ``stages``."""
    stage, inner = split_stage(path)
    if stage in stages and inner:
        path = inner
    elif stages and path.partition(".")[0] == STAGES:
        known = [f"{STAGES}.{name}" for name in stages]
        expectation = f"expected {' or '.join(known)} and a path into it, such as {known[0]}.train.lr"
        raise UserError(f"{path!r} is not a field of a stage{nearest(f'{STAGES}.{stage}', known)}: {expectation}", place)
    if path == "seed":
        raise UserError("expected 'seeds: [...]' at the top level, got 'seed'", place)
    known = field_names(RunConfig, ())
    sections = [name for name in known if name not in (*NAMED, "backend")]
    parts = [f"model.{part}" for part in PARTS]
    paths = known + [f"{section}.{name}" for section in sections for name in field_names(RunConfig, (section,))]
    paths += [f"{part}.{name}" for part in parts for name in field_names(RunConfig, tuple(part.split(".")))]
    first, _, rest = path.partition(".")
    if first in NAMED and rest in NOT_OPTIONS:
        raise UserError(f"expected an option of the {first} after '{first}.', got {rest!r}: {NOT_OPTIONS[rest]}", place)
    parent, _, end = path.rpartition(".")
    if path in paths or parent in (*NAMED, "train.optimizer", *(f"{part}.{name}" for part in parts for name in NAMED)):
        return
    same_end = [known for known in paths if known.rpartition(".")[2] == path.rpartition(".")[2]]
    near = f" (did you mean {same_end[0]!r}?)" if same_end else nearest(end, paths) or nearest(path, paths)
    expectation = f"expected one of {', '.join(known)}, or a path into one, such as train.lr"
    raise UserError(f"{path!r} is not a field of a run{near}: {expectation}", place)
