"""The linear model of a factorial design: its terms, their columns, and the terms that a set of cells cannot tell apart.

The coefficient of each column is an effect in the unit of the response:

- the main effect of a level: its mean minus the mean of the factor's first level, both over all levels of the other factors;
- the interaction of two levels: half the difference between the effect of one with the other on and with the other off
  (Box, Hunter and Hunter), so that main effects and interactions of two-level factors have the same standard error;
- in a ``leave_one_out`` design the effect of a factor while all others are on, and one term for all interactions together: the
  amount by which the effect of all factors exceeds the sum of their single effects.

Two terms are *aliased* if the cells only determine their sum. Terms are taken in order, main effects first; a term with a
column that combines earlier ones is not estimated, and the effects that contain it say so.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnlab.config.design import FactorialDesign, Point

if TYPE_CHECKING:
    import numpy

TOLERANCE = 1e-9  # relative length below which a column counts as a combination of others
BEYOND_SUM = "all together, beyond their sum"


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
