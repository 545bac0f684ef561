"""Tests of fine-tuning: frozen layers keep their values, and each layer has its learning rate."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.config.run import RunConfig, TrainConfig
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.registry import TASKS
from attnlab.training import weights
from attnlab.training.optim import build_optimizer, freeze, layer_numbers, set_learning_rate
from attnlab.training.train import train
from tests.support.small_runs import tiny

EMBEDDINGS = {"backbone.embedding.weight", "backbone.position.table"}


def model_of(config: RunConfig) -> Any:
    return build(config, TASKS.get(config.task.name)(**config.task.options))


def trained(config: RunConfig, folder: Path) -> dict[str, Tensor]:
    train(config, folder=folder)
    return weights.load(folder)[1]


def layer(name: str) -> int:
    """Return the layer of a parameter of a model with two blocks."""
    return 1 + int(name.split(".")[2]) if ".blocks." in name else 0 if name in EMBEDDINGS else 3


@pytest.mark.parametrize(("model", "options"), [("learned", {}), ("rotary", {}), ("learned", {"model__tie_embeddings": True})])
def test_layers_are_embeddings_blocks_and_output(model: str, options: dict[str, Any]) -> None:
    numbers = layer_numbers(model_of(tiny(position=model, **options)))
    assert numbers == {name: layer(name) for name in numbers}
    assert set(numbers.values()) == {0, 1, 2, 3}


@pytest.mark.parametrize(("frozen", "moving"), [(None, {0, 1, 2, 3}), (0, {1, 2, 3}), (1, {2, 3}), (2, {3}), ("all", {3})])
def test_frozen_layers_do_not_move_and_the_others_do(frozen: Any, moving: set[int], tmp_path: Path) -> None:
    config = tiny(position="learned", train__frozen=frozen, train__weight_decay=0.1)
    start, end = model_of(config).state_dict(), trained(config, tmp_path)
    moved = {layer(name) for name in end if not torch.equal(start[name], end[name])}
    still = {layer(name) for name in end if torch.equal(start[name], end[name])}
    assert moved == moving and not moved & still


def test_tied_embeddings_are_frozen_with_the_embeddings(tmp_path: Path) -> None:
    config = tiny(model__tie_embeddings=True, train__frozen="all")
    start, end = model_of(config).state_dict(), trained(config, tmp_path)
    assert torch.equal(start["backbone.embedding.weight"], end["backbone.embedding.weight"])
    assert not torch.equal(start["head.bias"], end["head.bias"])


def test_each_layer_has_the_rate_of_the_one_above_times_the_factor() -> None:
    config = tiny(position="learned", train__layer_lr_decay=0.5)
    model = model_of(config)
    optimizer = build_optimizer(model, config.train)
    set_learning_rate(optimizer, 0.8)
    names = {id(p): name for name, p in model.named_parameters()}
    groups = {names[id(p)]: group for group in optimizer.param_groups for p in group["params"]}
    assert groups.keys() == set(names.values())
    for name, group in groups.items():
        assert group["lr"] == pytest.approx(0.8 * 0.5 ** (3 - layer(name)))
        assert (group["weight_decay"] == 0) == (dict(model.named_parameters())[name].dim() < 2)


def test_without_options_there_are_two_groups_as_before() -> None:
    model = model_of(tiny())
    groups = build_optimizer(model, tiny().train).param_groups
    assert [len(group["params"]) for group in groups] == [
        sum(p.dim() >= 2 for p in model.parameters()),
        sum(p.dim() < 2 for p in model.parameters()),
    ]
    assert {group["lr_scale"] for group in groups} == {1.0}


def test_a_smaller_factor_moves_lower_layers_less(tmp_path: Path) -> None:
    def distance(decay: float) -> float:
        config = tiny(train__layer_lr_decay=decay)
        start, end = model_of(config).state_dict(), trained(config, tmp_path / str(decay))
        return (start["backbone.embedding.weight"] - end["backbone.embedding.weight"]).norm().item()

    assert distance(0.1) < 0.01 * distance(1.0)


def test_a_run_with_both_options_resumes_to_the_same_bits(tmp_path: Path) -> None:
    config = tiny(train__frozen=1, train__layer_lr_decay=0.5, train__checkpoint_every=4, model__dropout=0.1)
    whole = trained(config, tmp_path / "whole")

    def interrupt(step: int, metrics: dict[str, float]) -> bool:
        if step >= 8:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        train(config, folder=tmp_path / "parts", report=interrupt)
    assert list((tmp_path / "parts").glob("*.pt")), "expected a checkpoint"
    parts = trained(config, tmp_path / "parts")
    assert whole.keys() == parts.keys() and all(torch.equal(whole[name], parts[name]) for name in whole)


def test_frozen_layers_save_less_for_the_backward_pass() -> None:
    saved = [train(tiny(train__frozen=frozen)).summary["saved_mib"] for frozen in (None, 1, "all")]
    assert saved[0] > saved[1] > saved[2]


def test_frozen_parameters_get_no_gradient() -> None:
    model = model_of(tiny())
    freeze(model, TrainConfig(steps=1, frozen="all"))
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {
        "backbone.norm.weight",
        "backbone.norm.bias",
        "head.weight",
        "head.bias",
    }


@pytest.mark.parametrize(
    ("field", "value"), [("frozen", -1), ("frozen", "none"), ("layer_lr_decay", 0), ("layer_lr_decay", 1.5)]
)
def test_invalid_values(field: str, value: Any) -> None:
    with pytest.raises(UserError) as error:
        tiny(**{f"train__{field}": value})
    assert f"train.{field}" in f"{error.value.where} {error.value}"


def test_more_frozen_blocks_than_the_model_has_are_refused(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "study: frozen\n"
        "base:\n  variant: dense\n  task: {name: pydocs, length: 16}\n  model: {dim: 8, depth: 2, heads: 2}\n"
        "  train: {steps: 1, batch_size: 2}\n"
        "grid: {train.frozen: [null, 0, 2, 3, all]}\nseeds: 0-1\n"
    )
    cells = attnlab.plan(study).cells
    assert [cell.refusal is not None for cell in cells] == [False, False, False, True, False]
    assert "train.frozen: expected at most 2 blocks" in str(cells[3].refusal)
