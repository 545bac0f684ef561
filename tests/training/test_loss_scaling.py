"""Tests of `train.precision: fp16`: loss scaling, skipped steps, resumption, and where it is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from attnlab import plan
from attnlab.config.run import RunConfig
from attnlab.nn import processor
from attnlab.training import gradients
from attnlab.training.distributed import Group
from attnlab.training.gradients import LossScaler
from attnlab.training.train import train
from attnlab.training.trainer import Trainer
from tests.support.small_runs import recorded, tiny

CPU = torch.device("cpu")
BASE = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 16, "heads": 2}, "train": {"steps": 3, "precision": "fp16"}}


def trainer_of(config: RunConfig) -> Trainer:
    return Trainer(config, group=Group(), folder=None, device=CPU, report=lambda step, metrics: False)


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in trainer.model.state_dict().items()}


def test_a_run_in_fp16_is_close_to_one_in_fp32_and_shows_its_scale() -> None:
    (exact, _), (half, points) = recorded(tiny()), recorded(tiny(train__precision="fp16"))
    assert half.state == "completed" and half.summary["skipped_steps"] == 0
    assert half.summary["bits_per_byte"] == pytest.approx(exact.summary["bits_per_byte"], rel=1e-3)
    assert half.summary["bits_per_byte"] != exact.summary["bits_per_byte"]
    assert {metrics["train/loss_scale"] for _, metrics in points if "train/loss" in metrics} == {2.0**16}
    assert "skipped_steps" not in exact.summary


def test_small_gradients_survive_and_are_not_scaled_when_weights_are_updated() -> None:
    def gradient(precision: str, *, scaled: bool) -> float:
        layer = nn.Linear(1, 1, bias=False)
        nn.init.ones_(layer.weight)
        optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=1.0), LossScaler(precision, CPU)
        with torch.autocast("cpu", torch.float16):
            loss = layer(torch.ones(1, 1)).float().sum() * 1e-8
        (scaler.scale(loss) if scaled else loss).backward()
        if scaled:
            assert scaler.step(optimizer, list(layer.parameters()), grad_clip=None)
        assert layer.weight.grad is not None
        return layer.weight.grad.item()

    assert gradient("fp16", scaled=False) == 0
    assert gradient("fp16", scaled=True) == pytest.approx(1e-8, rel=1e-2)


def test_gradients_are_clipped_at_their_own_size() -> None:
    layer = nn.Linear(3, 1, bias=False)
    scaler = LossScaler("fp16", CPU)
    scaler.scale(layer(torch.tensor([[3.0, 4.0, 0.0]])).sum()).backward()
    assert scaler.step(torch.optim.SGD(layer.parameters(), lr=0.0), list(layer.parameters()), grad_clip=0.5)
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [pytest.approx([0.3, 0.4, 0.0], rel=1e-5)]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_step_whose_gradients_overflow_changes_nothing_but_the_scale(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fused optimizer would run its hooks, for example of cautious weight decay."""
    monkeypatch.setattr(gradients, "INITIAL_SCALE", 2.0**40)
    config = tiny(train__precision="fp16", train__optimizer=optimizer, train__cautious_decay=True, train__weight_decay=0.5)
    trainer = trainer_of(config)
    before = weights_of(trainer)
    trainer.take_step()
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(trainer).items())
    assert (trainer.step, trainer.scaler.skipped) == (1, 1) and not trainer.optimizer.state
    assert trainer.scaler.figures() == {"train/loss_scale": 2.0**39}
    while trainer.scaler.in_a_row:
        trainer.take_step()
    assert not all(torch.equal(weight, before[name]) for name, weight in weights_of(trainer).items())
    assert trainer.scaler.skipped < trainer.step


def test_an_interrupted_run_resumes_with_its_scale_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "INITIAL_SCALE", 2.0**24)
    config = tiny(train__precision="fp16", train__checkpoint_every=3, train__steps=14, train__log_every=1)
    whole = train(config, folder=tmp_path / "whole")
    assert 0 < whole.summary["skipped_steps"] < 14

    def interrupt(step: int, metrics: dict[str, float]) -> bool:
        if step >= 4:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        train(config, folder=tmp_path / "parts", report=interrupt)
    parts = train(config, folder=tmp_path / "parts")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert parts.summary["skipped_steps"] == whole.summary["skipped_steps"]


def test_a_run_that_skips_every_step_has_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "INITIAL_SCALE", 2.0**80)
    monkeypatch.setattr(gradients, "MOST_SKIPPED", 5)
    result, points = recorded(tiny(train__precision="fp16", train__eval_every=None))
    assert (result.state, result.step) == ("diverged", 5) and "fp16" in result.reason
    assert result.summary["skipped_steps"] == 5 and "bits_per_byte" not in result.summary


def test_losses_and_memories_of_a_step_that_overflowed_are_forgotten() -> None:
    trainer = trainer_of(tiny(train__precision="fp16", model__mem_len=8, variant="transformer_xl", position="relative"))
    trainer.take_step()
    assert trainer.memory is not None
    trainer.memory[0][0, 0, 0] = float("inf")
    trainer.take_step()
    assert trainer.scaler.skipped == 1 and trainer.memory is None
    trainer.take_step()
    trainer._log()
    ((_, metrics),) = trainer.history
    assert trainer.scaler.skipped == 1 and 0 < metrics["train/loss"] < 10


def test_micro_batches_are_scaled_alike() -> None:
    (whole, _), (parts, _) = (recorded(tiny(train__precision="fp16", train__gradient_accumulation=number)) for number in (1, 4))
    assert parts.summary["bits_per_byte"] == pytest.approx(whole.summary["bits_per_byte"], rel=1e-3)


# ---------------------------------------------------------------- plan


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_layer_without_a_kernel_is_refused(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "runs_in_half", lambda layer, tried: layer is not nn.LSTM or tried != precision)
    base: dict[str, Any] = {**BASE, "train": {"steps": 3, "precision": precision}, "machine": {"device": "cpu"}}
    lstm, dense = plan({"study": "s", "base": base, "grid": {"variant": ["lstm", "dense"]}}).cells
    assert dense.refusal is None and lstm.refusal is not None
    assert f"no {precision} kernel for nn.LSTM" in lstm.refusal
