"""Comparison of the feed-forward networks with their papers, and the number of their parameters."""

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from attnlab.nn import FeedForward
from attnlab.nn.feed_forward import ACTIVATIONS

PAPERS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda z: torch.where(z > 0, z, torch.zeros_like(z)),
    "relu2": lambda z: torch.where(z > 0, z * z, torch.zeros_like(z)),
    "gelu": lambda z: z * 0.5 * (1 + torch.erf(z / math.sqrt(2))),
    "gelu_tanh": lambda z: 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "swiglu": lambda z: z / (1 + torch.exp(-z)),
}


def linear(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def oracle(x: Tensor, weights: Mapping[str, Tensor], kind: str) -> Tensor:
    """Shazeer 2020, equations 1 to 6."""
    inner = linear(x, weights, "widen")
    inner = PAPERS[kind](linear(x, weights, "gate")) * inner if kind == "swiglu" else PAPERS[kind](inner)
    return linear(inner, weights, "narrow")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_every_kind_follows_its_paper_in_output_and_gradients(kind: str, bias: bool) -> None:
    torch.manual_seed(3)
    network = FeedForward(7, 3.0, kind=kind, dropout=0.0, bias=bias).double()
    weights = dict(network.named_parameters())
    assert {name.endswith("bias") for name in weights} == ({False, True} if bias else {False})
    x = torch.randn(2, 5, 7, dtype=torch.float64, requires_grad=True)
    ours, theirs = network(x), oracle(x, weights, kind)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    direction = torch.randn_like(ours)
    inputs = [x, *weights.values()]
    for a, b in zip(*(torch.autograd.grad((y * direction).sum(), inputs) for y in (ours, theirs)), strict=True):
        assert a.abs().max() > 0
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_gelu_and_its_approximation_differ() -> None:
    z = torch.linspace(-4, 4, 101, dtype=torch.float64)
    gap = (ACTIVATIONS["gelu"](z) - ACTIVATIONS["gelu_tanh"](z)).abs().max()
    assert 1e-5 < gap < 1e-3


@pytest.mark.parametrize(("dim", "multiple"), [(96, 4.0), (128, 4.0), (130, 2.6)])
def test_swiglu_has_the_parameters_of_the_others(dim: int, multiple: float) -> None:
    def parameters(kind: str) -> int:
        return sum(p.numel() for p in FeedForward(dim, multiple, kind=kind, dropout=0.0, bias=False).parameters())

    assert abs(parameters("swiglu") - parameters("gelu")) <= 1.5 * dim  # the inner width is rounded to a whole number
    assert parameters("relu") == parameters("relu2") == parameters("gelu") == 2 * dim * round(dim * multiple)


def test_dropout_drops_inner_features_in_training_only() -> None:
    network = FeedForward(8, 4.0, kind="swiglu", dropout=0.5)
    x = torch.randn(1, 3, 8)
    assert torch.equal(network.eval()(x), network(x))
    network.train()
    assert not torch.equal(network(x), network(x))
