"""Tests of ``over``: levels at which cells are compared."""

from pathlib import Path

import pytest

from attnlab.config.grid import expand
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from tests.support.studies import SEARCH, STUDY, misplanned, write

OVER = "over: {train.steps: [2, 5, 11]}\n"
LEVELLED = STUDY.replace("seeds:", f"{OVER}seeds:").replace(", {name: strided_sparse, stride: 7}", "")


def test_levels_are_the_last_axis_of_the_grid(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, LEVELLED))
    cells, _ = expand(study)
    assert [cell.name for cell in cells[:4]] == ["dense steps=2", "dense steps=5", "dense steps=11", "no_wo steps=2"]
    assert [cell.config.train.steps for cell in cells] == [2, 5, 11] * 2
    assert study.over_axis == "train.steps" and list(study.axes) == ["variant", "train.steps"]
    assert cells[1].place == study.where("over", "train.steps", 1) == f"{tmp_path}/s.yaml:10:25"


def test_a_cell_is_compared_with_the_baseline_of_its_own_level(tmp_path: Path) -> None:
    planned = plan(write(tmp_path, LEVELLED))
    baseline = planned.baseline_of(planned.cells[4])
    assert planned.cells[4].name == "no_wo steps=5" and baseline is not None and baseline.name == "dense steps=5"
    assert [cell.name for cell in plan(write(tmp_path, LEVELLED), only={"steps": "5"}).cells] == [
        "dense steps=5",
        "no_wo steps=5",
    ]


def test_a_study_as_a_dict_keeps_its_levels(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, LEVELLED))
    again = read_study(study.model_dump(mode="json", exclude_defaults=True))
    assert again.over_axis == "train.steps"
    assert [cell.config for cell in expand(again)[0]] == [cell.config for cell in expand(study)[0]]


def test_levels_that_set_several_fields_are_named_by_numbers(tmp_path: Path) -> None:
    over = 'over: {width: {"12": {model.dim: 12, train.lr: 2e-3}, "24": {model.dim: 24}}}\n'
    cells, _ = expand(read_study(write(tmp_path, LEVELLED.replace(OVER, over))))
    assert [(cell.name, cell.config.model.dim) for cell in cells[:2]] == [("dense 12", 12), ("dense 24", 24)]


def test_levels_and_a_search_in_each_cell(tmp_path: Path) -> None:
    text = SEARCH.replace("search:", "over: {model.depth: [1, 2]}\nsearch:", 1)
    cells = plan(write(tmp_path, text)).cells
    assert [cell.name for cell in cells] == ["dense depth=1", "dense depth=2", "no_wo depth=1", "no_wo depth=2"]


@pytest.mark.parametrize(
    ("over", "place", "words"),
    [
        ("over: {train.steps: [2]}", "10:8", ("at least two levels", "got 1")),
        ("over: {train.steps: [2, 5, 2]}", "10:28", ("each value once", "2")),
        ("over: {train.steps: [2, 2.0]}", "10:25", ("each value once",)),
        ("over: {train.steps: [0, 2]}", "10:22", ("above 0", "got 0")),
        ("over: {model.norm: [pre, post]}", "10:21", ("numbers above 0", "'pre'")),
        ("over: {width: {small: {model.dim: 12}, large: {model.dim: 24}}}", "10:16", ("numbers above 0", "'small'")),
        ("over: {train.stops: [2, 5]}", "10:8", ("'train.stops' is not a field", "train.steps")),
        ("over: {train.steps: [2, 5], model.dim: [12, 24]}", "10:7", ("one axis",)),
        ("over: [2, 5]", "10:7", ("one axis", "a list of 2")),
        ("over: {train.steps: 5}", "10:21", ("expected a list",)),
        ("over: {variant: [dense, wide]}", "10:8", ("'variant'", "does not have")),
        ("over: {train.steps: [2, oak]}", "10:25", ("numbers above 0", "'oak'")),
        ("over: {train.steps: [true, 5]}", "10:22", ("numbers above 0", "true")),
    ],
)
def test_mistakes_in_the_levels(over: str, place: str, words: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_study(write(tmp_path, LEVELLED.replace(OVER, f"{over}\n")))
    assert str(error.value.where).endswith(f"s.yaml:{place}"), error.value
    assert all(word in error.value.message for word in words), error.value


def test_levels_need_a_baseline_that_has_every_level(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'baseline'") as error:
        read_study(write(tmp_path, LEVELLED.replace("baseline: {variant: dense}", "")))
    assert str(error.value.where).endswith("s.yaml:10:1")
    fixed = LEVELLED.replace("baseline: {variant: dense}", "baseline: {variant: dense, train.steps: 2}")
    with pytest.raises(UserError, match="expected no 'train.steps'") as error:
        read_study(write(tmp_path, fixed))
    assert str(error.value.where).endswith("s.yaml:12:28")


def test_a_level_cannot_be_assigned_over(tmp_path: Path) -> None:
    assert "the axis 'train.steps'" in misplanned(write(tmp_path, LEVELLED), sets={"train.steps": 3})
