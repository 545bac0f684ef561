"""The sections ``search``, ``confirm`` and ``run`` of a study file.

The grid holds the values to compare; a search chooses nuisance parameters such as the learning rate, separately in each cell
and with the same budget. The chosen values are then trained on the fresh seeds of ``confirm``.
"""

import math
import re
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from attnlab.config.axes import text
from attnlab.config.types import Count, Named, NamedField, Section, Seeds, conflict, expected

SIZES = {f"{letter}{end}": base**power for end, base in (("iB", 1024), ("B", 1000)) for power, letter in enumerate("KMGT", 1)}
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MIN_MEMORY = 1 << 20  # bytes


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise expected("a number")
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an integer of more than 300 digits
        finite = False
    if not finite:
        raise expected("a finite number")
    return value


def written(value: Any) -> str:
    """Return a value of a search as short text; a list keeps its brackets."""
    return f"[{', '.join(map(written, value))}]" if isinstance(value, list) else text(value)


def _size(value: Any) -> Any:
    """Convert ``"8GiB"`` to bytes."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d+)?) ?([KMGT]i?B)", value) if isinstance(value, str) else None
    size = int(float(match[1]) * SIZES[match[2]]) if match else value
    if isinstance(size, bool) or not isinstance(size, int) or size < MIN_MEMORY:
        raise expected("a size of at least 1MiB, such as 8GiB or 512MiB, or a whole number of bytes")
    return size


def _time(value: Any) -> Any:
    """Convert ``"30m"`` to seconds."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d+)?) ?([smhd])", value) if isinstance(value, str) else None
    seconds = float(match[1]) * SECONDS[match[2]] if match else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
        raise expected("a time such as 90s, 30m or 2h, or a number of seconds above 0")
    return float(seconds)


def _schema(pattern: str, number: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": number}, {"type": "string", "pattern": pattern}]})


Number = Annotated[int | float, BeforeValidator(_number)]
Size = Annotated[int, BeforeValidator(_size), _schema(r"^\d+(\.\d+)? ?[KMGT]i?B$", "integer")]
Time = Annotated[float, BeforeValidator(_time), _schema(r"^\d+(\.\d+)? ?[smhd]$", "number")]


class Dimension(Section):
    """The values that a search chooses from for one field: a range or choices. Whole ends and steps give whole numbers."""

    low: Number | None = Field(default=None, description="smallest value; when both ends are integers, so are all values")
    high: Number | None = Field(default=None, description="largest value")
    log: bool = Field(default=False, description="sample uniformly on a logarithmic scale")
    step: Number | None = Field(default=None, description="distance between values; null: every value between the ends")
    choices: list[Any] | None = Field(default=None, description="instead of low and high")

    @model_validator(mode="before")
    @classmethod
    def _mapping(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise expected("{low: ..., high: ...} or {choices: [...]}")
        return value

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.choices is not None:
            range_fields = {"low": self.low, "high": self.high, "log": self.log or None, "step": self.step}
            extra = [key for key, value in range_fields.items() if value is not None]
            if extra:
                raise conflict(f"expected 'choices' alone, got {extra[0]!r} as well", extra[0])
            if len(self.choices) < 2:
                raise conflict(f"expected at least two choices, got {len(self.choices)}", "choices")
            return self
        if self.low is None or self.high is None:
            raise conflict("expected 'low' and 'high', or 'choices'", "")
        return self

    @property
    def whole(self) -> bool:
        """True when all values are whole numbers."""
        return all(isinstance(number, int) for number in (self.low, self.high, 1 if self.step is None else self.step))

    @property
    def ends(self) -> list[tuple[tuple[str | int, ...], Any]]:
        """The ends of a range or all choices, as they are sampled, each with its location in the dimension."""
        if self.choices is not None:
            return [(("choices", i), choice) for i, choice in enumerate(self.choices)]
        assert self.low is not None and self.high is not None
        as_sampled = int if self.whole else float
        return [(("low",), as_sampled(self.low)), (("high",), as_sampled(self.high))]

    @property
    def label(self) -> str:
        """The dimension in words: ``0.0001 to 0.01, log`` or ``one of 16, 32``."""
        if self.choices is not None:
            return f"one of {', '.join(map(written, self.choices))}"
        spacing = ", log" if self.log else "" if self.step is None else f" in steps of {text(self.step)}"
        return f"{text(self.low)} to {text(self.high)}{spacing}{', whole' if self.whole and self.step is None else ''}"


class SearchConfig(Section):
    """One Optuna study for each cell, all with the same budget."""

    trials: Annotated[int, Field(ge=1, le=100_000)] = Field(description="runs of each cell, each with other values")
    space: dict[str, Dimension] = Field(
        min_length=1, description="dotted path of the configuration -> {low, high, log, step} or {choices}"
    )
    sampler: NamedField = Field(default=Named(name="TPESampler"), description="of optuna.samplers, with its arguments")
    pruner: NamedField = Field(default=Named(name="NopPruner"), description="of optuna.pruners, with its arguments")
    seed: int = Field(default=0, ge=0, description="seed of every trial")
    parallel: Count = Field(
        default=1,
        description="trials of one cell that run at a time; with 1, no suggestion depends on timing: "
        "the search is reproducible",
    )


class ConfirmConfig(Section):
    """The seeds of the runs that confirm the values chosen in each cell. They are never pruned, and only they are reported."""

    seeds: Seeds = Field(description="a list, or a range such as 100-104; none of them search.seed")


class RunLimits(Section):
    """Limits at which the study stops a run. They are not part of its configuration, because no number depends on them."""

    memory_limit: Size | None = Field(default=None, description="of one run's process, for example 8GiB; null: none")
    timeout: Time | None = Field(default=None, description="of one run, for example 90s, 30m or 2h; null: none")
