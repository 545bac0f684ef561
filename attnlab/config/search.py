"""The sections ``search``, ``confirm``, ``sweep`` and ``run`` of a study file.

The grid holds the values to compare; a search chooses nuisance parameters such as the learning rate, separately in each cell
and with the same budget. The chosen values are then trained on the fresh seeds of ``confirm``.

A search leaves each cell at a value that it found with few runs, and a comparison of two cells then contains the luck of two
searches. A sweep trains every cell at every value of one nuisance parameter with every seed, and compares cells at the best of
these. Section 5 of Wortsman et al. 2023 (arXiv:2309.14322) compares such curves.
"""

from __future__ import annotations

import math
import re
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from attnlab.config.types import Count, Named, NamedField, Section, Seeds, conflict, expected, require_distinct, text

SIZES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MIN_MEMORY = 1 << 20  # bytes
MIN_VALUES = 3  # so that the best value can lie inside
MIN_ROUNDED_RATIO = 1.1  # values of a denser grid are not rounded, because two of them could become equal


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


Number = Annotated[int | float, BeforeValidator(_number)]
_SIZE = {"type": "string", "pattern": r"^\d+(\.\d+)? ?[KMGT]i?B$"}
_TIME = {"type": "string", "pattern": r"^\d+(\.\d+)? ?[smhd]$"}
Size = Annotated[int, BeforeValidator(_size), WithJsonSchema({"anyOf": [{"type": "integer"}, _SIZE]})]
Time = Annotated[float, BeforeValidator(_time), WithJsonSchema({"anyOf": [{"type": "number"}, _TIME]})]


class Dimension(Section):
    """The values that a search chooses from for one field: a range or choices. Whole ends and steps give whole numbers."""

    low: Number | None = Field(default=None, description="smallest value; when both ends are integers, so are all values")
    high: Number | None = Field(default=None, description="largest value")
    log: bool = Field(default=False, description="sample uniformly on a logarithmic scale")
    step: Number | None = Field(default=None, description="distance between values; null: every value between the ends")
    choices: list[Any] | None = Field(default=None, description="instead of low and high")

    @field_validator("choices")
    @classmethod
    def _distinct(cls, choices: list[Any] | None) -> list[Any] | None:
        require_distinct(choices or [], "choice")
        return choices

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

    trials: Annotated[int, Field(ge=1, le=100_000)] = Field(description="number of runs per cell, each with different values")
    space: dict[str, Dimension] = Field(
        min_length=1, description="dotted path of the configuration -> {low, high, log, step} or {choices}"
    )
    sampler: NamedField = Field(
        default=Named(name="TPESampler"), description="a sampler of optuna.samplers, with its arguments"
    )
    pruner: NamedField = Field(default=Named(name="NopPruner"), description="a pruner of optuna.pruners, with its arguments")
    seed: int = Field(default=0, ge=0, description="seed of every trial")
    parallel: Count = Field(
        default=1,
        description="number of trials of one cell that run at the same time; with 1, no suggestion depends on timing, so the "
        "search is reproducible",
    )


class ConfirmConfig(Section):
    """The seeds of the runs that confirm the values chosen in each cell. They are never pruned, and only they are reported."""

    seeds: Seeds = Field(description="a list, or a range such as 100-104; must not contain search.seed")


class RunLimits(Section):
    """Limits at which the study stops a run. They are not part of its configuration, because no number depends on them."""

    memory_limit: Size | None = Field(
        default=None, description="memory limit for one run's process, for example 8GiB; null: none"
    )
    timeout: Time | None = Field(default=None, description="time limit for one run, for example 90s, 30m or 2h; null: none")


def _values(value: Any) -> Any:
    if not isinstance(value, list) or len(value) < MIN_VALUES:
        raise expected(f"a list of at least {MIN_VALUES} numbers, such as [1e-3, 3e-3, 1e-2]")
    require_distinct(value, "value")
    return value


Values = Annotated[list[Annotated[float, Field(gt=0, le=1e6)]], BeforeValidator(_values)]


class SweepConfig(Section):
    """Exactly one path, with its values; attributes are named without the ``train.`` of the keys."""

    model_config = ConfigDict(serialize_by_alias=True)

    lr: Values | None = Field(
        default=None, alias="train.lr", description="at least 3 learning rates; every cell is trained at each of them"
    )
    weight_decay: Values | None = Field(default=None, alias="train.weight_decay", description="instead of train.lr")
    extensions: int = Field(
        default=4,
        ge=0,
        le=20,
        description="how many values may be added on each side while the best value of a cell is the largest or smallest",
    )

    @model_validator(mode="after")
    def _one_path(self) -> Self:
        if len(self._lists) != 1:
            amount = "both" if self._lists else "neither"
            raise conflict(f"expected one of {' and '.join(SWEEPABLE)}, got {amount}", "")
        return self

    @property
    def _lists(self) -> dict[str, list[float]]:
        lists = {path: getattr(self, name) for path, name in SWEEPABLE.items()}
        return {path: values for path, values in lists.items() if values is not None}

    @property
    def path(self) -> str:
        """The dotted path that is swept."""
        return next(iter(self._lists))

    @property
    def listed(self) -> list[float]:
        """The values in the order of the study file."""
        return self._lists[self.path]

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The values of the study file in ascending order."""
        return tuple(sorted(self.listed))

    def extended(self, low: int, high: int) -> tuple[float, ...]:
        """Return the values with ``low`` further ones below the smallest and ``high`` further ones above the largest.

        They continue the grid geometrically, with the mean ratio of its neighbors, rounded to three digits.
        """
        first, last = self.values[0], self.values[-1]
        ratio = (last / first) ** (1 / (len(self.values) - 1))
        digits = 3 if ratio >= MIN_ROUNDED_RATIO else 12
        below = [float(f"{first / ratio**step:.{digits}g}") for step in range(low, 0, -1)]
        above = [float(f"{last * ratio**step:.{digits}g}") for step in range(1, high + 1)]
        return (*below, *self.values, *above)


SWEEPABLE = {"train.lr": "lr", "train.weight_decay": "weight_decay"}  # path -> attribute of SweepConfig


def sweep_advice(search: SearchConfig) -> str:
    """Return the clause that recommends a sweep instead of a search that a sweep can replace, else ""."""
    path = next(iter(search.space))
    return (
        f"; sweep: {{{path}: [...]}} tries the same values in every cell"
        if [*search.space] == [path] and path in SWEEPABLE
        else ""
    )
