"""Position schemes from their papers: sinusoids, RoFormer, ALiBi and Transformer-XL, one pair of positions at a time."""

import math

import torch
from torch import Tensor


def sinusoid(p: float, dim: int) -> Tensor:
    """(dim,): Vaswani et al. 2017, section 3.5, at the real position p."""
    waves = []
    for feature in range(dim):
        angle = p / 10_000 ** ((feature - feature % 2) / dim)
        waves.append(math.cos(angle) if feature % 2 else math.sin(angle))
    return torch.tensor(waves, dtype=torch.float64)


def rotated(x: Tensor, p: int, base: float = 10_000.0) -> Tensor:
    """x (d,) at position p: Su et al. 2021, equation 15, as a product with the block-diagonal rotation matrix."""
    d = len(x)
    matrix = torch.zeros(d, d, dtype=torch.float64)
    for i in range(d // 2):
        angle = p * base ** (-2 * i / d)
        matrix[2 * i, 2 * i] = matrix[2 * i + 1, 2 * i + 1] = math.cos(angle)
        matrix[2 * i, 2 * i + 1] = -math.sin(angle)
        matrix[2 * i + 1, 2 * i] = math.sin(angle)
    return matrix @ x


ALIBI_SLOPES = {  # Press et al. 2022, section 3, written out; 12 and 3 as their code interleaves them
    1: [1 / 256],
    2: [1 / 16, 1 / 256],
    3: [1 / 16, 1 / 256, 1 / 4],
    4: [1 / 4, 1 / 16, 1 / 64, 1 / 256],
    8: [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256],
    12: [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5],
}


def relative_logit(q: Tensor, k: Tensor, u: Tensor, v: Tensor, w_r: Tensor, distance: int) -> Tensor:
    """Dai et al. 2019, section 3.3: (a) + (b) + (c) + (d) of one pair, over sqrt(d).

    q, k, u, v: (d,) of one head. w_r: (d, dim), the head's W_kR.
    """
    r = w_r @ sinusoid(distance, w_r.shape[1])
    return (q @ k + q @ r + u @ k + v @ r) / len(q) ** 0.5
