"""Tests of the plan of a factorial study: its design in words, refused cells, and columns of factors."""

from pathlib import Path

import pytest

from attnlab.config.design import FactorialDesign
from attnlab.planning.factorial import describe_aliasing, describe_design, describe_ratio, missing_effects
from attnlab.planning.plan import plan
from tests.config.test_design import two_level
from tests.config.test_factors import FACTORS
from tests.support.studies import write


def test_the_ratio_of_eight_factors_in_sixteen_cells() -> None:
    ratio = describe_ratio(two_level(8, "fractional", 16), seeds=3)
    assert ratio == "each main effect from 24 runs against 24 (one factor at a time with as many runs: 5 against 5)"


@pytest.mark.parametrize(
    ("design", "expected"),
    [
        (two_level(3), "from 8 runs against 8 (one factor at a time with as many runs: 4 against 4)"),
        (two_level(3, "leave_one_out"), "from 2 runs against 2 (one factor at a time with as many runs: 2 against 2)"),
    ],
)
def test_the_ratio_of_other_designs(design: FactorialDesign, expected: str) -> None:
    assert expected in describe_ratio(design, seeds=2)


def test_a_fraction_states_generators_resolution_and_aliases() -> None:
    design = two_level(8, "fractional", 16)
    text = describe_design(design)
    assert "16 of 256" in text and "resolution IV" in text and "E = BCD, F = ACD, G = ABC, H = ABD" in text
    assert "A × B + C × G + D × H + E × F" in describe_aliasing(design)
    assert "A + B × C" in describe_aliasing(two_level(3, "fractional", 4))
    assert describe_aliasing(two_level(3)) == "" and "×" not in describe_aliasing(two_level(5, "fractional", 16))


def test_missing_cells_name_the_effects_that_they_take() -> None:
    design = two_level(3)
    assert missing_effects(design, design.points[1:]) == ""
    assert missing_effects(design, design.points[:-2]) == "no estimate of A × B, which is now a part of A, B"
    assert "main effect of A" in missing_effects(design, design.points[:4])
    assert missing_effects(design, []) == "no effect can be estimated"


def test_a_refused_combination_says_what_it_does_to_the_design(tmp_path: Path) -> None:
    text = FACTORS.replace("no_wo: {variant: no_wo}", "recurrent: {variant: gru}")
    planned = plan(write(tmp_path, text))
    refused = [cell.name for cell in planned.cells if cell.refusal]
    assert refused == ["recurrent+rotary", "all on"]
    note = next(note for note in planned.notes if "of the design" in note)
    assert note.startswith("2 of the 8 cells of the design are refused ('recurrent+rotary', 'all on')")
    assert "recurrent × rotary" in note


def test_two_equal_cells_of_a_design_are_noted(tmp_path: Path) -> None:
    """The number of heads changes nothing for a recurrent network: that cell is a copy, and no second observation."""
    text = FACTORS.replace("no_wo: {variant: no_wo}", "recurrent: {variant: gru}")
    text = text.replace("position: [learned, rotary]", "model.heads: [2, 3]")
    note = next(note for note in plan(write(tmp_path, text)).notes if "of the design" in note)
    assert note.startswith("2 of the 8 cells of the design are equal to another cell") and "recurrent × heads=3" in note


def test_factors_that_change_the_test_are_noted(tmp_path: Path) -> None:
    text = FACTORS.replace("no_wo: {variant: no_wo}", "long: {task: {name: pydocs, length: 32}}")
    assert any(note.startswith("no effect can be estimated") for note in plan(write(tmp_path, text)).notes)


def test_cells_have_a_number_for_each_factor(tmp_path: Path) -> None:
    planned = plan(write(tmp_path, FACTORS), only={"no_wo": "on"})
    assert [cell.factors for cell in planned.cells][-1] == {"no_wo": 1, "position": 1, "model.ff_mult": 1}
    assert len(planned.cells) == 4 and not any("of the design" in note for note in planned.notes)
