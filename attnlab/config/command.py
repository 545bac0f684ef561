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
from attnlab.config.checks import COLUMNS, check_level_name
from attnlab.config.study import StudyConfig
from attnlab.config.types import Section, canonical, text
from attnlab.config.yaml import Loc, assignment, dotted, kind
from attnlab.errors import UserError, nearest

Value = str | int | float | bool

SEED, RESULT = "seed", "result"  # placeholders that attnlab sets
MAX_METRIC_NAME = 250  # characters that MLflow accepts
CURVE = "curve/"  # begins the names of the curves that a program prints
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,49}")
QUOTED = re.compile(r"""\\.|'[^']*'|"(\\.|[^"])*\"""", re.DOTALL)  # part of a command line
OPERATORS = re.compile(r"&&|\|\||[;&|<>]+")  # of a shell
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
    listing: dict[str, tuple[str, str]] = Field(
        default={}, exclude=True, description="all files that the results depend on -> digests of the file and of its code"
    )
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


def check_command(study: StudyConfig) -> None:
    """Check a study of a program: its metric, its values, and that each of them has a placeholder.

    Raises:
        UserError: the first mistake, with its place.
    """
    if not study.grid:
        message = "expected the key 'grid' together with 'command', such as {lr: [0.001, 0.01]}, got none"
        raise UserError(message, study.where("command"))
    for axis, levels in study.grid.items():
        if isinstance(levels, dict):
            _check_levels(study, axis, levels)
    for loc, value in _values(study):
        _check_value(study, value, loc)
    sources = _sources(study)
    for name, loc in {**{axis: ("grid", axis) for axis in study.grid}, **sources}.items():
        _check_name(study, name, loc)
    for axis in study.grid:
        if axis in COLUMNS:
            message = f"grid: expected another name for the axis {axis!r}, which names a column of the runs"
            raise UserError(message, study.where("grid", axis, key=True))
        _check_distinct(study, axis)
    _check_sets(study)
    _check_metric(study, sources)
    _check_placeholders(study, sources)


def _check_metric(study: StudyConfig, sources: Mapping[str, Loc]) -> None:
    form, metric = "{name: accuracy, direction: max}", study.metric
    if not isinstance(metric, dict) or metric.keys() != {"name", "direction"}:
        place = study.where("metric" if metric is not None else "command")
        raise UserError(f"metric: expected the name and the direction, min or max, such as {form}, got {kind(metric)}", place)
    if (direction := metric["direction"]) not in ("min", "max"):
        message = f"metric.direction: expected min or max{nearest(direction, ['min', 'max'])}, got {kind(direction)}"
        raise UserError(message, study.where("metric", "direction"))
    name, place = metric["name"], study.where("metric", "name")
    if reason := describe_bad_name(name):
        raise UserError(f"metric.name: expected a name that can be recorded, got {name[:40]!r}: {reason}", place)
    if name in COLUMNS or name == SEED or name in sources:
        message = f"metric.name: expected another name, because this is a placeholder or a column of the runs, got {name!r}"
        raise UserError(message, place)
    if isinstance(study.margin, dict):
        message = f"margin: expected a number in the unit of the metric, got {kind(study.margin)}"
        raise UserError(message, study.where("margin"))


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
    if name not in (result_name(name), curve_name(name.removeprefix(CURVE))):
        return f"other characters than letters, digits, '_', '.' and '-' become '_': write {result_name(name)}"
    return ""


def _check_name(study: StudyConfig, name: str, loc: Loc) -> None:
    own = {SEED: "write 'seeds: [...]' at the top level", RESULT: "{result} is the file of a program's result"}
    if name in own or not NAME.fullmatch(name):
        reason = own.get(name, "it should begin with a letter and have letters, digits, '_', '-' and '.'")
        message = f"{dotted(loc[:-1])}: expected another name than {kind(name)}: {reason}"
        raise UserError(message, study.where(*loc, key=True))


def _values(study: StudyConfig) -> Iterator[tuple[Loc, Any]]:
    """Yield each value that a study sets for its program, with its location."""
    yield from ((("base", name), value) for name, value in study.base.items())
    yield from ((("env", name), value) for name, value in study.env.items())
    for axis, values in study.grid.items():
        if isinstance(values, list):
            yield from ((("grid", axis, i), value) for i, value in enumerate(values))
        else:
            yield from ((("grid", axis, level, name), value) for level in values for name, value in values[level].items())


def _check_value(study: StudyConfig, value: Any, loc: Loc) -> None:
    what, place = dotted(loc), study.where(*loc)
    if not isinstance(value, Value) or (isinstance(value, float) and not math.isfinite(value)):
        raise UserError(f"{what}: expected a finite number, a text, true or false, got {kind(value)}", place)
    if isinstance(value, str) and "\0" in value:
        raise UserError(f"{what}: expected no null character, which a command line cannot hold", place)
    if loc[0] == "env" and not VARIABLE.fullmatch(str(loc[1])):
        raise UserError(f"env: expected the name of a variable, such as OMP_NUM_THREADS, got {kind(loc[1])}", place)
    if loc[0] == "grid" and len(loc) == 3 and value == "":
        levels = f"{loc[1]}: {{off: {{{loc[1]}: ''}}, on: {{{loc[1]}: ...}}}}"
        raise UserError(
            f"{what}: expected a text that names the cell, got an empty one: name the levels, such as {levels}", place
        )


