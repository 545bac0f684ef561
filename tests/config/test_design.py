"""Tests of regular fractions: orthogonality, resolution and aliasing, against the defining relation."""

from itertools import combinations

import numpy
import pytest

from attnlab.config.design import (
    GENERATORS,
    Factor,
    FactorialDesign,
    default_fraction,
    defining_words,
    design_aliases,
    estimable_terms,
    fractions,
    model_columns,
    model_terms,
    resolution,
)

# Of the tables in Box, Hunter and Hunter, and of Montgomery from 9 factors on: factors -> cells -> resolution.
RESOLUTIONS = {
    3: {4: 3},
    4: {8: 4},
    5: {8: 3, 16: 5},
    6: {8: 3, 16: 4, 32: 6},
    7: {8: 3, 16: 4, 32: 4, 64: 7},
    8: {16: 4, 32: 4, 64: 5, 128: 8},
    9: {16: 3, 32: 4, 64: 4, 128: 6},
    10: {16: 3, 32: 4, 64: 4, 128: 5},
    11: {16: 3, 32: 4, 64: 4},
}


def two_level(factors: int, name: str = "full", cells: int | None = None) -> FactorialDesign:
    letters = "ABCDEFGHJKLMNOP"[:factors]
    size = cells or (factors + 2 if name == "leave_one_out" else 2**factors)
    return FactorialDesign(name, tuple(Factor(x, ("off", "on"), ("", x)) for x in letters), size)  # type: ignore[arg-type]


def test_the_resolutions_are_those_of_the_tables() -> None:
    assert {k: fractions(k) for k in RESOLUTIONS} == RESOLUTIONS
    assert [default_fraction(k) for k in (2, 3, 4, 5, 8, 9)] == [None, 4, 8, 16, 16, 32]


@pytest.mark.parametrize(("factors", "cells"), sorted(GENERATORS))
def test_a_fraction_is_balanced_and_orthogonal(factors: int, cells: int) -> None:
    design = two_level(factors, "fractional", cells)
    points = numpy.array(design.points)
    signs = 2 * points - 1
    assert points.shape == (cells, factors) and len(set(design.points)) == cells
    assert (signs.T @ signs == cells * numpy.eye(factors)).all()
    assert (1,) * factors in design.points, "the cell with all factors on belongs to every fraction"
    for word in defining_words(factors, cells):
        assert (signs[:, sorted(word)].prod(1) == 1).all()


def test_the_sixteen_cells_of_eight_factors_have_the_aliases_of_the_book() -> None:
    """Generators E = BCD, F = ACD, G = ABC, H = ABD: 14 words of four letters, one of eight, and AB = CG = DH = EF."""
    words = defining_words(8, 16)
    assert sorted(map(len, words)) == [4] * 14 + [8] and resolution(8, 16) == 4
    design = two_level(8, "fractional", 16)
    terms, estimable = design_aliases(design, design.points)
    assert len(estimable.kept) == 15 and estimable.kept[:8] == tuple(range(8))
    by_name = {terms[term].name: {terms[k].name: w for k, w in kept.items()} for term, kept in estimable.aliases.items()}
    assert by_name["C × G"] == by_name["D × H"] == by_name["E × F"] == {"A × B": 1.0}
    assert not {"A", "B", "C", "D", "E", "F", "G", "H"} & {name for kept in by_name.values() for name in kept}


@pytest.mark.parametrize(("factors", "cells"), [(k, n) for k, n in sorted(GENERATORS) if k <= 8])
def test_aliases_found_by_linear_algebra_are_those_of_the_defining_relation(factors: int, cells: int) -> None:
    design = two_level(factors, "fractional", cells)
    terms, estimable = design_aliases(design, design.points)
    relation = defining_words(factors, cells)
    sets = [frozenset(factor for factor, _ in term.levels) for term in terms]
    aliased = {(i, j) for j, kept in estimable.aliases.items() for i in kept}
    kept = set(estimable.kept)
    assert aliased == {(i, j) for i, j in combinations(range(len(terms)), 2) if sets[i] ^ sets[j] in relation and i in kept}


def test_coefficients_are_effects_on_minus_off() -> None:
    """A response with known effects: A +3, B -1, and A is worth 2 more with B on than with B off (an interaction of 1)."""
    design = two_level(2)
    terms = model_terms(design)
    response = [(0.0, 2.0, -2.0, 2.0)[a + 2 * b] for a, b in design.points]
    columns = numpy.column_stack([numpy.ones(4), model_columns(design, terms, design.points)])
    assert numpy.linalg.solve(columns, response)[1:] == pytest.approx([3.0, -1.0, 1.0])


def test_a_level_of_three_is_compared_with_the_first_over_all_others() -> None:
    size = Factor("size", ("s", "m", "l"), ("", "size=m", "size=l"))
    design = FactorialDesign("full", (size, Factor("gate", ("off", "on"), ("", "gate"))), 6)
    terms = model_terms(design)
    assert [term.name for term in terms] == [
        "size=m instead of s",
        "size=l instead of s",
        "gate",
        "size=m × gate",
        "size=l × gate",
    ]
    means = {0: 1.0, 1: 4.0, 2: 6.0}
    response = [means[size] + 0.5 * gate * (size == 2) for size, gate in design.points]
    columns = numpy.column_stack([numpy.ones(6), model_columns(design, terms, design.points)])
    effects = numpy.linalg.solve(columns, response)[1:]
    assert effects == pytest.approx([3.0, 5.25, 0.5 / 3, 0.0, 0.25])


def test_lost_cells_take_an_interaction_and_no_main_effect() -> None:
    design = two_level(3)
    columns = model_columns(design, model_terms(design), design.points)
    assert estimable_terms(columns[:-1]).kept == tuple(range(6)), "the interaction of three leaves one cell to spare"
    left = estimable_terms(columns[:-2])  # without A and B on together
    assert left.kept == (0, 1, 2, 4, 5)
    assert left.aliases == {3: {0: -1.0, 1: -1.0}}, "A × B is a part of the effects of A and of B"
