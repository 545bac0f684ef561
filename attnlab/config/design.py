"""Factorial designs: the cells that a study with ``factors`` runs, and the effects that they cannot tell apart.

``full`` runs all combinations of the levels. ``leave_one_out`` runs the cell with all factors on, one cell for each factor that
is off while all others are on, and the cell with all factors off. ``fractional`` runs a regular fraction of the combinations of
two-level factors: the first factors take all combinations, and each further factor is the product of some of them, with +1 for
on and -1 for off. The products (*generators*) come from the standard tables, which have the highest possible resolution.

Reference: Box, Hunter and Hunter (2005), Statistics for Experimenters, 2nd edition, chapters 5 and 6, table 6.22; for 9 to 11
factors Montgomery (2017), Design and Analysis of Experiments, 9th edition, appendix X.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator

from attnlab.config.types import Section, conflict, expected

DESIGNS = ("full", "leave_one_out", "fractional")
LETTERS = "ABCDEFGHJKLMNOP"  # the names of factors in the tables, which leave out I
# (factors, cells) -> the generators: "D=AB" sets the fourth factor to the product of the first two.
GENERATORS = {
    (3, 4): "C=AB",
    (4, 8): "D=ABC",
    (5, 8): "D=AB E=AC",
    (5, 16): "E=ABCD",
    (6, 8): "D=AB E=AC F=BC",
    (6, 16): "E=ABC F=BCD",
    (6, 32): "F=ABCDE",
    (7, 8): "D=AB E=AC F=BC G=ABC",
    (7, 16): "E=ABC F=BCD G=ACD",
    (7, 32): "F=ABCD G=ABDE",
    (7, 64): "G=ABCDEF",
    (8, 16): "E=BCD F=ACD G=ABC H=ABD",
    (8, 32): "F=ABC G=ABD H=BCDE",
    (8, 64): "G=ABCD H=ABEF",
    (8, 128): "H=ABCDEFG",
    (9, 16): "E=ABC F=BCD G=ACD H=ABD J=ABCD",
    (9, 32): "F=BCDE G=ACDE H=ABDE J=ABCE",
    (9, 64): "G=ABCD H=ACEF J=CDEF",
    (9, 128): "H=ACDFG J=BCEFG",
    (10, 16): "E=ABC F=BCD G=ACD H=ABD J=ABCD K=AB",
    (10, 32): "F=ABCD G=ABCE H=ABDE J=ACDE K=BCDE",
    (10, 64): "G=BCDF H=ACDF J=ABDE K=ABCE",
    (10, 128): "H=ABCG J=BCDE K=ACDF",
    (11, 16): "E=ABC F=BCD G=ACD H=ABD J=ABCD K=AB L=AC",
    (11, 32): "F=ABC G=BCD H=CDE J=ACD K=ADE L=BDE",
    (11, 64): "G=CDE H=ABCD J=ABF K=BDEF L=ADEF",
    (12, 16): "E=ABC F=BCD G=ACD H=ABD J=ABCD K=AB L=AC M=AD",
    (13, 16): "E=ABC F=BCD G=ACD H=ABD J=ABCD K=AB L=AC M=AD N=BC",
    (14, 16): "E=ABC F=BCD G=ACD H=ABD J=ABCD K=AB L=AC M=AD N=BC O=BD",
    (15, 16): "E=ABC F=BCD G=ACD H=ABD J=ABCD K=AB L=AC M=AD N=BC O=BD P=CD",
}
Point = tuple[int, ...]  # for each factor the index of its level; of a factor with two levels 0 is off and 1 is on


class DesignConfig(Section):
    """The design of a study with ``factors``: a name, or ``{name: fractional, cells: 16}``."""

    name: Literal["full", "leave_one_out", "fractional"]
    cells: int | None = Field(
        default=None, ge=1, description="of a fractional design; null: the fewest with resolution IV, else the most"
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if not isinstance(value, str | dict):
            raise expected(f"{', '.join(DESIGNS)}, or {{name: fractional, cells: 16}}")
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.cells is not None and self.name != "fractional":
            raise conflict(f"expected 'cells' only in a fractional design, got it with {self.name!r}", "cells")
        return self


Design = Annotated[
    DesignConfig,
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(DESIGNS)},
                {
                    "type": "object",
                    "properties": {"name": {"enum": list(DESIGNS)}, "cells": {"type": "integer", "minimum": 1}},
                    "required": ["name"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


@dataclass(frozen=True)
class Factor:
    """A factor: its axis and its levels.

    Attributes:
        name: the axis, for example ``no_wo`` or ``train.lr``.
        levels: labels of the levels as text, the first one is "off".
        texts: each level as a part of a cell's name; "" for the first one.
    """

    name: str
    levels: tuple[str, ...]
    texts: tuple[str, ...]

    @property
    def effect(self) -> str:
        """The name of the main effect of a factor with two levels."""
        return self.describe_effect(1)

    def describe_effect(self, level: int) -> str:
        """Return the name of the effect of a level against the first one: ``no_wo``, or ``rotary instead of learned``."""
        if self.levels == ("off", "on"):
            return self.name
        return f"{self.texts[level]} instead of {self.levels[0]}"


@dataclass(frozen=True)
class FactorialDesign:
    """The factors of a study and the design over them.

    Attributes:
        name: ``full``, ``leave_one_out`` or ``fractional``.
        factors: in the order of the study.
        size: the number of cells.
    """

    name: Literal["full", "leave_one_out", "fractional"]
    factors: tuple[Factor, ...]
    size: int

    @property
    def points(self) -> list[Point]:
        """The cells in order; the last factor that takes all combinations varies fastest."""
        if self.name == "leave_one_out":
            k = len(self.factors)
            return [(1,) * k, *(tuple(int(j != i) for j in range(k)) for i in range(k)), (0,) * k]
        levels = [range(len(factor.levels)) for factor in self.factors]
        base = len(levels) - len(self.generators)
        return [self._completed(point) for point in itertools.product(*levels[:base])]

    def _completed(self, point: Point) -> Point:
        """Return a combination of the first factors with the levels of the generated ones: on if evenly many are off."""
        generated = (sum(1 - point[i] for i in word) % 2 == 0 for word in self.generators.values())
        return (*point, *(int(on) for on in generated))

    @property
    def generators(self) -> dict[int, tuple[int, ...]]:
        """Of a fractional design, each generated factor -> the factors that it is the product of; else empty."""
        if self.name != "fractional":
            return {}
        return generators(len(self.factors), self.size)

    @property
    def resolution(self) -> int | None:
        """The resolution of a fractional design, None of others. From 4 on, main effects are clear of interactions of two."""
        return resolution(len(self.factors), self.size) if self.name == "fractional" else None

    def level_counts(self, factor: int) -> list[int]:
        """Return the number of cells with each level of a factor."""
        column = [point[factor] for point in self.points]
        return [column.count(level) for level in range(len(self.factors[factor].levels))]


def generators(factors: int, cells: int) -> dict[int, tuple[int, ...]]:
    """Return each generated factor of a fraction -> the factors that it is the product of."""
    words = (word.split("=") for word in GENERATORS[factors, cells].split())
    return {LETTERS.index(name): tuple(LETTERS.index(letter) for letter in product) for name, product in words}


def defining_words(factors: int, cells: int) -> set[frozenset[int]]:
    """Return the defining relation of a fraction: the products of factors that are +1 in all of its cells, without 1 itself."""
    words = [frozenset((name, *product)) for name, product in generators(factors, cells).items()]
    relation: set[frozenset[int]] = {frozenset()}
    for word in words:
        relation |= {other ^ word for other in relation}
    return relation - {frozenset()}


def resolution(factors: int, cells: int) -> int:
    """Return the resolution of a fraction: the length of the shortest word of its defining relation."""
    return min(map(len, defining_words(factors, cells)))


def fractions(factors: int) -> dict[int, int]:
    """Return the fractions of a number of factors: cells -> resolution, in ascending order."""
    return {cells: resolution(k, cells) for k, cells in sorted(GENERATORS) if k == factors}


def default_fraction(factors: int) -> int | None:
    """Return the fewest cells with resolution IV or more, else the most cells of a fraction; None when there is none."""
    known = fractions(factors)
    clear = [cells for cells, resolution in known.items() if resolution >= 4]
    return min(clear, default=max(known, default=None))


def design_size(name: str, levels: list[int], cells: int | None) -> int:
    """Return the number of cells of a design over factors with these numbers of levels."""
    if name == "leave_one_out":
        return len(levels) + 2
    return math.prod(levels) if name == "full" else cells or 0
