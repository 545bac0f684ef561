"""A study file: read strictly, checked as far as that needs no registry. ``cells`` multiplies its grid."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, field_validator

from attnlab.config import RunConfig, set_path
from attnlab.errors import UserError, nearest
from attnlab.fields import Section, expected
from attnlab.grid.axes import Label, canonical, labels, pick, text
from attnlab.grid.paths import check_path, check_value
from attnlab.grid.problems import FILLED_IN, check_part, field_names, unknown_key, validate
from attnlab.grid.searchfile import ConfirmConfig, RunLimits, SearchConfig, check_search
from attnlab.grid.yamlfile import Loc, Places, read
from attnlab.redact import holds_login, redact


class Skip(Section):
    """Cells to leave out, and why."""

    where: dict[str, Any] = Field(min_length=1, description="axis -> value, or a list of values")
    because: str = Field(min_length=1, description="the reason, which the plan and the report repeat")


class StudyConfig(Section):
    """One study file. After reading, ``baseline`` maps axes to labels, as the axes of a cell do."""

    study: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        max_length=100,
        description="its name: letters, digits, _ - .",
    )
    imports: list[str] = Field(default=[], description="Python files to import first, relative to this file")
    base: dict[str, Any] = Field(default={}, description="what every cell shares")
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default={}, min_length=1, description="axis (a dotted path of the configuration) -> values"
    )
    skip: list[Skip] = []
    seeds: list[Annotated[int, Field(ge=0)]] = Field(
        default=[0], min_length=1, description="of a study without a search; with one: confirm.seeds"
    )
    search: SearchConfig | None = Field(default=None, description="one search for each cell, then confirm")
    confirm: ConfirmConfig | None = Field(default=None, description="needed with search, and only with it")
    run: RunLimits = RunLimits()
    baseline: dict[str, Any] | None = Field(default=None, description="the cells that the others are compared with")
    metric: str | None = Field(default=None, description="null: the task's own")
    margin: float | None = Field(default=None, gt=0, description="the difference that still counts as none")
    baselines: bool | list[str] = Field(
        default=True, description="the task's trivial baselines: all of them, none (false), or those named"
    )
    retries: int = Field(default=1, ge=0, description="how often a failed run is tried again")

    _path: Path | None = PrivateAttr(None)
    _origin: "_Origin" = PrivateAttr(default_factory=lambda: _Origin(Places(), {}))
    _sets: dict[str, Any] = PrivateAttr(default_factory=dict)

    @field_validator("study", mode="after")
    @classmethod
    def _not_mlflows(cls, value: str) -> str:
        if value == "Default":
            raise expected("another name than that of MLflow's own experiment")
        return value

    @field_validator("baseline", mode="after")
    @classmethod
    def _some_baseline(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value == {}:
            raise expected("at least one axis, such as {variant: dense}")
        return value

    @property
    def path(self) -> Path | None:
        """The file it was read from; None of a study given as a dict."""
        return self._path

    @property
    def folder(self) -> Path:
        """What the paths in it are relative to: the file's folder, of a dict the working directory."""
        return self._path.parent if self._path else Path()

    @property
    def sets(self) -> dict[str, Any]:
        """The assignments over the base that it was read with."""
        return self._sets

    def where(self, *loc: str | int, key: bool = False) -> str:
        """The place of something in the file: ``study.where("grid", "variant", 1)`` -> ``"wo.yaml:12:5"``.

        Of what an assignment says over the study, that assignment.
        """
        return self._origin.at(loc, key=key)

    @property
    def reported_seeds(self) -> list[int]:
        """The seeds of the runs that are reported: of a searched study those of ``confirm``."""
        return self.seeds if self.confirm is None else self.confirm.seeds


def read_study(source: str | Path | dict[str, Any], *, sets: dict[str, Any] | None = None) -> StudyConfig:
    """Read a study file, or take one that is a dict, and check everything that needs no registry.

    Args:
        sets: dotted path -> value, over the base; ``seeds``, ``search.trials`` and the like over the study itself.

    Raises:
        UserError: the first mistake, with ``file:line:column``.
    """
    if isinstance(source, dict):
        data, places, path = dict(source), Places(), None
    else:
        path = Path(source)
        data, places = read(path, what="a study")
    own = set(StudyConfig.model_fields) - {"base", "grid", "skip", "imports"}
    over_study = {path: value for path, value in (sets or {}).items() if path.partition(".")[0] in own}
    origin = _Origin(places, over_study, frozenset(data))
    _check_secrets(data, where=places.at)
    for key, value in (sets or {}).items():
        _check_secrets(value, where=lambda loc, key=key: f"--set {key}")
    _check_top(data, where=places.at)
    study = validate(StudyConfig, _over(data, over_study), where=origin.at)
    study._path, study._origin = path, origin
    study._sets = {key: value for key, value in (sets or {}).items() if key not in over_study}
    seen: set[int] = set()
    for i, seed in enumerate(study.seeds):
        if seed in seen:
            raise UserError(f"seeds: expected each seed once, got {seed} again", study.where("seeds", i))
        seen.add(seed)
    _check_base(study)
    _check_grid(study)
    check_search(study)
    _check_sets(study)
    _check_skip(study)
    return study if study.baseline is None else _with_baseline(study)


