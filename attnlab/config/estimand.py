"""The estimand of a study: the number that summarizes a cell's seeds, and by which it is compared with its baseline."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticKnownError

from attnlab.config.types import Section, conflict, expected
from attnlab.registry import ESTIMATORS


def _known(name: str) -> str:
    if name not in (names := ESTIMATORS.names()):
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"})
    return name


_Name = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": ESTIMATORS.names(), "type": "string"})]


class EstimandConfig(Section):
    """An estimand: ``solve_rate`` or ``{name: solve_rate, threshold: 0.9}``."""

    name: _Name = Field(
        default="mean",
        description="mean; median of the differences; solve_rate, the share of seeds that reach a threshold; superiority, the "
        "probability that a run beats that of the baseline with the same seed",
    )
    threshold: float | None = Field(default=None, description="the score that solves the task; null: the default of the task")

    @model_validator(mode="after")
    def _threshold_of_a_rate(self) -> "EstimandConfig":
        if self.threshold is not None and not ESTIMATORS.get(self.name).takes_threshold:
            raise conflict(f"expected a threshold only for solve_rate, got one for {self.name}", "threshold")
        return self

    @property
    def label(self) -> str:
        """A short text: "median", "solve_rate at 0.9"."""
        return self.name if self.threshold is None else f"{self.name} at {self.threshold:g}"

    def estimator(self, metric: str, direction: str) -> Any:
        """Return its `attnlab.stats.estimators.Estimator` of a metric."""
        return ESTIMATORS.get(self.name)(metric, direction, self.threshold)


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if value is not None and not isinstance(value, dict | EstimandConfig):
        raise expected("a name, such as median, or {name: solve_rate, threshold: 0.9}")
    return value


_Written = EstimandConfig | _Name | None
Estimand = Annotated[EstimandConfig | None, BeforeValidator(_short, json_schema_input_type=_Written)]
