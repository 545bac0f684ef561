"""Tests of `match`: the cost of a cell is adjusted to that of its baseline, so that a report can be read both ways."""

from typing import Any

import pytest

from attnlab import plan
from attnlab.errors import UserError
from attnlab.planning.plan import Cell, Plan

DIM = 48


def planned(*variants: Any, **more: Any) -> Plan:
    base = {
        "task": {"name": "pydocs", "length": 32},
        "model": {"dim": DIM, "depth": 3, "heads": 4},
        "train": {"steps": 3},
        "machine": {"device": "cpu"},
    }
    study = {"study": "match", "base": base, "grid": {"variant": ["dense", *variants]}, "baseline": {"variant": "dense"}}
    return plan({**study, **more})


def inner(cell: Cell) -> int:
    """Return the width of the feed-forward."""
    return round(DIM * cell.config.model.ff_mult)


def test_what_no_wo_saves_goes_into_the_feed_forward() -> None:
    dense, bare, matched = planned("no_wo", {"name": "no_wo", "match": "params"}).cells
    assert bare.parameters is not None and dense.parameters is not None and matched.parameters is not None
    assert dense.parameters - bare.parameters == 3 * DIM * DIM, "one dim x dim matrix in each of three blocks"
    # One more unit of the feed-forward has a column, a row and a bias: 2 dim + 1 parameters.
    # By hand: 4 dim + dim^2 / (2 dim + 1).
    assert inner(dense) == inner(bare) == 4 * DIM and inner(matched) == 4 * DIM + round(DIM**2 / (2 * DIM + 1))
    assert abs(matched.parameters - dense.parameters) <= 3 * (2 * DIM + 1) / 2, "no other width is nearer"
    assert matched.name == "no_wo match=params" and matched.config.variant.match is None  # type: ignore[union-attr]
    assert matched.matched == (
        f"model.ff_mult 4.0 becomes 4.5: {matched.parameters:,} parameters, "
        f"{matched.parameters / dense.parameters - 1:+.2%} against 'dense'"
    )


def test_arithmetic_can_be_matched_instead() -> None:
    dense, matched = planned({"name": "narrow", "match": "flops"}).cells
    assert matched.flops_per_token == pytest.approx(dense.flops_per_token, rel=0.01)
    assert inner(matched) > inner(dense) and matched.parameters != dense.parameters


def test_swiglu_costs_as_much_as_gelu_and_can_be_matched() -> None:
    """Of 2/3 of the width: three matrices of 128 rows have as many parameters and products as two of 192."""
    base = {
        "task": {"name": "pydocs", "length": 32},
        "model": {"dim": DIM, "depth": 3, "heads": 4, "bias": False},
        "train": {"steps": 3},
        "machine": {"device": "cpu"},
    }
    variants = ["dense", {"name": "no_wo", "match": "params"}]
    study = {"grid": {"variant": variants, "model.feed_forward": ["gelu", "swiglu"]}}
    gelu, swiglu, matched_gelu, matched = planned(base=base, **study).cells
    assert inner(gelu) == inner(swiglu) == 192 and swiglu.config.model.feed_forward == "swiglu"
    assert swiglu.parameters == gelu.parameters and swiglu.flops_per_token == gelu.flops_per_token
    assert swiglu.train_flops == gelu.train_flops
    for cell, baseline in ((matched_gelu, gelu), (matched, swiglu)):
        assert cell.refusal is None and inner(cell) > inner(baseline)
        assert cell.parameters == pytest.approx(baseline.parameters, rel=0.01)


def test_another_field_can_be_named() -> None:
    by = {"name": "no_wo", "match": {"cost": "params", "by": "model.depth"}}
    base = {"task": {"name": "pydocs", "length": 32}, "model": {"dim": 16, "depth": 40, "heads": 2}, "train": {"steps": 3}}
    dense, matched = planned(by, base=base).cells
    assert matched.config.model.depth > dense.config.model.depth == 40
    assert matched.parameters == pytest.approx(dense.parameters, rel=0.01)


def test_each_cell_is_matched_to_its_own_baseline() -> None:
    cells = planned(grid={"variant": ["dense", {"name": "no_wo", "match": "params"}], "model.dim": [24, 48]}).cells
    by_axes = {(cell.axes["variant"], cell.axes["model.dim"]): cell for cell in cells}
    for dim in (24, 48):
        matched, dense = by_axes["no_wo match=params", dim], by_axes["dense", dim]
        assert matched.parameters == pytest.approx(dense.parameters, rel=0.01)


