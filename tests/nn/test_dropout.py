"""Tests of dropout: rates, scales, gradients, and the cases that are left to PyTorch."""

import pytest
import torch
from torch import Tensor, nn

from attnlab.nn.layers import Dropout, dropout_factors

RATES = [0.001, 0.1, 0.3, 0.5, 0.9, 0.999]


def factors(p: float, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    torch.manual_seed(0)
    return dropout_factors(torch.empty(shape, dtype=dtype), p)


@pytest.mark.parametrize("p", RATES)
def test_each_factor_is_zero_with_probability_p(p: float) -> None:
    drawn = factors(p, 1000, 1001)
    share, n = (drawn == 0).double().mean().item(), drawn.numel()
    assert abs(share - p) < 4 * (p * (1 - p) / n) ** 0.5 + 2**-17
    assert drawn.unique().numel() == 2
    assert drawn.max().item() == pytest.approx(1 / (1 - p), abs=2**-16 / (1 - p) ** 2)


@pytest.mark.parametrize("p", RATES)
def test_the_expectation_is_exact(p: float) -> None:
    """Of all 2^16 levels, as many are dropped as the scale says."""
    levels = torch.arange(-(2**15), 2**15)
    drawn = factors(p, 1000, 1000)
    dropped = round(p * 2**16)
    assert (levels < dropped - 2**15).sum() == dropped
    assert drawn.max().item() * (2**16 - dropped) == pytest.approx(2**16, rel=1e-15)


def test_neighbours_are_independent() -> None:
    """The four factors of one draw, and those of consecutive draws: no correlation beyond chance at lags of 1 to 8."""
    drawn = (factors(0.5, 1 << 20) != 0).double() - 0.5
    for lag in range(1, 9):
        assert abs((drawn[:-lag] * drawn[lag:]).mean().item()) < 4 * 0.25 / drawn.numel() ** 0.5
    for place in range(4):
        assert abs(drawn[place::4].mean().item()) < 4 * 0.5 / (drawn.numel() / 4) ** 0.5


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (5, 7), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_shape_and_dtype_are_kept(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    drawn = factors(0.5, *shape, dtype=dtype)
    assert drawn.shape == shape and drawn.dtype == dtype


def test_the_layer_multiplies_input_and_gradient_by_the_same_factors() -> None:
    layer, x = Dropout(0.3), torch.randn(4, 50, 8).mT.requires_grad_()  # not contiguous
    torch.manual_seed(0)
    y = layer(x)
    assert y.shape == x.shape and 0.15 < (y == 0).double().mean() < 0.45
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(y, x * gradient)
    torch.manual_seed(0)
    assert torch.equal(layer(x), y)
    assert not torch.equal(layer(x), y)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_and_everything_can_be_dropped(p: float) -> None:
    x = torch.randn(5)
    assert torch.equal(Dropout(p)(x), nn.Dropout(p)(x))
    assert torch.equal(Dropout(0.5).eval()(x), x)
