"""The typed content of a study file. ``reader`` reads and checks one, ``grid`` expands it into cells."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from attnlab.config.design import Design
from attnlab.config.question import ClaimConfig, Estimand, FurtherQuestion, Margin, Metric
from attnlab.config.search import ConfirmConfig, RunLimits, SearchConfig, SweepConfig
from attnlab.config.types import NAMED_SCHEMA, Count, Section, StudySeeds, expected, with_named_seeds
from attnlab.config.yaml import Loc, SourceMap, assignment
from attnlab.errors import UserError

STUDY_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"  # a name of files and folders, too


def _axis(value: Any) -> Any:
    if not isinstance(value, list | dict):
        raise expected("a list")
    if not value:
        raise expected("at least one value in the list")
    return value


Axis = Annotated[
    list[Any] | dict[str, Any],
    BeforeValidator(_axis),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "minItems": 1},
                {"type": "object", "minProperties": 1, "additionalProperties": {"type": "object", "minProperties": 1}},
            ]
        }
    ),
]


def _factor_levels(value: Any) -> Any:
    if not isinstance(value, list | dict):
        raise expected("a list of values, or a mapping of the fields that are set when the factor is on")
    return _axis(value)


_LEVELS = {"anyOf": [{"type": "array", "minItems": 2}, {"type": "object", "minProperties": 1}]}
FactorLevels = Annotated[list[Any] | dict[str, Any], BeforeValidator(_factor_levels), WithJsonSchema(_LEVELS)]

Factors = Annotated[
    dict[str, FactorLevels],
    WithJsonSchema(
        {"anyOf": [{"type": "object", "minProperties": 1}, {"type": "array", "minItems": 1, "items": NAMED_SCHEMA}]}
    ),
]


def _baseline(value: Any) -> Any:
    for item in value if isinstance(value, list) else [] if value is None else [value]:
        if not isinstance(item, dict):
            raise expected("a mapping of keys, such as {variant: dense}, or a list of them")
        if not item:
            raise expected("at least one axis, such as {variant: dense}")
    if value == []:
        raise expected("at least one value in the list")
    return value


_AXIS_VALUES = {"type": "object", "minProperties": 1}
Baseline = Annotated[
    dict[str, Any] | list[dict[str, Any]] | None,
    BeforeValidator(_baseline),
    WithJsonSchema({"anyOf": [_AXIS_VALUES, {"type": "array", "minItems": 1, "items": _AXIS_VALUES}, {"type": "null"}]}),
]


def _control(value: Any) -> Any:
    if value is not None and (not isinstance(value, dict) or not value):
        raise expected("the axes of one cell, such as {variant: none}")
    return value


Control = Annotated[
    dict[str, Any] | None, BeforeValidator(_control), WithJsonSchema({"anyOf": [_AXIS_VALUES, {"type": "null"}]})
]


def _over(value: Any) -> Any:
    if value is not None and (not isinstance(value, dict) or len(value) != 1):
        raise expected("one axis with its levels, such as {train.steps: [500, 1500, 4500]}")
    return value


Over = Annotated[
    dict[str, Axis] | None,
    BeforeValidator(_over),
    WithJsonSchema({"anyOf": [{"type": "object", "minProperties": 1, "maxProperties": 1}, {"type": "null"}]}),
]


def _reference_scores(value: Any) -> Any:
    if not isinstance(value, bool | list):
        raise expected("true, false or a list of names, such as [gzip]")
    return value


ReferenceScores = Annotated[bool | list[str], BeforeValidator(_reference_scores)]


@dataclass(frozen=True)
class StudySource:
    """The file of a study as it was read, and the source of each part: a place in the file, or an assignment over it.

    Attributes:
        source_map: the places in the file.
        assignments: dotted path of a part of the study -> value.
        sets: dotted path of a field of the base -> value.
        written: the content of the file, merged over the file that it includes, without assignments.
        over: the axis of the grid that the file has under ``over``.
        listed: names of the factors that the file has as a list of components.
        path: of the file; None for a study that is a dict.
        text: of the file; "" for a dict.
        includes: True when the file is merged over another one.
    """

    source_map: SourceMap = SourceMap()
    assignments: dict[str, Any] = field(default_factory=dict)
    sets: dict[str, Any] = field(default_factory=dict)
    written: dict[str, Any] = field(default_factory=dict)
    over: str = ""
    listed: tuple[str, ...] = ()
    path: Path | None = None
    text: str = ""
    includes: bool = False

    def at(self, loc: Loc, /, *, key: bool = False) -> str:
        """Return the place of ``loc``: the most specific assignment over it, else the place in the file."""
        if self.over and loc[:2] == ("grid", self.over):
            loc = ("over", *loc[1:])
        if loc[:1] == ("factors",) and loc[1:2] and loc[1] in self.listed:  # the component itself, or an option of it
            loc = ("factors", self.listed.index(str(loc[1])), *loc[3:])
        paths = [".".join(map(str, loc[:length])) for length in range(len(loc), 0, -1)]
        if loc and loc[0] not in self.written:  # a section that only assignments set
            paths += [path for path in self.assignments if path.startswith(f"{loc[0]}.")]
        path = next((path for path in paths if path in self.assignments), None)
        return self.source_map.at(loc, key=key) if path is None else assignment(path, self.assignments[path])


class Skip(Section):
    """Cells that the study leaves out, and the reason."""

    where: dict[str, Any] = Field(min_length=1, description="axis -> value, or a list of values")
    because: str = Field(min_length=1, description="the reason, for the plan and the report")


class StudyConfig(Section):
    """One study. After reading, ``baseline``, ``control`` and ``claim`` map axes to labels, as ``Cell.axes`` does."""

    study: str = Field(
        pattern=STUDY_NAME,
        max_length=100,
        description="the name of the study: letters, digits, _ - .",
    )
    question: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="the question that the study answers, shown at the top of its report",
    )
    include: str | None = Field(
        default=None, description="a YAML file that this one is merged over; its path is relative to this file"
    )
    imports: list[str] = Field(default=[], description="Python files to import first, relative to this file")
    command: str | None = Field(
        default=None,
        min_length=1,
        description="a program that each run starts instead of training in attnlab, for example python train.py --lr {lr} "
        "--seed {seed}. It runs in the folder of this file, without a shell; {lr} is a value of the base or the grid. The last "
        'line of stdout is its result, such as {"accuracy": 0.5}, or the file that {result} names',
    )
    pattern: str | None = Field(
        default=None,
        description="with command: a regular expression with one group; its last match in stdout is the metric of the study",
    )
    files: list[str] | None = Field(
        default=None,
        description="with command: files and folders that determine the results, or patterns, for example '*.py'; null: the "
        "files below the folder of the study that git does not ignore",
    )
    env: dict[str, str | int | float | bool] = Field(
        default={}, description="with command: environment variables of its runs; they appear in the records"
    )
    base: dict[str, Any] = Field(
        default={}, description="the configuration that every cell starts from; with command: placeholder -> value"
    )
    grid: dict[str, Axis] = Field(
        default={},
        min_length=1,
        description="axis -> values: a dotted path of the configuration -> list, or a name -> {level: {path: value, ...}, ...}",
    )
    over: Over = Field(
        default=None,
        description="another axis, with numbers as levels, for example {train.steps: [500, 1500, 4500]}: cells are compared at "
        "each level, with a test of how their differences change from level to level",
    )
    stages: dict[str, dict[str, Any]] = Field(
        default={},
        description="trainings that provide initial weights for init: {from: NAME}, as name -> changes to the base. A run of a "
        "stage has the variant, position scheme, model and seed of the run that starts from it",
    )
    skip: list[Skip] = []
    factors: Factors = Field(
        default={},
        min_length=1,
        description="instead of grid, the factors of a factorial design: components that are on or off, as in [qk_norm, gate]; "
        "or name -> the fields to set when it is on, or {level: {path: value, ...}, ...}; or a dotted path -> its "
        "values, where the first means off",
    )
    design: Design | None = Field(
        default=None, description="the cells of a study with factors: full (default), leave_one_out or fractional"
    )
    seeds: StudySeeds = Field(
        default=[0],
        description="the seeds of each cell: auto, which starts with three and adds as many as the verdicts need, up to "
        "max_seeds (12); a list; a range, for example 0-4; or fresh N, seeds that no study of another name has; with search: "
        "confirm.seeds",
    )
    max_seeds: Count | None = Field(
        default=None,
        description="add seeds one at a time to inconclusive comparisons (with a sweep, to all cells), up to this number; "
        "null: train the seeds as listed",
    )
    search: SearchConfig | None = Field(default=None, description="hyperparameter search in each cell, followed by confirm")
    confirm: ConfirmConfig | None = Field(
        default=None,
        description="how the best trial of each cell is trained again; required with search, and only allowed with it",
    )
    sweep: SweepConfig | None = Field(
        default=None, description="train every cell at the same learning rates, and compare cells at the best of them"
    )
    run: RunLimits = RunLimits()
    baseline: Baseline = Field(
        default=None,
        description="the cell to compare the others with: axis -> value; or a list of several baselines",
    )
    control: Control = Field(
        default=None,
        description="a cell that must be found worse than the baseline before others count as equivalent: axis -> value",
    )
    claim: ClaimConfig | None = Field(default=None, description="a published claim that the study judges")
    claims: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*$")], ClaimConfig] = Field(
        default={}, description="ID -> claim: several published claims that the study judges"
    )
    metric: Metric = Field(
        default=None,
        description="null: the primary metric of the task; or another number that every run records, for example tokens_per_s, "
        "valid_bits_per_byte, or bits_per_byte at 512 with evaluate.lengths; with several tasks also a metric for each of "
        "them; with command required: {name: accuracy, direction: max}",
    )
    estimand: Estimand = Field(
        default=None,
        description="the number that summarizes the seeds of a cell: mean or solve_rate; null: the default of the task",
    )
    margin: Margin = Field(
        default=None,
        description="the largest difference that counts as equivalent; with several tasks also a margin for each of them",
    )
    questions: list[FurtherQuestion] = Field(
        default=[],
        description="further questions about the same cells: metrics, each with a margin; the verdicts of all questions are "
        "corrected together",
    )
    moderate: bool = Field(
        default=True,
        description="moderated t-test: when a table has enough comparisons, they share an estimate of the variance",
    )
    reference_scores: ReferenceScores = Field(
        default=True,
        description="scores of methods without a network (gzip, n-grams, ...): all, none (false), or a list of names",
    )
    analyses: list[str] = Field(
        default=[],
        description="additional analyses that you wrote: names, or file.py:Class, relative to this file",
    )
    retries: int = Field(default=1, ge=0, description="how many times to repeat a failed run")

    _source: StudySource = PrivateAttr(default_factory=StudySource)

    @model_validator(mode="before")
    @classmethod
    def _with_named_seeds(cls, fields: Any) -> Any:
        return with_named_seeds(fields)

    @field_validator("study", mode="after")
    @classmethod
    def _not_default(cls, value: str) -> str:
        if value == "Default":
            raise expected("a name other than 'Default', which MLflow uses")
        return value

    @model_serializer(mode="wrap")
    def _as_written(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = serialize(self)
        if self.factors:
            del fields["grid"]  # the factors are the axes
        return fields

    @property
    def path(self) -> Path | None:
        """The file that the study was read from; None when it was given as a dict."""
        return self._source.path

    @property
    def source(self) -> StudySource:
        """The file as it was read, and the assignments over it."""
        return self._source

    def set_source(self, source: StudySource) -> None:
        """Record the file as it was read. For ``reader`` only."""
        self._source = source

    @property
    def folder(self) -> Path:
        """The folder that paths in the study are relative to: the folder of the file, or the working directory for a dict."""
        return self.path.parent if self.path else Path()

    @property
    def baselines(self) -> list[dict[str, Any]]:
        """The baselines, each as axis -> value; costs are matched to the first."""
        return self.baseline if isinstance(self.baseline, list) else [self.baseline] if self.baseline else []

    @property
    def over_axis(self) -> str:
        """The axis of ``over``, which reading appends to the grid; "" if there is none."""
        return next(iter(self.over), "") if self.over else ""

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The axes of the grid with their values; the values of an axis with named levels are the names."""
        return {axis: list(values) for axis, values in self.grid.items()}

    @property
    def sets(self) -> dict[str, Any]:
        """The assignments over the base: dotted path -> value."""
        return self._source.sets

    @property
    def assignments(self) -> dict[str, Any]:
        """All assignments, over the base and over the other parts of the study: dotted path -> value."""
        return {**self._source.assignments, **self._source.sets}

    def where(self, *loc: str | int, key: bool = False) -> str:
        """Return the place of a value: ``study.where("grid", "variant", 1)`` -> ``"wo.yaml:12:5"``.

        The place of a value that an assignment sets is that assignment.
        """
        return self._source.at(self._as_written_loc(loc), key=key)

    def section(self, axis: str) -> str:
        """Return the section of the file that an axis is written in: ``grid`` or ``factors``."""
        return "factors" if axis in self.factors else "grid"

    def _as_written_loc(self, loc: Loc) -> Loc:
        """Return the location in the file of a location in the grid: an axis may be a factor with short levels."""
        if len(loc) < 2 or loc[0] != "grid" or loc[1] not in self.factors:
            return loc
        axis, *rest = loc[1:]
        if rest and rest[0] not in self.factors[str(axis)] and isinstance(self.factors[str(axis)], dict):
            rest = rest[1:]  # the levels off and on of a factor that has only the fields that are set when it is on
        return ("factors", axis, *rest)

    @property
    def swept_path(self) -> str | None:
        """The dotted path that the study sweeps; None without a sweep."""
        return self.sweep.path if self.sweep else None

    @property
    def reported_seeds(self) -> list[int]:
        """The seeds of the runs that are reported; with a search, the seeds of ``confirm``."""
        return self.seeds if self.confirm is None else self.confirm.seeds


def check_added_seeds(study: StudyConfig, most: int, *, place: str) -> None:
    """Raise ``UserError`` at ``place`` unless seeds can be added to a study, up to ``most`` in all."""
    if study.factors:
        message = "expected no 'factors': the effects of a design are estimated from equally many seeds in all of its cells"
        raise UserError(message, place)
    if study.baseline is None:
        raise UserError("expected a 'baseline' in the study: without one there are no verdicts", place)
    if most < len(study.reported_seeds):
        raise UserError(f"max_seeds: expected at least the {len(study.reported_seeds)} seeds that the study has", place)
