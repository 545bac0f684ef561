"""The section ``sweep`` of a study file: one grid of values of one nuisance parameter, the same for all cells.

A search leaves each cell at a value that it found with few runs, and a comparison of two cells then contains the luck of two
searches. A sweep trains every cell at every value with every seed, so that the optimum of each cell is estimated together with
its uncertainty. Section 5 of Wortsman et al. 2023 (arXiv:2309.14322) compares such curves.
"""

from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from attnlab.config.search import SearchConfig
from attnlab.config.types import Section, conflict, expected

MIN_VALUES = 3  # so that the best value can lie inside
MIN_ROUNDED_RATIO = 1.1  # values of a denser grid are not rounded, because two of them could become equal


def _values(value: Any) -> Any:
    if not isinstance(value, list) or len(value) < MIN_VALUES:
        raise expected(f"a list of at least {MIN_VALUES} numbers, such as [1e-3, 3e-3, 1e-2]")
    return value


Values = Annotated[list[Annotated[float, Field(gt=0, le=1e6)]], BeforeValidator(_values)]


class SweepConfig(Section):
    """Exactly one path, with its values; attributes are named without the ``train.`` of the keys."""

    model_config = ConfigDict(serialize_by_alias=True)

    lr: Values | None = Field(
        default=None, alias="train.lr", description="at least 3 learning rates, at each of which every cell is trained"
    )
    weight_decay: Values | None = Field(default=None, alias="train.weight_decay", description="instead of train.lr")
    extensions: int = Field(
        default=4,
        ge=0,
        le=20,
        description="values that may be added on each side while the best value of a cell is the largest or smallest, or below "
        "while fewer than 4 completed",
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


def sweep_advice(search: SearchConfig) -> str:
    """Return the clause that recommends a sweep instead of a search that a sweep can replace, else ""."""
    path = next(iter(search.space))
    return (
        f"; sweep: {{{path}: [...]}} tries the same values in every cell"
        if [*search.space] == [path] and path in SWEEPABLE
        else ""
    )


SWEEPABLE = {str(field.alias): name for name, field in SweepConfig.model_fields.items() if field.alias}  # path -> attribute
