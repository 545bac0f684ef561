"""CoPE: contextual positions, which count the keys that the query selects.

Golovneva et al. 2024, arXiv:2405.18719, "Contextual Position Encoding: Learning to Count What's Important".

    g_ij  = sigmoid(q_i . k_j)                                     the gate: how much key j counts for query i
    p_ij  = sum_{t=j}^i g_it                                       the position of key j, from the query backwards
    e[p]  = (p - floor(p)) e[ceil(p)] + (1 - p + floor(p)) e[floor(p)]
    a_ij  = softmax_j( q_i . (k_j + e[p_ij]) )

with learned vectors e[0], ..., e[P - 1]; larger positions are clipped to P - 1. The products q_i . e[p] of whole positions are
computed first and then interpolated, so that no vector e[p_ij] is formed. Keys that a query may not attend to do not count.

Departures from the paper: its equations, above, have no division. As in its listing, q_i . k_j is divided by sqrt(d) in the
gate and in the logit, and q_i . e[p] is not, so that positions weigh sqrt(d) times as much against the content as in the
equations. The heads of a block share the vectors e (not verified: the listing is for one head).
Cost: q_i . k_j once more, and about five (b, h, t, s) tensors saved for the backward pass; P d parameters for each block.
Glossary: ``embedding`` e; ``positions`` P.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.nn.layers import causal_mask
from attnlab.positions.base import Position, PositionConfig


class Cope(Position):
    """Positions counted by gates, which depend on queries and keys. It supports any length.

    Args:
        positions: P, the number of distinct whole positions; 64 in the paper's language models.
    """

    hook = "bias"
    relative = True
    reads_mask = True
    paper = "Golovneva et al. 2024"

    def __init__(self, config: PositionConfig, *, positions: int = 64) -> None:
        super().__init__(config)
        self.embedding = nn.Parameter(torch.zeros(positions, config.head_dim))

    @classmethod
    def unsupported(cls, config: PositionConfig, *, options: Mapping[str, Any] = MappingProxyType({})) -> str | None:
        if config.role == "bidirectional":
            return "does not support the role bidirectional: positions count the keys from the query backwards"
        if options.get("positions", 64) < 2:
            return f"expected at least 2 positions, got {options['positions']}"
        return super().unsupported(config, options=options)

    def bias(  # type: ignore[override] of whole logits only
        self, q: Tensor, k: Tensor, *, scale: float, visible: Tensor | None = None
    ) -> Tensor:
        t, s = q.shape[-2], k.shape[-2]
        visible = causal_mask(t, s, device=q.device) if visible is None else visible
        exact = torch.promote_types(q.dtype, torch.float32)  # a sum of hundreds of gates exceeds the precision of bf16
        gates = (scale * (q.to(exact) @ k.to(exact).mT)).sigmoid() * visible
        p = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.embedding) - 1)  # (b, h, t, s)
        whole = q.to(exact) @ self.embedding.to(exact).mT  # (b, h, t, P)
        floor = p.detach().floor()
        low = floor.long()
        high = (low + 1).clamp(max=len(self.embedding) - 1)
        return torch.lerp(whole.gather(-1, low), whole.gather(-1, high), p - floor)
