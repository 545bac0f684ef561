"""The estimand of a study: the number that summarizes a cell's seeds, and by which it is compared with its baseline."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from attnlab.config.types import Section, conflict, expected

ESTIMANDS = ("mean", "median", "solve_rate", "superiority")


class EstimandConfig(Section):
    """An estimand: ``solve_rate`` or ``{name: solve_rate, threshold: 0.9}``."""

    name: Literal["mean", "median", "solve_rate", "superiority"] = Field(
        default="mean",
        description="mean; median of the differences; solve_rate, the share of seeds that reach a threshold; superiority, the "
        "probability that a run beats that of the baseline with the same seed",
    )
    threshold: float | None = Field(default=None, description="the score that solves the task; null: the default of the task")

    @model_validator(mode="after")
    def _threshold_of_a_rate(self) -> "EstimandConfig":
        if self.threshold is not None and self.name != "solve_rate":
            raise conflict(f"expected a threshold only for solve_rate, got one for {self.name}", "threshold")
        return self

    @property
    def is_mean(self) -> bool:
        """True for the mean, which is tested by t-tests; the others have exact tests."""
        return self.name == "mean"

    @property
    def label(self) -> str:
        """A short text: "median", "solve_rate at 0.9"."""
        return self.name if self.threshold is None else f"{self.name} at {self.threshold:g}"

    @property
    def name_of_cell(self) -> str:
        """The name of the number of a single cell; the probability of superiority belongs to two, each with a median."""
        return {"mean": "mean", "solve_rate": "solve rate"}.get(self.name, "median")

    def solves(self, value: float, direction: str) -> bool:
        """Return True if a score reaches the threshold.

        Args:
            value: The score of one run.
            direction: "min" where smaller scores are better, else "max".
        """
        assert self.threshold is not None
        return value <= self.threshold if direction == "min" else value >= self.threshold


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if value is not None and not isinstance(value, dict | EstimandConfig):
        raise expected("a name, such as median, or {name: solve_rate, threshold: 0.9}")
    return value


_Written = EstimandConfig | Literal["mean", "median", "solve_rate", "superiority"] | None
Estimand = Annotated[EstimandConfig | None, BeforeValidator(_short, json_schema_input_type=_Written)]
