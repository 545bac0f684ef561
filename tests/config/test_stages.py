"""Tests of the stages in a study file: their configuration in each cell, and mistakes with their places."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.config.grid import expand
from attnlab.config.reader import read_study
from attnlab.config.stages import StageCell, stage_of
from attnlab.errors import UserError

STUDY: dict[str, Any] = {
    "study": "chain",
    "base": {
        "task": {"name": "pydocs", "length": 32},
        "init": {"from": "pretrain"},
        "model": {"dim": 16},
        "train": {"epochs": 3, "lr": 1e-3, "frozen": 0, "layer_lr_decay": 0.9, "stop_at": 2.5},
        "evaluate": {"lengths": [64], "valid_limit": 500},
    },
    "stages": {"pretrain": {"task": {"length": 64}, "train": {"steps": 5}}},
    "grid": {"variant": ["dense", "no_wo"]},
}


def chain(index: int = 0, sets: dict[str, Any] | None = None, **changes: Any) -> list[StageCell]:
    """Return the stages of one cell, from the one that it starts from back to the first."""
    cell = expand(read_study({**STUDY, **changes}, sets=sets))[0][index]
    stages: list[StageCell] = []
    stage = stage_of(cell)
    while stage is not None:
        stages.append(stage)
        stage = stage_of(stage)
    return stages


def test_a_stage_is_the_base_with_its_own_fields_and_the_model_of_the_cell() -> None:
    (stage,) = chain(1, grid={"train.lr": [1e-2, 1e-3], "variant": ["no_wo"], "model.dim": [8], "position": ["rotary"]})
    assert stage.name == "pretrain: no_wo dim=8 rotary", "an axis over the cell's own training does not concern the stage"
    config = stage.config
    assert (config.variant.name, config.model.dim, config.position and config.position.name) == ("no_wo", 8, "rotary")  # type: ignore[union-attr]
    assert (config.train.steps, config.train.epochs, config.train.lr) == (5, None, 1e-3)
    assert config.task.options == {"length": 64} and config.init is None
    assert (config.train.frozen, config.train.layer_lr_decay) == (None, 1.0), "fine-tuning concerns the cells alone"
    assert config.train.stop_at is None, "the stage may have another metric"
    assert config.evaluate.lengths == () and config.evaluate.valid_limit == 500


def test_an_axis_may_set_fields_of_a_stage() -> None:
    stages = chain(3, grid={"variant": ["dense", "no_wo"], "stages.pretrain.task.length": [64, 128]})
    assert [(stage.name, stage.config.task.options["length"]) for stage in stages] == [("pretrain: no_wo length=128", 128)]
    level = {"model.dim": 8, "stages.pretrain.train.lr": 1e-2}
    (stage,) = chain(grid={"size": {"small": level, "large": {"model.dim": 32}}}, base={**STUDY["base"], "variant": "dense"})
    assert (stage.name, stage.config.model.dim, stage.config.train.lr) == ("pretrain: small", 8, 1e-2)


def test_a_stage_may_start_from_another_one() -> None:
    stages = {**STUDY["stages"], "adapt": {"init": "pretrain", "train": {"steps": 2}, "model": {"dropout": 0.1}}}
    base = {**STUDY["base"], "init": "adapt"}
    adapt, pretrain = chain(0, stages=stages, base=base, grid={"variant": ["dense"], "stages.pretrain.train.steps": [7]})
    assert (adapt.name, pretrain.name) == ("adapt: dense steps=7", "pretrain: dense steps=7")
    assert (adapt.config.train.steps, pretrain.config.train.steps) == (2, 7)
    assert pretrain.config.model.dropout == 0.1, "the model of what starts from it"


def test_a_cell_may_start_from_scratch_beside_others() -> None:
    study = read_study({**STUDY, "grid": {"variant": ["dense"], "init": [None, {"from": "pretrain"}]}})
    cells = expand(study)[0]
    assert [cell.name for cell in cells] == ["dense init=null", "dense init=pretrain"]
    assert stage_of(cells[0]) is None and stage_of(cells[1]) is not None


def test_an_assignment_of_steps_replaces_the_epochs_of_a_stage() -> None:
    (stage,) = chain(stages={"pretrain": {"train": {"epochs": 2}}}, sets={"stages.pretrain.train.steps": 4})
    assert (stage.config.train.steps, stage.config.train.epochs) == (4, None)


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"base": {**STUDY["base"], "init": "pretrian"}}, "base.init", ["'pretrian'", "did you mean 'pretrain'"]),
        ({"grid": {"variant": ["dense"], "init": [None, "nothing"]}}, "grid.init[1]", ["no stage 'nothing'", "pretrain"]),
        ({"stages": {}}, "base.init", ["no stage 'pretrain'", "no 'stages'"]),
        ({"stages": {"pretrain": {"init": "pretrain"}}}, "stages.pretrain.init", ["pretrain from pretrain"]),
        (
            {"stages": {"pretrain": {"init": "adapt"}, "adapt": {"init": "pretrain"}}},
            "stages.adapt.init",
            ["itself", "pretrain from adapt from pretrain"],
        ),
        ({"stages": {"pretrain": {"modl": {}}}}, "stages.pretrain.modl", ["did you mean 'model'"]),
        ({"stages": {"pretrain": {"train": {"steps": "x"}}}}, "stages.pretrain.train.steps", ["a whole number", "'x'"]),
        ({"stages": {"pretrain": {"train": None}}}, "stages.pretrain.train", ["expected a mapping"]),
        ({"stages": {"pretrain": {"seed": 3}}}, "stages.pretrain.seed", ["seeds: [...]"]),
        ({"stages": {"pre train": {}}}, "stages.pre train", ["expected a name"]),
        ({"grid": {"stages.pretran.train.lr": [1.0]}}, "grid.stages.pretran.train.lr", ["did you mean 'stages.pretrain'"]),
        ({"grid": {"stages.pretrain.train.rate": [1.0]}}, "grid.stages.pretrain.train.rate", ["'train.rate'", "field"]),
        (
            {"grid": {"variant": ["dense"], "stages.pretrain.train.lr": [1.0, "x"]}},
            "grid.stages.pretrain.train.lr[1]",
            ["a number", "'x'"],
        ),
        ({"grid": {"variant": ["dense"], "init": [{"form": "x"}]}}, "grid.init[0].form", ["did you mean 'from'"]),
        ({"init": "pretrain"}, "init", ["under base"]),
    ],
)
def test_a_mistake_is_one_line_with_its_place(changes: dict[str, Any], where: str, words: list[str]) -> None:
    with pytest.raises(UserError) as raised:
        chain(-1, **changes)
    assert raised.value.where == where
    assert all(word in raised.value.message for word in words), raised.value.message
    assert "\n" not in str(raised.value)


def test_the_place_of_a_stages_field_is_its_line(tmp_path: Path) -> None:
    path = tmp_path / "chain.yaml"
    path.write_text(
        "study: chain\nbase:\n  task: pydocs\n  init: pretrain\n  train: {steps: 2}\n"
        "stages:\n  pretrain:\n    task: {name: pydocs}\ngrid:\n  variant: [dense]\n  stages.pretrain.task.length: [8]\n"
    )
    cell = expand(read_study(path))[0][0]
    stage = stage_of(cell)
    assert stage is not None
    lines = {loc: stage.where(*loc).split(":")[-2] for loc in [("task", "name"), ("task", "length"), ("variant",), ("train",)]}
    assert lines == {("task", "name"): "8", ("task", "length"): "11", ("variant",): "10", ("train",): "5"}
    assert stage.place.split(":")[-2] == "7"
