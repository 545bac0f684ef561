"""Vaswani et al. 2017, equation 1, pair by pair: the attention that the other oracles share."""

from collections.abc import Callable

import torch
from torch import Tensor

Visible = Callable[[int, int, int], bool]  # (head, i, j): may query i see key j?
Logit = Callable[[int, Tensor, Tensor, int, int], Tensor]  # (head, q_i, k_j, i, j): the whole logit


def attention(q: Tensor, k: Tensor, v: Tensor, *, visible: Visible, logit: Logit) -> Tensor:
    """q (h, t, d), k and v (h, s, d) of one sequence -> (h, t, d). A query that may attend to no key yields zeros."""
    heads = []
    for h in range(q.shape[0]):
        rows = []
        for i in range(q.shape[1]):
            keys = [j for j in range(k.shape[1]) if visible(h, i, j)]
            if not keys:
                rows.append(torch.zeros_like(v[h, 0]))
                continue
            logits = torch.stack([logit(h, q[h, i], k[h, j], i, j) for j in keys])
            weights = logits.exp() / logits.exp().sum()
            rows.append(sum(w * v[h, j] for w, j in zip(weights, keys, strict=True)))
        heads.append(torch.stack(rows))
    return torch.stack(heads)


def scaled_product(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
    """q . k / sqrt(d)."""
    return (q * k).sum() / len(q) ** 0.5


def heads_of(x: Tensor, weight: Tensor, heads: int) -> Tensor:
    """x (t, dim) through weight (h d, dim), head by head: (h, t, d)."""
    d = weight.shape[0] // heads
    return torch.stack([x @ weight[h * d : (h + 1) * d].T for h in range(heads)])


def concatenated(y: Tensor) -> Tensor:
    """(h, t, d) -> (t, h d)."""
    return torch.cat(list(y), dim=-1)


def behind(t: int, s: int, i: int, j: int) -> int:
    """Return the distance of key j behind query i if both sequences end together."""
    return (s - t) + i - j
