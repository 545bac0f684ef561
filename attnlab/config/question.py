"""The question of a study: metric, margin and estimand, and the section ``claim``.

In a study of several tasks, one axis sets the task, and metric and margin may have a value for each task.

An estimand is the number that summarizes a cell's seeds, and by which the cell is compared with its baseline. A claim is a
published one that the study judges, written before its results are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticKnownError

from attnlab.config.types import Section, conflict, expected
from attnlab.registry import ESTIMATORS

Direction = Literal[
    "better", "worse", "not worse", "equivalent", "different", "grows", "shrinks", "steady", "changes", "can", "cannot"
]
OF_DIFFERENCES: tuple[Direction, ...] = ("better", "worse", "not worse", "equivalent", "different")
OF_TRENDS: tuple[Direction, ...] = ("grows", "shrinks", "steady", "changes")
OF_SOLVE_RATES: tuple[Direction, ...] = ("can", "cannot")


def _margin(value: Any) -> Any:
    if isinstance(value, dict):
        if not value:
            raise expected("at least one task with its margin, such as {enwik8: 0.01, imdb: 0.005}")
        return {str(task): _margin(margin) for task, margin in value.items()}
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool) and not value > 0):
        raise expected("a number greater than 0, in the unit of the metric")  # shares of the steps were removed in 0.9
    return value


_ONE_MARGIN = {"type": "number", "exclusiveMinimum": 0}
_MARGINS = {"type": "object", "minProperties": 1, "additionalProperties": _ONE_MARGIN}
Margin = Annotated[
    float | dict[str, float] | None,
    BeforeValidator(_margin),
    WithJsonSchema({"anyOf": [_ONE_MARGIN, _MARGINS, {"type": "null"}]}),
]


def _metric(value: Any) -> Any:
    names = value.values() if isinstance(value, dict) else [] if value is None else [value]
    if value == {} or not all(isinstance(name, str) for name in names):
        raise expected("the name of a metric, or one for each task, such as {enwik8: bits_per_byte, imdb: accuracy}")
    return value


Metric = Annotated[
    str | dict[str, str] | None,
    BeforeValidator(_metric),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}},
                {"type": "null"},
            ]
        }
    ),
]


def _known(name: str) -> str:
    if name not in (names := ESTIMATORS.names()):
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"})
    return name


_Name = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": ESTIMATORS.names(), "type": "string"})]


class EstimandConfig(Section):
    """An estimand: ``solve_rate`` or ``{name: solve_rate, threshold: 0.9}``."""

    name: _Name = Field(
        default="mean",
        description="mean, or solve_rate, the share of seeds that reach a threshold",
    )
    threshold: float | None = Field(default=None, description="the score that solves the task; null: the default of the task")

    @model_validator(mode="after")
    def _threshold_of_a_rate(self) -> EstimandConfig:
        if self.threshold is not None and not ESTIMATORS.get(self.name).takes_threshold:
            raise conflict(f"expected a threshold only for solve_rate, got one for {self.name}", "threshold")
        return self

    @property
    def label(self) -> str:
        """A short text: "mean", "solve_rate at 0.9"."""
        return self.name if self.threshold is None else f"{self.name} at {self.threshold:g}"

    def estimator(self, metric: str, direction: str) -> Any:
        """Return its `attnlab.stats.estimators.Estimator` of a metric."""
        return ESTIMATORS.get(self.name)(metric, direction, self.threshold)


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if value is not None and not isinstance(value, dict | EstimandConfig):
        raise expected("a name, such as solve_rate, or {name: solve_rate, threshold: 0.9}")
    return value


_Written = EstimandConfig | _Name | None
Estimand = Annotated[EstimandConfig | None, BeforeValidator(_short, json_schema_input_type=_Written)]


def _axes(value: Any) -> Any:
    if value is not None and (not isinstance(value, dict) or not value):
        raise expected("axis -> value, such as {variant: no_wo}")
    return value


_AXIS_VALUES = {"type": "object", "minProperties": 1}
AxisValues = Annotated[
    dict[str, Any] | None, BeforeValidator(_axes), WithJsonSchema({"anyOf": [_AXIS_VALUES, {"type": "null"}]})
]


class FurtherQuestion(Section):
    """A further question about the cells of a study: another metric, with a margin in its unit."""

    metric: str = Field(min_length=1, description="a number that every run records, for example bits_per_byte at 512")
    margin: float | None = Field(default=None, gt=0, description="the largest difference that counts as equivalent")


class ClaimConfig(Section):
    """A claim about the cells with some values, each compared with its baseline, or about an effect of a factorial study."""

    sentence: str = Field(min_length=1, max_length=500, description="the claim in one sentence, in your own words")
    source: str = Field(min_length=1, max_length=300, description="who makes the claim: authors, year, and arXiv number or URL")
    cell: AxisValues = Field(
        default=None, description="axis -> value: the claim is about every compared cell with these values"
    )
    effect: str | None = Field(
        default=None,
        min_length=1,
        description="instead of cell: an effect of a factorial study, for example gate or gate × sink",
    )
    baseline: AxisValues = Field(default=None, description="when the study has several baselines: the one to compare with")
    direction: Direction = Field(
        description="for a difference: better, worse, not worse (better or equivalent), equivalent or different; for its "
        "change over levels: grows, shrinks, steady or changes; for a solve rate: can or cannot"
    )
    size: float | None = Field(
        default=None,
        gt=0,
        le=1e12,
        description="the published size, in the unit of the result",
    )
    published: str = Field(
        default="", max_length=300, description="the published figures and their setting, for the page of claims"
    )
    disputed: str = Field(
        default="",
        max_length=400,
        description="published results that disagree, and who published them, for the page of claims",
    )
    abilities: str = Field(
        default="",
        max_length=100,
        description="the name of a report on abilities, for one study or several, with the same cells or effects",
    )
    scatter: float | None = Field(
        default=None,
        gt=0,
        le=1e12,
        description="the expected standard deviation of the difference between two runs with the same seed",
    )
    known: bool = Field(default=False, description="true for a control: a claim that is known to hold")
    textbook: bool = Field(
        default=False, description="true for a question of textbooks: in the first table of the page of claims"
    )
    history: str = Field(default="", max_length=600, description="what happened to the claim, for the page of claims")
    not_judged: str = Field(
        default="",
        max_length=300,
        description="why the study does not judge what the source says: the claim is listed apart and not counted",
    )

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
        if (self.cell is None) == (self.effect is None):
            raise conflict(f"expected one of cell and effect, got {'neither' if self.cell is None else 'both'}", "")
        if self.effect is not None and self.direction not in OF_DIFFERENCES:
            raise conflict(
                f"expected {', '.join(OF_DIFFERENCES[:-1])} or different of an effect, got {self.direction}", "direction"
            )
        return self


@dataclass(frozen=True)
class TaskQuestion:
    """The comparison that a study makes on one task.

    Attributes:
        metric: name of the metric.
        direction: ``min`` where smaller values are better, else ``max``.
        margin: the largest difference that counts as equivalent, as the study states it.
    """

    metric: str
    direction: str
    margin: float | None = None
