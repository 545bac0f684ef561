"""Recurrences, one position of one sequence at a time: Cho et al. 2014, section 2.3; Hochreiter & Schmidhuber 1997.

Weights are (rows of every gate stacked, columns): W of the input and U of the state, each with a bias.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

Layer = dict[str, Tensor]  # by the names of torch.nn.GRU and torch.nn.LSTM
Recurrence = Callable[[Layer, Iterable[Tensor]], list[Tensor]]


def sigmoid(a: Tensor) -> Tensor:
    return 1 / (1 + (-a).exp())


def tanh(a: Tensor) -> Tensor:
    return 2 * sigmoid(2 * a) - 1


def products(layer: Layer, x: Tensor, h: Tensor, gates: int) -> Iterable[tuple[Tensor, Tensor]]:
    """For each gate W x and U h, biases included."""
    from_x = (layer["weight_ih_l0"] @ x + layer["bias_ih_l0"]).chunk(gates)
    from_h = (layer["weight_hh_l0"] @ h + layer["bias_hh_l0"]).chunk(gates)
    return zip(from_x, from_h, strict=True)


def gru(layer: Layer, xs: Iterable[Tensor]) -> list[Tensor]:
    """Equations 5 to 8; in (8) the reset gate comes after the product."""
    h = torch.zeros(layer["weight_hh_l0"].shape[1], dtype=torch.float64)
    states = []
    for x in xs:
        (wx_r, uh_r), (wx_z, uh_z), (wx, uh) = products(layer, x, h, 3)
        r, z = sigmoid(wx_r + uh_r), sigmoid(wx_z + uh_z)
        h = z * h + (1 - z) * tanh(wx + r * uh)
        states.append(h)
    return states


def lstm(layer: Layer, xs: Iterable[Tensor]) -> list[Tensor]:
    """With the forget gate of Gers et al. 2000."""
    h = c = torch.zeros(layer["weight_hh_l0"].shape[1], dtype=torch.float64)
    states = []
    for x in xs:
        i, f, g, o = (wx + uh for wx, uh in products(layer, x, h, 4))
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)
        states.append(h)
    return states


def gated(x: Tensor, weight: Tensor, bias: Tensor, i: int, *, first: int) -> Tensor:
    """Gehring et al. 2017, section 3.2: a weighted sum of neighbors times the sigmoid of another.

    Output i of x (t, dim): weight (2 dim, dim, k) and bias (2 dim,) over the positions i + first, i + first + 1, ...
    """
    sums = bias
    for j in range(weight.shape[2]):
        p = i + first + j
        if 0 <= p < len(x):
            sums = sums + weight[:, :, j] @ x[p]
    content, gate = sums.chunk(2)
    return content / (1 + (-gate).exp())


def convolved(x: Tensor, weight: Tensor, bias: Tensor, *, causal: bool) -> Tensor:
    """x (t, dim) -> (t, dim): k positions that end at i, or that have i in their middle."""
    k = weight.shape[2]
    first = 1 - k if causal else -(k - 1) // 2
    return torch.stack([gated(x, weight, bias, i, first=first) for i in range(len(x))])
