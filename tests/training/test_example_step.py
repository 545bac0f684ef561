"""Tests of the step that settings of the machine are measured with."""

from typing import Any

import pytest
import torch

from attnlab.training.example_step import ExampleStep, relative_difference
from tests.support.small_runs import tiny

KINDS: list[dict[str, Any]] = [
    {},
    {"model__mem_len": 8, "variant": "transformer_xl", "position": "relative"},
    {"model__dropout": 0.3, "model__attention_dropout": 0.3},
    {"train__precision": "bf16", "train__optimizer": "muon"},
]


@pytest.mark.parametrize("changes", KINDS)
def test_gradients_are_those_of_the_present_weights(changes: dict[str, Any]) -> None:
    config = tiny(**changes)
    step = ExampleStep(config)
    first = step.gradients(config.machine)
    assert relative_difference(step.gradients(config.machine), first) == 0.0
    assert step.seconds(config.machine) > 0
    assert relative_difference(step.gradients(config.machine), first) > 1e-4, "the step did not change the weights"


def test_settings_stay_with_the_process_and_the_difference_is_small() -> None:
    config = tiny()
    step, medium = ExampleStep(config), config.machine.model_copy(update={"matmul_precision": "medium"})
    reference = step.gradients(config.machine)
    try:
        assert relative_difference(step.gradients(medium), reference) < 0.1
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_products_in_bf16_are_found() -> None:
    config = tiny()
    reference = ExampleStep(config).gradients(config.machine)
    in_bf16 = ExampleStep(config.replace({"train.precision": "bf16"})).gradients(config.machine)
    assert relative_difference(in_bf16, reference) > 1e-3


def test_the_relative_difference_is_the_larger_one() -> None:
    one, two = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    reference = (torch.tensor(2.0), [one, two])
    assert relative_difference(reference, reference) == 0.0
    assert relative_difference((torch.tensor(2.0), [one, two * 1.5]), reference) == pytest.approx(2 / 5)
    assert relative_difference((torch.tensor(3.0), [one, two]), reference) == pytest.approx(0.5)
    zero = (torch.tensor(0.0), [torch.zeros(2)])
    assert relative_difference(zero, zero) == 0.0
    for infinite in (float("nan"), float("inf")):
        assert not relative_difference((torch.tensor(infinite), [one, two]), reference) <= 1e-5
        assert not relative_difference((torch.tensor(2.0), [one, two * infinite]), reference) <= 1e-5
