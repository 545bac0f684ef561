"""Gehring et al. 2017, section 3.2: one output at a time, a weighted sum of neighbours times the sigmoid of another."""

import torch
from torch import Tensor


def gated(x: Tensor, weight: Tensor, bias: Tensor, i: int, *, first: int) -> Tensor:
    """Output i of x (t, dim): weight (2 dim, dim, k) and bias (2 dim,) over the positions i + first, i + first + 1, ..."""
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
