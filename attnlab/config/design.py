"""Factorial designs: the cells that a study with ``factors`` runs, their linear model, and its aliased effects.

``full`` runs all combinations of the levels. ``leave_one_out`` runs the cell with all factors on, one cell for each factor that
is off while all others are on, and the cell with all factors off. ``fractional`` runs a regular fraction of the combinations of
two-level factors: the first factors take all combinations, and each further factor is the product of some of them, with +1 for
on and -1 for off. The products (*generators*) come from the standard tables, which have the highest possible resolution.

The linear model of a design has terms with columns. The coefficient of each column is an effect in the unit of the response:

- the main effect of a level: its mean minus the mean of the factor's first level, both over all levels of the other factors;
- the interaction of two levels: half the difference between the effect of one with the other on and with the other off
  (Box, Hunter and Hunter), so that main effects and interactions of two-level factors have the same standard error;
- in a ``leave_one_out`` design the effect of a factor while all others are on, and one term for all interactions together: the
  amount by which the effect of all factors exceeds the sum of their single effects.

Two terms are *aliased* if the cells only determine their sum. Terms are taken in order, main effects first; a term with a
column that combines earlier ones is not estimated, and the effects that contain it say so.

Reference: Box, Hunter and Hunter (2005), Statistics for Experimenters, 2nd edition, chapters 5 and 6, table 6.22; for 9 to 11
factors Montgomery (2017), Design and Analysis of Experiments, 9th edition, appendix X.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator

from attnlab.config.types import Section, conflict, expected

if TYPE_CHECKING:
    import numpy

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
TOLERANCE = 1e-9  # relative length below which a column counts as a combination of others
BEYOND_SUM = "all together, beyond their sum"


class DesignConfig(Section):
    """The design of a study with ``factors``: a name, or ``{name: fractional, cells: 16}``."""

    name: Literal["full", "leave_one_out", "fractional"]
    cells: int | None = Field(
        default=None,
        ge=1,
        description="number of cells in a fractional design; null: the fewest with resolution IV, else the most",
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


@dataclass(frozen=True)
class Term:
    """A term of the model: its name, and (factor, level) of its one or two factors; none for all interactions together."""

    name: str
    levels: tuple[tuple[int, int], ...]

    @property
    def is_main(self) -> bool:
        """True for a main effect."""
        return len(self.levels) == 1


@dataclass(frozen=True)
class Estimable:
    """The terms that some cells determine.

    Attributes:
        kept: indices of the terms that are estimated.
        aliases: index of each other term -> the kept terms that contain it, with its coefficient in them; empty when it is in
            none, because the term is constant over the cells.
    """

    kept: tuple[int, ...]
    aliases: Mapping[int, Mapping[int, float]]


def model_terms(design: FactorialDesign) -> list[Term]:
    """Return the main effects, then the interactions of two factors (of ``leave_one_out``: all together)."""
    factors = design.factors
    levels = [(i, level) for i, factor in enumerate(factors) for level in range(1, len(factor.levels))]
    main = [Term(factors[i].describe_effect(level), ((i, level),)) for i, level in levels]
    if design.name == "leave_one_out":
        return [*main, Term(BEYOND_SUM, ())]
    pairs = [(a, b) for a, b in itertools.combinations(levels, 2) if a[0] != b[0]]
    return main + [Term(" × ".join(factors[i].texts[level] for i, level in pair), pair) for pair in pairs]


def model_columns(design: FactorialDesign, terms: Sequence[Term], points: Sequence[Point]) -> numpy.ndarray:
    """Return the columns of the terms at some points, shape (points, terms)."""
    import numpy

    at = numpy.asarray(points).reshape(len(points), len(design.factors))
    if design.name == "leave_one_out":
        main = -(at == 0).astype(float)
        return numpy.column_stack([main, -(at == 0).all(1).astype(float)])

    def column(factor: int, level: int) -> numpy.ndarray:
        return (at[:, factor] == level) - 1 / len(design.factors[factor].levels)

    columns = [numpy.prod([column(*pair) for pair in term.levels], 0) * 2 ** (len(term.levels) - 1) for term in terms]
    return numpy.stack(columns, 1)


def estimable_terms(columns: numpy.ndarray, *, blocks: numpy.ndarray | None = None) -> Estimable:
    """Return the terms that some runs determine.

    Args:
        columns: of the terms, shape (runs, terms).
        blocks: further columns of the model, shape (runs, blocks); default the mean alone.
    """
    import numpy

    basis = numpy.linalg.qr(numpy.ones((len(columns), 1)) if blocks is None else blocks)[0]
    within = columns - basis @ (basis.T @ columns)
    kept: list[int] = []
    aliases: dict[int, dict[int, float]] = {}
    orthogonal = numpy.zeros((len(columns), 0))
    for i, column in enumerate(within.T):
        rest = column - orthogonal @ (orthogonal.T @ column)
        rest = rest - orthogonal @ (orthogonal.T @ rest)  # a second pass removes the rounding of the first
        length, whole = numpy.linalg.norm(rest), numpy.linalg.norm(columns[:, i])
        if length > TOLERANCE * max(whole, 1e-300):
            kept.append(i)
            orthogonal = numpy.column_stack([orthogonal, rest / length])
            continue
        weights = numpy.linalg.lstsq(within[:, kept], column, rcond=None)[0] if kept else []
        aliases[i] = {k: float(round(w, 9)) for k, w in zip(kept, weights, strict=True) if abs(w) > 1e-6}
    return Estimable(tuple(kept), aliases)


def design_aliases(design: FactorialDesign, points: Sequence[Point]) -> tuple[list[Term], Estimable]:
    """Return the terms of a design, and those that these of its cells determine."""
    terms = model_terms(design)
    return terms, estimable_terms(model_columns(design, terms, points))
