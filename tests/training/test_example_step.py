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
    step = ExampleStep(tiny(**changes))
    first = step.gradients()
    assert relative_difference(step.gradients(), first) == 0.0
    assert step.seconds() > 0
    assert relative_difference(step.gradients(), first) > 1e-4, "the step did not change the weights"


def test_steps_of_one_process_keep_their_settings() -> None:
    config = tiny()
    step, medium = ExampleStep(config), ExampleStep(config.replace({"machine.matmul_precision": "medium"}))
    reference = step.gradients()
    try:
        assert relative_difference(medium.gradients(), reference) < 0.1
        assert torch.get_float32_matmul_precision() == "medium"
        step.seconds()
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(("dropout", "exact"), [(0.0, True), (0.5, False)])
def test_backends_agree_unless_they_drop_other_weights(dropout: float, exact: bool) -> None:
    blocked, sdpa = (
        ExampleStep(tiny(backend=backend, model__attention_dropout=dropout)).gradients() for backend in ("blocked", "sdpa")
    )
    assert (relative_difference(sdpa, blocked) < 1e-5) == exact


def test_products_in_bf16_are_found() -> None:
    config = tiny()
    reference = ExampleStep(config).gradients()
    in_bf16 = ExampleStep(config.replace({"train.precision": "bf16"})).gradients()
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