def test_what_cannot_be_matched_within_one_per_cent_is_refused() -> None:
    cell = planned({"name": "no_wo", "match": {"cost": "params", "by": "model.depth"}}).cells[1]
    assert cell.refusal is not None and "within 1 %, but model.depth 3 becomes 3" in cell.refusal
    wide = planned({"name": "wide", "match": "params"}).cells[1]
    assert wide.refusal is not None and wide.refusal.startswith("match: expected "), "not even with a feed-forward of one unit"


def test_a_match_for_which_no_value_can_be_run_is_refused() -> None:
    cell = planned(by("model.mem_len")).cells[1]  # pydocs draws its rows at random places, which excludes memory
    assert cell.refusal is not None and cell.refusal.startswith("match: with model.mem_len=")


SEARCH = {"trials": 2, "space": {"model.dropout": {"low": 0.0, "high": 0.5}}}


TO_PARAMS = {"name": "no_wo", "match": "params"}


def by(field: str) -> dict[str, Any]:
    return {"name": "no_wo", "match": {"cost": "params", "by": field}}


@pytest.mark.parametrize(
    ("variant", "more", "words"),
    [
        (TO_PARAMS, {"baseline": None}, "expected a 'baseline' in the study to match to, got none"),
        (TO_PARAMS, {"baseline": {"variant": "no_wo"}}, "cannot be matched to itself"),
        (by("model.norm"), {}, "expected one of model.ff_mult, "),
        (by("model.wdth"), {}, "'model.wdth' is not a field of a run"),
        ({"name": "no_wo", "match": "size"}, {}, "expected 'params', 'flops' or {cost: ..., by: ...}, got 'size'"),
        (
            TO_PARAMS,
            {"search": {"trials": 2, "space": {"model.ff_mult": {"low": 1.0, "high": 4.0}}}, "confirm": {"seeds": [1]}},
            "expected no 'model.ff_mult', which may change the sizes",
        ),
        (
            TO_PARAMS,
            {"search": {"trials": 2, "space": {"model.depth": {"low": 1, "high": 4}}}, "confirm": {"seeds": [1]}},
            "expected no 'model.depth', which may change the sizes",
        ),
        (by("task.length"), {}, "expected one of model.ff_mult, "),
        (by("train.steps"), {}, "expected one of model.ff_mult, "),
        (by("model.dropout"), {}, "expected one of model.ff_mult, "),
        (by("variant.stride"), {}, "or an option of no_wo that is a whole number, got variant.stride"),
    ],
)
def test_a_match_that_means_nothing_is_one_line(variant: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        planned(variant, **more)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_search_keeps_what_was_matched() -> None:
    study_plan = planned(TO_PARAMS, search=SEARCH, confirm={"seeds": [5]})
    matched = study_plan.cells[1]
    trial = study_plan.search_run(matched, 0, {"model.dropout": 0.25})
    assert trial.config.model.ff_mult == matched.config.model.ff_mult != 4.0 and trial.config.model.dropout == 0.25


def test_an_option_is_matched_within_the_length() -> None:
    def option(**options: Any) -> dict[str, Any]:
        return {"name": "strided_sparse", "match": {"cost": "flops", "by": "variant.stride"}, **options}

    dense, matched = planned(option(stride=7)).cells
    assert matched.flops_per_token == pytest.approx(dense.flops_per_token, rel=0.01)
    assert 7 < matched.config.variant.options["stride"] <= 32  # type: ignore[union-attr]
    default = planned(grid={"variant": ["no_wo", option()]}, baseline={"variant": "no_wo"}).cells[1]
    assert default.matched.startswith("variant.stride 16 becomes "), "an option that is not written out has its default"
    wide = planned(grid={"variant": ["wide", option()]}, baseline={"variant": "wide"}).cells[1]
    assert wide.refusal is not None and "at 32" in wide.refusal, "no stride beyond the length is tried"


def test_a_field_that_another_level_sets_can_be_adjusted() -> None:
    levels = {
        "plain": {"variant": "dense"},
        "sandwich": {"variant": {"name": "dense", "match": "params"}, "model.norm": "sandwich"},
        "bare": {"variant": {"name": "dense", "match": {"cost": "params", "by": "model.dim"}}, "model.ff_mult": 0},
    }
    plain, *matched = planned(grid={"block": levels}, baseline={"block": "plain"}).cells
    for cell in matched:
        assert cell.parameters == pytest.approx(plain.parameters, rel=0.01) and cell.matched is not None
    own = {**levels, "bare": {"variant": {"name": "dense", "match": "params"}, "model.ff_mult": 2}}
    with pytest.raises(UserError, match="grid sets model.ff_mult already"):
        planned(grid={"block": own}, baseline={"block": "plain"})
