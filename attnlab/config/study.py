"""A study file: read strictly, checked as far as that needs no registry. ``cells`` multiplies its grid."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, field_validator

from attnlab.config.search import ConfirmConfig, RunLimits, SearchConfig
from attnlab.config.types import Section, expected
from attnlab.config.yaml import Loc, SourceMap
from attnlab.errors import UserError, nearest


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
    reference_scores: bool | list[str] = Field(
        default=True, description="the task's trivial baselines: all of them, none (false), or those named"
    )
    retries: int = Field(default=1, ge=0, description="how often a failed run is tried again")

    _path: Path | None = PrivateAttr(None)
    _origin: "_Origin" = PrivateAttr(default_factory=lambda: _Origin(SourceMap(), {}))
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


@dataclass(frozen=True)
class _Origin:
    """Where each part of a study comes from: the file, whose keys are ``top``, or an assignment over it."""

    places: SourceMap
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


def check_axis(study: StudyConfig, axis: str, *, place: str) -> None:
    """Raise unless the study's grid has that axis."""
    if axis not in study.grid:
        known = list(study.grid)
        expectation = f"expected one of {', '.join(known)}" if known else "the study has no grid"
        raise UserError(f"{axis!r} is no axis of the grid{nearest(axis, known)}: {expectation}", place)
