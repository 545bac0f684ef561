"""Relative positions of Transformer-XL.

Dai et al. 2019, arXiv:1901.02860, "Transformer-XL", section 3.3. The logit between query i and key j has four terms before
the scale:

    A_ij = q_i . k_j            (a) content, which the variant itself computes
         + q_i . r_(i-j)        (b) content-dependent distance
         + u . k_j              (c) global content
         + v . r_(i-j)          (d) global distance

with r_n = W_kR R_n, R_n the sinusoid of the distance n, and learned vectors u, v for each head. This scheme adds (b), (c) and
(d), so it works with any variant that has logits, whole or in parts, with or without memory.

Departures from the paper: u and v belong to one block (the authors' ``untie_r``); the authors initialize them with zeros or
from a normal distribution, attnlab with zeros; in a bidirectional role, distances are negative for keys ahead (as in XLNet);
sines and cosines alternate in R_n, where the authors' code has the sines first, an order that W_kR absorbs.
Cost: one (b, h, t, s) tensor in addition to the logits; a view, not a gather, moves its distances into place. W_kR is applied
once to each distance, even where parts with different offsets share it. dim^2 + 2 dim parameters for each block.
Glossary: ``distance`` W_kR; ``u`` u; ``v`` v; ``r`` r_n.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.attention import RelativeLogits
from attnlab.nn.layers import relative_shift, sinusoids
from attnlab.positions.base import Position, PositionConfig


class Relative(Position):
    """Learned interaction of queries, keys and their distance, with the global vectors u and v. It supports any length."""

    hook = "bias"
    relative = True
    paper = "Dai et al. 2019"

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        h, d = config.heads, config.head_dim
        self.distance = nn.Linear(config.dim, h * d, bias=False)
        self.u = nn.Parameter(torch.zeros(h, d))
        self.v = nn.Parameter(torch.zeros(h, d))

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        t, s = q.shape[-2], k.shape[-2]
        # Distances s-1 .. 0, then those of keys ahead: one more than is used, so that `relative_shift` can be a view.
        ahead = 1 if self.config.role == "causal" else t
        n = torch.arange(s - 1, -ahead - 1, -1, device=q.device) * step
        if isinstance(offset, Tensor):
            largest = s * step - 1  # offsets are smaller than a step, so all distances are in this range
            distances = torch.arange(largest, -(ahead + 1) * step, -1, device=q.device)
            r = self.r(distances, heads)[largest - (n + offset[..., 0, 0])]
        else:
            r = self.r(n + offset, heads)
        r = r.movedim(-2, -3).to(q.dtype)  # ([...,] h, s+ahead, d)
        u, v = self.u[heads].to(k.dtype), self.v[heads].to(q.dtype)
        by_distance = ((q + v[:, None]) * scale) @ r.mT  # (..., h, t, s+ahead), (b) + (d)
        by_content = torch.einsum("hd,...hsd->...hs", u * scale, k)  # (c)
        return relative_shift(by_distance, s) + by_content.unsqueeze(-2)

    def relative_logits(self, q: Tensor, s: int) -> RelativeLogits | None:
        if type(self).bias is not Relative.bias:  # a subclass with another bias
            return None
        ahead = 1 if self.config.role == "causal" else q.shape[-2]
        n = torch.arange(s - 1, -ahead - 1, -1, device=q.device)
        r = self.r(n, slice(None)).movedim(-2, -3).to(q.dtype)  # (h, s+ahead, d)
        return RelativeLogits(q + self.u[:, None].to(q.dtype), q + self.v[:, None].to(q.dtype), r)  # (a) + (c), (b) + (d)

    def r(self, n: Tensor, heads: slice) -> Tensor:
        """Compute r_n (m, h, d) of the distances n (m,), for some of the heads."""
        weight = self.distance.weight.unflatten(0, self.u.shape)[heads].flatten(0, 1)
        waves = sinusoids(n, self.config.dim).to(weight.dtype)
        return F.linear(waves, weight).unflatten(-1, (-1, self.config.head_dim))