def _check_top(data: dict[str, Any], *, where: Callable[..., str]) -> None:
    """Refuse a field of a run where only those of a study may stand: the nearest name of these would lead astray."""
    for key in data:
        if key in field_names(RunConfig, ()):
            message = f"expected {key!r} under base: (or its values under grid:), got it at the top"
            raise UserError(message, where((key,), key=True))


def _over(data: dict[str, Any], assignments: dict[str, Any]) -> dict[str, Any]:
    """The study with the assignments over it: a key replaces what it had, a dotted path sets a part of it."""
    fields = {**data, **{path: value for path, value in assignments.items() if "." not in path}}
    for path, value in assignments.items():
        if "." in path:
            set_path(fields, path, value)
    return fields


@dataclass(frozen=True)
class _Origin:
    """Where each part of a study comes from: the file, whose keys are ``top``, or an assignment over it."""

    places: Places
    assignments: dict[str, Any]
    top: frozenset[str] = frozenset()

    def at(self, loc: Loc, *, key: bool = False) -> str:
        """The place of ``loc``: what is most specific has the last word."""
        said = [".".join(map(str, loc[:length])) for length in range(len(loc), 0, -1)]
        if loc and loc[0] not in self.top:  # a section that only assignments speak of
            said += [path for path in self.assignments if path.startswith(f"{loc[0]}.")]
        path = next((path for path in said if path in self.assignments), None)
        return self.places.at(loc, key=key) if path is None else assignment(path, self.assignments[path])


def assignment(key: str, value: Any) -> str:
    """How an assignment is called in a message: as it was typed."""
    return f"{key}={value if isinstance(value, str) else json.dumps(value)}"


def _check_secrets(value: Any, *, where: Callable[..., str], loc: Loc = ()) -> None:
    """Refuse a password: what a study holds is written into every record of it."""
    if isinstance(value, str) and holds_login(value):
        message = "expected an address without a password, which every record would repeat: read it from the environment"
        raise UserError(f"{message}, got {redact(value)!r}", where(loc))
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        _check_secrets(item, where=where, loc=(*loc, key))


def _check_base(study: StudyConfig) -> None:
    if "seed" in study.base:
        place = study.where("base", "seed", key=True)
        raise UserError("base: expected 'seeds: [...]' at the top of the study, got 'seed'", place)
    for key in FILLED_IN:
        if key in study.base:
            message = unknown_key(key, field_names(RunConfig, ()), ("base",))
            raise UserError(message, study.where("base", key, key=True))

    def where(loc: Loc, *, key: bool = False) -> str:
        return study.where("base", *loc, key=key)

    check_part(RunConfig, study.base, prefix=("base",), where=where)


def _check_grid(study: StudyConfig) -> None:
    for axis, values in study.grid.items():
        check_path(axis, place=study.where("grid", axis, key=True))
        seen: set[str] = set()
        for i, value in enumerate(values):

            def where(loc: Loc, *, key: bool = False, at: Loc = ("grid", axis, i)) -> str:
                return study.where(*at, *loc, key=key)

            check_value(axis, value, where=where)
            if canonical(value) in seen:
                message = f"grid.{axis}: expected each value once, got {text(value)} again"
                raise UserError(message, study.where("grid", axis, i))
            seen.add(canonical(value))


def _check_sets(study: StudyConfig) -> None:
    for path, value in study.sets.items():
        place = assignment(path, value)
        check_path(path, place=place)
        check_value(path, value, where=lambda loc, key=False, place=place: place)
        if study.search is not None and path in study.search.space:
            raise UserError("the search sets it in each trial: its range stands in search.space", place)
        for axis in study.grid:
            if path == axis or path.startswith(f"{axis}."):
                raise UserError(f"the axis {axis!r} of the grid sets it in each cell: choose with --only", place)


def _check_skip(study: StudyConfig) -> None:
    for i, skip in enumerate(study.skip):
        for axis, wanted in skip.where.items():
            loc = ("skip", i, "where", axis)
            check_axis(study, axis, place=study.where(*loc, key=True))
            if isinstance(wanted, list) and not wanted:
                raise UserError(f"{axis}: expected at least one value, got an empty list", study.where(*loc))
            for n, item in enumerate(wanted if isinstance(wanted, list) else [wanted]):
                place = study.where(*loc, n) if isinstance(wanted, list) else study.where(*loc)
                pick(axis, study.grid[axis], item, place=place)


def check_axis(study: StudyConfig, axis: str, *, place: str) -> None:
    """Raise unless the study's grid has that axis."""
    if axis not in study.grid:
        known = list(study.grid)
        expectation = f"expected one of {', '.join(known)}" if known else "the study has no grid"
        raise UserError(f"{axis!r} is no axis of the grid{nearest(axis, known)}: {expectation}", place)


def _with_baseline(study: StudyConfig) -> StudyConfig:
    """The study with its baseline in the labels of the axes."""
    found: dict[str, Label] = {}
    for axis, wanted in (study.baseline or {}).items():
        check_axis(study, axis, place=study.where("baseline", axis, key=True))
        place = study.where("baseline", axis)
        which = pick(axis, study.grid[axis], wanted, place=place)
        named = [labels(study.grid[axis])[i] for i in which]
        if len(named) > 1:
            raise UserError(
                f"{axis}: expected one value, got {text(wanted)}, which names {', '.join(map(str, named))}",
                place,
            )
        found[axis] = named[0]
    return study.model_copy(update={"baseline": found})
