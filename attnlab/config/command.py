"""Studies of a program: ``command: python train.py --attention {attention} --seed {seed}`` instead of attnlab's training.

A run is one command line: its placeholders take the values of the base and of the grid. This module has its configuration
and the checks of such a study; ``attnlab.planning.command_files`` plans it, ``attnlab.study.execution.command`` runs it.
"""

from __future__ import annotations

import hashlib
import json
import math
import posixpath
import re
import shlex
import string
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field

from attnlab._util.files import real_path
from attnlab.config.axes import canonical, text
from attnlab.config.paths import assignment
from attnlab.config.study import StudyConfig
from attnlab.config.types import Section
from attnlab.config.yaml import Loc, kind
from attnlab.errors import UserError, nearest

Value = str | int | float | bool

SEED, RESULT = "seed", "result"  # placeholders that attnlab sets
MAX_METRIC_NAME = 250  # characters that MLflow accepts
CURVE = "curve/"  # begins the names of the curves that a program prints
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,49}")
QUOTED = re.compile(r"""\\.|'[^']*'|"(\\.|[^"])*\"""", re.DOTALL)  # part of a command line
OPERATORS = re.compile(r"&&|\|\||[;&|<>]+")  # of a shell
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Columns of `attnlab.load_runs` that every run has: an axis of such a name would hide one, or be hidden by it.
COLUMNS = frozenset(
    {"run_id", "name", "cell", "study", "state", "reason", "fingerprint", "attempt", "phase", "trial", "params", "test"}
    | {"started", "seconds", "folder", "device", "versions", "commit", "matched", "data_notes", "data_sizes", "left_out"}
    | {"command", "files", "env", "wall_seconds", "host_peak_mib"}
)
UNKNOWN_DATA = "on validation data, which attnlab does not know of a program; list the values in the grid"
# Parts of a study that have no meaning for a program -> the reason.
UNSUPPORTED = {
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
}


class CommandConfig(Section):
    """Everything that determines the numbers of one run of a program.

    Attributes:
        init: a program starts from the weights of no other run.
    """

    command: str = Field(min_length=1, description="the command line with its placeholders")
    pattern: str | None = Field(default=None, description="a regular expression whose last match in stdout is the metric")
    values: dict[str, Value] = Field(default={}, description="placeholder -> value")
    env: dict[str, str] = Field(default={}, description="environment variables that the study sets")
    files: dict[str, str] = Field(default={}, description="files that the results depend on -> digests, as recorded")
    listing: dict[str, str] = Field(default={}, exclude=True, description="all files that the results depend on -> digests")
    seed: int = Field(default=0, ge=0)
    folder: str = Field(default="", description="the folder of the study, where the command runs")

    init: ClassVar[None] = None

    @property
    def arguments(self) -> list[str]:
        """The words of the command line with their values; words that are empty with them are left out."""
        return self.words()

    def words(self, result: str = "result.json") -> list[str]:
        """Return `arguments` with the path of the file that ``{result}`` names."""
        values = {name: _shown(value) for name, value in {**self.values, SEED: self.seed, RESULT: result}.items()}
        words = ["".join(before + values.get(name, "") for before, name in _parts(word)) for word in shlex.split(self.command)]
        return [word for word in words if word]

    @property
    def has_result_file(self) -> bool:
        """Whether the command has a placeholder for the file of its result."""
        return RESULT in _placeholders(self.command)

    def fingerprint(self) -> str:
        """Return 16 hex digits over the command line with its values, the variables, and the contents of the files.

        The folder does not count, so that a study can be moved, and neither does attnlab's version.
        """
        fields = {"arguments": self.arguments, "env": self.env, "files": self.files, "seed": self.seed}
        fields |= {} if self.pattern is None else {"pattern": self.pattern}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """Return the configuration as JSON, without its folder, which exists on one machine only."""
        return self.model_dump_json(indent=2, exclude={"folder"})


