"""Tests of the files of a trained model: exact weights, tied ones included, and one line for each kind of damage."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.tasks.pydocs import PyDocs
from attnlab.training import weights
from attnlab.training.train import train
from tests.support.small_runs import tiny
from tests.support.surroundings import Program


def saved(folder: Path, **changes: object) -> nn.Module:
    config = tiny(**changes)
    model = build(config, PyDocs(length=24, sampling="contiguous"))
    weights.save(model, config, folder)
    return model


@pytest.mark.parametrize("tied", [False, True])
def test_weights_return_bit_by_bit(tied: bool, tmp_path: Path) -> None:
    model = saved(tmp_path, model__tie_embeddings=tied)
    config, state, _ = weights.load(tmp_path)
    assert config == tiny(model__tie_embeddings=tied)
    assert ("head.weight" in state) != tied
    other = build(config.replace({"seed": 7}), PyDocs(length=24, sampling="contiguous"))
    weights.load_into(other, state)
    expected = model.state_dict()
    assert all(torch.equal(expected[name], tensor) for name, tensor in other.state_dict().items())
    assert load_file(tmp_path / "model.safetensors").keys() == state.keys(), "other programs can read the file"


def test_other_types_and_shapes_return_too(tmp_path: Path) -> None:
    model = nn.Module()
    model.register_buffer("scalar", torch.tensor(3.5))
    model.register_buffer("bf16", torch.randn(2, 3).bfloat16())
    model.register_buffer("empty", torch.empty(0, 4))
    model.register_buffer("transposed", torch.randn(2, 5).mT)
    weights.save(model, tiny(), tmp_path)
    state = weights.load(tmp_path)[1]
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items()) and len(state) == 4


def flip(path: Path, place: int) -> None:
    contents = bytearray(path.read_bytes())
    contents[place] ^= 1
    path.write_bytes(contents)


@pytest.mark.parametrize(
    ("file", "harm"),
    [
        ("model.safetensors", "flipped"),
        ("model.safetensors", "cut short"),
        ("model.safetensors", "empty"),
        ("model.safetensors", "of another program"),
        ("config.json", "cut short"),
        ("config.json", "empty"),
    ],
)
def test_damage_is_one_line_with_the_file(file: str, harm: str, tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / file
    if harm == "flipped":
        flip(path, len(path.read_bytes()) - 40)
    elif harm == "cut short":
        path.write_bytes(path.read_bytes()[:-100])
    elif harm == "of another program":
        save_file({"x": torch.zeros(2)}, path)
    else:
        path.write_text("")
    with pytest.raises(UserError, match=file.replace(".", r"\.")) as raised:
        weights.load(tmp_path)
    assert "\n" not in raised.value.message


def test_a_program_is_not_run(tmp_path: Path) -> None:
    saved(tmp_path)
    torch.save({"model": Program(tmp_path / "it_was_run")}, tmp_path / "model.safetensors")
    with pytest.raises(UserError):
        weights.load(tmp_path)
    assert not (tmp_path / "it_was_run").exists()


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    state = weights.load(tmp_path)[1]
    task = PyDocs(length=24, sampling="contiguous")
    for changes, words in (({"model__depth": 1}, "unexpected"), ({"model__depth": 3}, "lacks"), ({"model__dim": 24}, "shape")):
        with pytest.raises(ValueError, match=words):
            weights.load_into(build(tiny(**changes), task), state)


class Stateful(nn.Module):
    """A module whose state holds more than tensors."""

    def get_extra_state(self) -> dict[str, int]:
        return {"count": 3}

    def set_extra_state(self, state: dict[str, int]) -> None:
        return None


def test_a_model_that_cannot_be_saved_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_extra_state(config: object, task: object) -> nn.Module:
        model = build(tiny(), PyDocs(length=24, sampling="contiguous"))
        model.extra = Stateful()
        return model

    monkeypatch.setattr("attnlab.training.trainer.build", with_extra_state)
    monkeypatch.setattr("attnlab.training.trainer.Trainer.take_step", lambda self: pytest.fail("it was trained"))
    with pytest.raises(UserError, match="_extra_state"):
        train(tiny(), folder=tmp_path)


def test_training_leaves_a_model_without_pickles(tmp_path: Path) -> None:
    train(tiny(train__steps=1, evaluate__test=False), folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors", "result.json", "task.json"]
    assert json.loads((tmp_path / "config.json").read_text())["train"]["steps"] == 1
