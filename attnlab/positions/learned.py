"""Learned absolute positions: one trained vector for each position.

Gehring et al. 2017, arXiv:1705.03122, section 3.1; also Vaswani et al. 2017, arXiv:1706.03762, section 3.5.

    x_p = e_p + P_p        the embedding e_p of token p, and the learned vector P_p

Departures from the papers: vectors start with a standard deviation of ``std``, 0.1, beside tokens with 1, unless
``model.initialization`` is ``gpt2``. In Gehring et al., both start with 0.1; ``nn.Embedding``, which many tutorials use, draws
both with 1.
Cost: length x dim parameters; time O(t dim), once for the model.
Glossary: ``table`` P.
"""

from types import MappingProxyType

import torch
from torch import Tensor, nn

from attnlab.positions.base import Position, PositionConfig


class Learned(Position):
    """A table of ``length`` vectors. Positions beyond it have no vector, so longer sequences are an error.

    Args:
        std: standard deviation of the initial vectors; token embeddings have 1. With ``model.initialization: gpt2`` both
            have 0.02.
    """

    hook = "embed"
    extrapolates = False
    parameter_roles = MappingProxyType({"table": "embedding"})
    paper = "Gehring et al. 2017"

    def __init__(self, config: PositionConfig, *, std: float = 0.1) -> None:
        super().__init__(config)
        self.table = nn.Parameter(torch.randn(config.length, config.dim) * std)

    def embed(self, t: int) -> Tensor:
        if t > len(self.table):
            raise ValueError(f"learned positions: expected a length of at most {len(self.table)}, got {t}")
        return self.table[:t]