def _shown(value: Value) -> str:
    """Return a value as it stands on a command line: numbers as Python prints them, ``true`` and ``false``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parts(word: str) -> Iterator[tuple[str, str]]:
    """Yield each placeholder of a word, "" after the last one, with the text before it.

    Raises:
        ValueError: a single brace, or a placeholder with more than a name.
    """
    for before, name, spec, conversion in string.Formatter().parse(word):
        if spec or conversion or name == "":
            raise ValueError(f"expected only a name in a placeholder, such as {{seed}}, got it in {word!r}")
        yield before, name or ""


def _placeholders(command: str) -> set[str]:
    return {name for word in shlex.split(command) for _, name in _parts(word) if name}


def metric_of(study: StudyConfig) -> tuple[str, str]:
    """Return the metric of a study of a program, and its direction."""
    assert isinstance(study.metric, dict)
    return study.metric["name"], study.metric["direction"]


def base_values(study: StudyConfig) -> dict[str, Value]:
    """Return the values of the base, with the assignments over it."""
    return {**study.base, **study.sets}


def level_values(study: StudyConfig, axis: str, index: int) -> dict[str, Value]:
    """Return placeholder -> value of one value of an axis; a named level has several."""
    values = study.grid[axis]
    return {axis: values[index]} if isinstance(values, list) else values[list(values)[index]]


def command_config(study: StudyConfig, chosen: Mapping[str, int]) -> CommandConfig:
    """Return the configuration of a cell, without the digests of its files.

    Args:
        chosen: axis -> index of its value.
    """
    assert study.command is not None
    values = base_values(study)
    for axis, index in chosen.items():
        values |= level_values(study, axis, index)
    env = {name: _shown(value) for name, value in study.env.items()}
    folder = str(real_path(study.folder))
    return CommandConfig(command=study.command, pattern=study.pattern, values=values, env=env, folder=folder)


# ---------------------------------------------------------------- checks


def check_training(study: StudyConfig) -> None:
    """Raise ``UserError`` when a study of attnlab's training has a part that belongs to a command."""
    for key in ("files", "env", "pattern"):
        if key in study.model_fields_set:
            raise UserError(f"expected {key!r} only together with 'command'", study.where(key, key=True))


def check_command(study: StudyConfig) -> None:
    """Check a study of a program: its parts, its values, and that each of them has a placeholder.

    Raises:
        UserError: the first mistake, with its place.
    """
    for part, reason in UNSUPPORTED.items():
        if part in study.model_fields_set and getattr(study, part):
            raise UserError(f"expected no {part!r} in a study with 'command': {reason}", study.where(part, key=True))
    _check_metric(study)
    for name, value in study.base.items():
        _check_name(study, name, ("base", name), what="base")
        _check_value(study, value, ("base", name), what=f"base.{name}")
    _check_sets(study)
    _check_grid(study)
    _check_env(study)
    _check_placeholders(study)
    _check_pattern(study)


def _check_metric(study: StudyConfig) -> None:
    form = "{name: accuracy, direction: max}"
    if study.metric is None:
        raise UserError(f"expected the key 'metric' together with 'command', such as {form}, got none", study.where("command"))
    place = study.where("metric")
    if not isinstance(study.metric, dict) or study.metric.keys() != {"name", "direction"}:
        raise UserError(f"metric: expected the name and the direction, such as {form}, got {kind(study.metric)}", place)
    name, direction = metric_of(study)
    if direction not in ("min", "max"):
        message = f"metric.direction: expected min or max{nearest(direction, ['min', 'max'])}, got {kind(direction)}"
        raise UserError(message, study.where("metric", "direction"))
    if reason := describe_bad_name(result_name(name)):
        message = f"metric.name: expected a name that can be recorded, got {name[:40]!r}: {reason}"
        raise UserError(message, study.where("metric", "name"))
    if name != result_name(name):
        message = f"metric.name: expected letters, digits, '_', '.' and '-', got {kind(name)}: other characters of a name that "
        raise UserError(f"{message}the program prints become '_': write {result_name(name)}", study.where("metric", "name"))
    if name in COLUMNS or name == SEED or name in _sources(study):
        message = f"metric.name: expected another name, because this is a placeholder or a column of the runs, got {name!r}"
        raise UserError(message, study.where("metric", "name"))
    if study.margin is not None and not isinstance(study.margin, float):
        message = "margin: expected a number in the unit of the metric, because attnlab does not know the steps of a program"
        raise UserError(f"{message}, got {kind(study.margin)}", study.where("margin"))