def _check_sets(study: StudyConfig) -> None:
    for name, value in study.sets.items():
        place = assignment(name, value)
        for axis in study.grid:
            if name in _placeholders_of(study, axis):
                raise UserError(f"the axis {axis!r} of the grid sets this value in each cell: select cells with --only", place)
        if name not in study.base:
            expectation = f"expected one of {', '.join(study.base)}" if study.base else "the base is empty"
            raise UserError(f"{name!r} is not a value of the base{nearest(name, study.base)}: {expectation}", place)
        if not isinstance(value, Value):
            raise UserError(f"base.{name}: expected a number, a text, true or false, got {kind(value)}", place)


def _check_levels(study: StudyConfig, axis: str, levels: dict[str, Any]) -> None:
    """Check that named levels have names for cells, and set values of the same placeholders."""
    for name, level in levels.items():
        check_level_name(study, axis, name)
        if not isinstance(level, dict) or not level:
            message = f"grid.{axis}.{name}: expected the values that this level sets, such as {{lr: 0.001}}, got {kind(level)}"
            raise UserError(message, study.where("grid", axis, name))
    for name, level in levels.items():
        for missing in (other for other in _placeholders_of(study, axis) if other not in {**base_values(study), **level}):
            message = f"grid.{axis}.{name}: expected a value of {missing!r}, which other levels set, here or in the base"
            raise UserError(message, study.where("grid", axis, name))


def _check_distinct(study: StudyConfig, axis: str) -> None:
    """Check that no two values of an axis make the same command, and that no other axis sets a placeholder of it."""
    names, keys = _placeholders_of(study, axis), list(study.axes[axis])
    seen: set[str] = set()
    for index, key in enumerate(keys):
        level = {**base_values(study), **level_values(study, axis, index)}
        if (same := canonical({name: level.get(name) for name in names})) in seen:
            place = study.where("grid", axis, key if isinstance(study.grid[axis], dict) else index)
            raise UserError(f"grid.{axis}: expected each value once, got {text(key)}, which sets the same as another", place)
        seen.add(same)
    for other in study.grid:
        for name in set(names).intersection(_placeholders_of(study, other)) if other != axis else ():
            message = f"grid.{axis}: expected no {name!r}, because the axis {other!r} sets it"
            raise UserError(message, study.where("grid", axis, key=True))


def _placeholders_of(study: StudyConfig, axis: str) -> list[str]:
    """Return the placeholders that the values of an axis set."""
    values = study.grid[axis]
    return [axis] if isinstance(values, list) else list(dict.fromkeys(name for level in values.values() for name in level))


def _sources(study: StudyConfig) -> dict[str, Loc]:
    """Return each placeholder that the study has a value for -> the location of its key."""
    sources: dict[str, Loc] = {name: ("base", name) for name in study.base}
    for axis, values in study.grid.items():
        if isinstance(values, list):
            sources[axis] = ("grid", axis)
        else:
            sources |= {name: ("grid", axis, key, name) for key, level in values.items() for name in level}
    return sources


def _check_placeholders(study: StudyConfig, sources: Mapping[str, Loc]) -> None:
    """Check that the command has a placeholder for the seed and for each value, and no other; check its pattern."""
    assert study.command is not None
    place, known = study.where("command"), [*sources, SEED, RESULT]
    if operator := OPERATORS.search(QUOTED.sub("", study.command)):
        message = f"command: expected a program and its arguments, got {operator[0]!r}, which only a shell understands"
        raise UserError(f"{message}: quote it, or use sh -c '...'", place)
    try:
        used, words = _placeholders(study.command), shlex.split(study.command)
    except ValueError as error:
        message = f"command: expected words and placeholders such as {{seed}}, with braces of its own doubled: {error}"
        raise UserError(message, place) from None
    if not words or SEED not in used:
        message = "command: expected a program with {seed}: without it, the runs of a cell would be one run repeated"
        raise UserError(message, place)
    for name in sorted(used - {*known}):
        message = f"command: expected placeholders that the base or the grid sets, got {{{name}}}{nearest(name, known)}"
        raise UserError(message, place)
    for name, loc in sources.items():
        if name not in used:
            message = f"{loc[0]}: expected {{{name}}} in the command, which does not use it"
            raise UserError(message, study.where(*loc, key=True))
    if study.pattern is not None:
        _check_pattern(study.pattern, has_result=RESULT in used, place=study.where("pattern"))


def _check_pattern(pattern: str, *, has_result: bool, place: str) -> None:
    if has_result:
        raise UserError("pattern: expected either a pattern or {result} in the command, got both", place)
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise UserError(f"pattern: expected a regular expression, got {pattern!r} ({error})", place) from None
    if groups != 1:
        message = f"pattern: expected one group, which is the number, as in 'accuracy: (\\S+)', got {groups} groups"
        raise UserError(message, place)
