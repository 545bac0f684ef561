"""The section ``claim`` of a study: a published claim that the study judges, written before its results are known."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from attnlab.config.types import Section, conflict, expected

Direction = Literal[
    "better", "worse", "equivalent", "different", "grows", "shrinks", "steady", "changes", "can", "cannot", "saves", "costs"
]
OF_DIFFERENCES: tuple[Direction, ...] = ("better", "worse", "equivalent", "different")
OF_TRENDS: tuple[Direction, ...] = ("grows", "shrinks", "steady", "changes")
OF_SOLVE_RATES: tuple[Direction, ...] = ("can", "cannot")
OF_TRAINING: tuple[Direction, ...] = ("saves", "costs")


def _axes(value: Any) -> Any:
    if value is not None and (not isinstance(value, dict) or not value):
        raise expected("axis -> value, such as {variant: no_wo}")
    return value


_AXIS_VALUES = {"type": "object", "minProperties": 1}
AxisValues = Annotated[
    dict[str, Any] | None, BeforeValidator(_axes), WithJsonSchema({"anyOf": [_AXIS_VALUES, {"type": "null"}]})
]


class ClaimConfig(Section):
    """A claim about the cells with some values, each compared with its baseline, or about an effect of a factorial study."""

    sentence: str = Field(min_length=1, max_length=500, description="the claim in one sentence, in your words")
    source: str = Field(min_length=1, max_length=300, description="who claims it: authors, year, and arXiv number or address")
    cell: AxisValues = Field(
        default=None, description="axis -> value: the claim is about every compared cell with these values"
    )
    effect: str | None = Field(
        default=None,
        min_length=1,
        description="instead of cell: an effect of a factorial study, for example gate or gate × sink",
    )
    baseline: AxisValues = Field(default=None, description="when the study has several baselines: the one that is meant")
    direction: Direction = Field(
        description="of a difference: better, worse, equivalent or different; of its change over levels: grows, shrinks, "
        "steady or changes; of a solve rate: can or cannot; of the steps to the baseline's score: saves or costs"
    )
    size: float | None = Field(
        default=None,
        gt=0,
        le=1e12,
        description="the published size, in the unit of the result; of saves and costs: a share of the steps",
    )
    published: str = Field(default="", max_length=300, description="the published figures and their setting, for the page")
    disputed: str = Field(default="", max_length=400, description="published results that disagree, and whose, for the page")
    abilities: str = Field(
        default="",
        max_length=100,
        description="the name of a study of abilities that has cells with the same values, for the page",
    )
    scatter: float | None = Field(
        default=None,
        gt=0,
        le=1e12,
        description="the expected standard deviation of the difference between two runs with the same seed",
    )
    known: bool = Field(default=False, description="true for a control: a claim that is known to hold")

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
        if (self.cell is None) == (self.effect is None):
            raise conflict(f"expected one of cell and effect, got {'neither' if self.cell is None else 'both'}", "")
        if self.effect is not None and self.direction not in OF_DIFFERENCES:
            raise conflict(
                f"expected {', '.join(OF_DIFFERENCES[:-1])} or different of an effect, got {self.direction}", "direction"
            )
        if self.direction == "saves" and self.size is not None and self.size >= 1:
            raise conflict(f"expected a share of the steps, less than 1, got {self.size:g}", "size")
        return self
