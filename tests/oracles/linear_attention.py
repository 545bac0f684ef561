"""Recurrences of a matrix-valued state, one position of one sequence at a time, as their papers state them.

S is (d_k, d_v), so that S k of the papers of DeltaNet, whose states are transposed, is ``S.T @ k`` here.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tests.oracles.recurrent import sigmoid

Step = Callable[[Tensor, int], Tensor]  # (S, position) -> the next S


def states(step: Step, n: int, d: int, e: int) -> list[Tensor]:
    """Return S after each of n positions, from zeros."""
    state = torch.zeros(d, e, dtype=torch.float64)
    after = []
    for i in range(n):
        state = step(state, i)
        after.append(state)
    return after


def decayed(k: Tensor, v: Tensor, decay: Tensor, real: list[bool] | None = None) -> list[Tensor]:
    """S <- Diag(a) S + k v^T for k (s, d), v (s, e) and decay (s, d or 1); a position that is not real leaves S as it is."""

    def step(state: Tensor, i: int) -> Tensor:
        if real is not None and not real[i]:
            return state
        return torch.diag(decay[i].expand(k.shape[1])) @ state + torch.outer(k[i], v[i])

    return states(step, len(k), k.shape[1], v.shape[1])


def delta(
    k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, real: list[bool] | None = None, *, write: Tensor | None = None
) -> list[Tensor]:
    """S <- (I - k (beta * k)^T) Diag(a) S + k (w * v)^T for beta and decay (s, d or 1), w (s, e) or beta."""
    d = k.shape[1]

    def step(state: Tensor, i: int) -> Tensor:
        if real is not None and not real[i]:
            return state
        erase = torch.eye(d, dtype=torch.float64) - torch.outer(k[i], beta[i] * k[i])
        written = (beta if write is None else write)[i] * v[i]
        return erase @ torch.diag(decay[i].expand(d)) @ state + torch.outer(k[i], written)

    return states(step, len(k), d, v.shape[1])


def outputs(q: Tensor, after: list[Tensor]) -> Tensor:
    """y = S^T q for the queries (t, d) of the last t positions: (t, e)."""
    return torch.stack([state.T @ row for row, state in zip(q, after[len(after) - len(q) :], strict=True)])


def convolved(z: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """y_t = b + sum_j w_j z_(t-j) for z (s, f) and weight (c, f), with nothing before the first position: (s, f)."""
    rows = []
    for t in range(len(z)):
        row = torch.zeros_like(z[0]) if bias is None else bias
        for j in range(min(len(weight), t + 1)):
            row = row + weight[j] * z[t - j]
        rows.append(row)
    return torch.stack(rows)


def turned(z: Tensor, phi: Tensor) -> Tensor:
    """Rotate the first pairs of features of z (d,) by the angles phi, as complex numbers."""
    pairs, rest = z[: 2 * len(phi)], z[2 * len(phi) :]
    rotated = torch.view_as_complex(pairs.view(-1, 2)) * torch.polar(torch.ones_like(phi), phi)
    return torch.cat([torch.view_as_real(rotated).flatten(), rest])


def silu(a: Tensor) -> Tensor:
    return a * sigmoid(a)


def softplus(a: Tensor) -> Tensor:
    return (1 + a.exp()).log()


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """x / sqrt(mean of x^2 + 1e-5) over the last dimension."""
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain


def group_norm(x: Tensor) -> Tensor:
    """Mean 0 and variance 1 over the last dimension."""
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def unit(x: Tensor) -> Tensor:
    """x / |x| over the last dimension."""
    return x / x.square().sum(-1, keepdim=True).sqrt()


def elu_features(x: Tensor) -> Tensor:
    """elu(x) + 1: x + 1 for x > 0, else exp(x)."""
    return torch.where(x > 0, x + 1, x.exp())


def taylor_weight(q: Tensor, k: Tensor) -> Tensor:
    """1 + z + z^2 / 2 with z = q . k / sqrt(d)."""
    z = (q * k).sum() / len(q) ** 0.5
    return 1 + z + z * z / 2