def result_name(name: str) -> str:
    """Return the name under which a printed result is recorded: MLflow accepts few other characters."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def curve_name(name: str) -> str:
    """Return the name under which the points of a printed curve are recorded, in which a slash makes a group."""
    return CURVE + re.sub(r"[^A-Za-z0-9_./-]", "_", name)


def describe_bad_name(name: str) -> str:
    """Return the reason why MLflow does not accept the name of a metric; "" if it does."""
    if not name or name == CURVE:
        return "its name is empty"
    if len(name) > MAX_METRIC_NAME:
        return f"its name has more than {MAX_METRIC_NAME} characters"
    path = posixpath.normpath(name)
    if path != name or path == "." or path.startswith(("..", "/")):
        return "its name reads like a path with empty, '.' or '..' parts"
    return ""


def _check_name(study: StudyConfig, name: str, loc: Loc, *, what: str) -> None:
    place = study.where(*loc, key=True)
    if name == SEED:
        raise UserError(f"{what}: expected 'seeds: [...]' at the top level, got 'seed'", place)
    if name == RESULT:
        raise UserError(f"{what}: expected another name, because {{result}} is the file of a program's result", place)
    if not NAME.fullmatch(name):
        message = f"{what}: expected a name of letters, digits, '_', '-' and '.' that begins with a letter"
        raise UserError(f"{message}, got {kind(name)}", place)


def _check_value(study: StudyConfig, value: Any, loc: Loc, *, what: str) -> None:
    if not isinstance(value, Value):
        raise UserError(f"{what}: expected a number, a text, true or false, got {kind(value)}", study.where(*loc))
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(
            f"{what}: expected a finite number, got {value}: quote it if the program reads it as text", study.where(*loc)
        )
    if isinstance(value, str) and "\0" in value:
        raise UserError(f"{what}: expected no null character, which a command line cannot hold", study.where(*loc))


def _check_sets(study: StudyConfig) -> None:
    for name, value in study.sets.items():
        place = assignment(name, value)
        for axis in study.grid:
            if name in _placeholders_of(study, axis):
                raise UserError(f"the axis {axis!r} of the grid sets this value in each cell: select cells with --only", place)
        if name not in study.base:
            known = list(study.base)
            expectation = f"expected one of {', '.join(known)}" if known else "the base is empty"
            raise UserError(f"{name!r} is not a value of the base{nearest(name, known)}: {expectation}", place)
        if not isinstance(value, Value):
            raise UserError(f"base.{name}: expected a number, a text, true or false, got {kind(value)}", place)


def _check_grid(study: StudyConfig) -> None:
    if not study.grid:
        message = "expected the key 'grid' together with 'command', such as {lr: [0.001, 0.01]}, got none"
        raise UserError(message, study.where("command"))
    for axis, values in study.grid.items():
        _check_name(study, axis, ("grid", axis), what="grid")
        if axis in COLUMNS:
            message = f"grid: expected another name for the axis {axis!r}, which names a column of the runs"
            raise UserError(message, study.where("grid", axis, key=True))
        for index in range(len(values)):
            key = index if isinstance(values, list) else list(values)[index]
            _check_level(study, axis, key)
        _check_distinct(study, axis)
        _check_overlap(study, axis)


def _check_level(study: StudyConfig, axis: str, key: str | int) -> None:
    """Check a value of an axis, at this index or under this name."""
    values: Any = study.grid[axis]
    if isinstance(values, list):
        value = values[int(key)]
        _check_value(study, value, ("grid", axis, key), what=f"grid.{axis}")
        if value == "":
            message = f"grid.{axis}: expected a text that names the cell, got an empty one: give the levels names, such as "
            raise UserError(f"{message}{axis}: {{off: {{{axis}: ''}}, on: {{{axis}: ...}}}}", study.where("grid", axis, key))
        return
    place, level = study.where("grid", axis, key), values[key]
    if not re.fullmatch(r"[^\s,=]{1,50}", str(key)):
        message = f"grid.{axis}: expected the name of a level without spaces, ',' and '=', got {kind(key)}"
        raise UserError(message, study.where("grid", axis, key, key=True))
    if not isinstance(level, dict) or not level:
        message = f"grid.{axis}.{key}: expected the values that this level sets, such as {{lr: 0.001}}, got {kind(level)}"
        raise UserError(message, place)
    for name, value in level.items():
        _check_name(study, name, ("grid", axis, key, name), what=f"grid.{axis}.{key}")
        _check_value(study, value, ("grid", axis, key, name), what=f"grid.{axis}.{key}.{name}")


def _check_distinct(study: StudyConfig, axis: str) -> None:
    """Check that no two values of an axis make the same command."""
    base, values = base_values(study), study.grid[axis]
    names = _placeholders_of(study, axis)
    seen: dict[str, str] = {}
    for index in range(len(values)):
        key = index if isinstance(values, list) else list(values)[index]
        level = {**base, **level_values(study, axis, index)}
        shown = text(values[index]) if isinstance(values, list) else str(key)
        first = seen.setdefault(canonical({name: level.get(name) for name in names}), shown)
        if len(seen) <= index:
            again = f"{shown} again" if first == shown else f"{shown}, which sets the same as {first}"
            raise UserError(f"grid.{axis}: expected each value once, got {again}", study.where("grid", axis, key))
        if missing := [name for name in names if name not in level]:
            message = f"grid.{axis}.{key}: expected a value of {missing[0]!r}, which other levels set, here or in the base"
            raise UserError(message, study.where("grid", axis, key))


def _check_overlap(study: StudyConfig, axis: str) -> None:
    """Check that no other axis sets one of the placeholders of an axis."""
    for other in study.grid:
        for name in _placeholders_of(study, axis) if other != axis else ():
            if name in _placeholders_of(study, other):
                message = f"grid.{axis}: expected no {name!r}, because the axis {other!r} sets it"
                raise UserError(message, study.where("grid", axis, key=True))


def _placeholders_of(study: StudyConfig, axis: str) -> list[str]:
    """Return the placeholders that the values of an axis set; none of a level that is not a mapping."""
    values = study.grid[axis]
    if isinstance(values, list):
        return [axis]
    return list(dict.fromkeys(name for level in values.values() if isinstance(level, dict) for name in level))


def _sources(study: StudyConfig) -> dict[str, Loc]:
    """Return each placeholder that the study has a value for -> the location of its key."""
    sources: dict[str, Loc] = {name: ("base", name) for name in study.base}
    for axis, values in study.grid.items():
        if isinstance(values, list):
            sources[axis] = ("grid", axis)
        else:
            sources |= {name: ("grid", axis, key, name) for key, level in values.items() for name in level}
    return sources


def _check_env(study: StudyConfig) -> None:
    for name, value in study.env.items():
        if not VARIABLE.fullmatch(name):
            message = f"env: expected the name of a variable, such as OMP_NUM_THREADS, got {kind(name)}"
            raise UserError(message, study.where("env", name, key=True))
        _check_value(study, value, ("env", name), what=f"env.{name}")


def _check_placeholders(study: StudyConfig) -> None:
    """Check that the command has a placeholder for the seed and for each value, and no other."""
    assert study.command is not None
    place = study.where("command")
    if operator := OPERATORS.search(QUOTED.sub("", study.command)):
        message = (
            f"command: expected a program and its arguments, got {operator[0]!r}, which only a shell understands: quote it, "
        )
        raise UserError(f"{message}or use sh -c '...'", place)
    try:
        words = shlex.split(study.command)
    except ValueError as error:
        message = f"command: expected a command line that can be split into words, got {study.command!r} ({error})"
        raise UserError(message, place) from None
    try:
        used = _placeholders(study.command)
    except ValueError as error:
        raise UserError(f"command: {error}; a brace of the command itself is doubled: {{{{", place) from None
    if not words:
        raise UserError("command: expected a program and its arguments, got an empty text", place)
    sources = _sources(study)
    if SEED not in used:
        message = "command: expected {seed} in it: without it, the runs of a cell would be one run repeated"
        raise UserError(message, place)
    for name in sorted(used - sources.keys() - {SEED, RESULT}):
        known = [*sources, SEED, RESULT]
        message = f"command: expected placeholders that the base or the grid sets, got {{{name}}}{nearest(name, known)}"
        raise UserError(message, place)
    for name, loc in sources.items():
        if name not in used:
            message = f"{loc[0]}: expected {{{name}}} in the command, which does not use it"
            raise UserError(message, study.where(*loc, key=True))


def _check_pattern(study: StudyConfig) -> None:
    if study.pattern is None:
        return
    place = study.where("pattern")
    assert study.command is not None
    if RESULT in _placeholders(study.command):
        raise UserError("pattern: expected either a pattern or {result} in the command, got both", place)
    try:
        groups = re.compile(study.pattern).groups
    except re.error as error:
        raise UserError(f"pattern: expected a regular expression, got {study.pattern!r} ({error})", place) from None
    if groups != 1:
        message = f"pattern: expected one group, which is the number, as in 'accuracy: (\\S+)', got {groups} groups"
        raise UserError(message, place)
