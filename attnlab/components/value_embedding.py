"""Value embeddings: a table of values by token, gated for each head.

Karpathy 2025, nanochat, https://github.com/karpathy/nanochat, after Jordan et al. 2024, modded-nanogpt.

    v_j <- v_j + 3 sigmoid(x_j W_g) E[token_j]              for each head; a table E for each block

The values of a block then know their token, whatever the blocks before made of it.

Departures from nanochat: the gate reads all features of x, and a study chooses the blocks (``model.layers``); nanochat has
tables in every second one. With fewer heads of values than of queries, a head adds the mean over its group.
Cost: O(s dim h); vocabulary h d + dim h parameters, most of a small model with a large vocabulary: compare with
    ``match: params``.
Glossary: ``table`` E; ``gate`` W_g.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.components.base import Component, ComponentConfig
from attnlab.errors import UserError
from attnlab.nn.layers import split_heads


class ValueEmbedding(Component):
    """Values to which a learned vector of their token is added."""

    roles = frozenset({"causal", "bidirectional"})
    supports_memory = False  # which has no tokens
    parameter_roles = MappingProxyType({"table": "embedding"})
    reads_tokens = True
    paper = "Karpathy 2025"

    def __init__(self, config: ComponentConfig) -> None:
        super().__init__(config)
        if not config.vocabulary:
            raise UserError("expected a vocabulary of tokens, which a model passes, got none", "value_embedding")
        self.gate = nn.Linear(config.dim, config.heads, bias=False)
        nn.init.zeros_(self.gate.weight)
        self.table = nn.Parameter(config.dim**-0.5 * torch.randn(config.vocabulary, config.heads, config.head_dim))

    def value_function(self, context: Tensor) -> Callable[[Tensor], Tensor]:
        tokens = self.tokens
        if tokens is None or tokens.shape != context.shape[:2]:
            got = "none" if tokens is None else f"{tuple(tokens.shape)}"
            raise UserError(f"expected a token for each input, {tuple(context.shape[:2])}, got {got}", "value_embedding")
        gates = 3 * split_heads(self.gate(context), self.config.heads).sigmoid()  # (b, h, s, 1)
        rows = self.table[tokens.clamp(min=0)] * (tokens >= 0)[..., None, None]  # (b, s, h, d)

        def values(v: Tensor) -> Tensor:
            if v.shape[-1] != self.config.head_dim:
                raise UserError(f"expected values of width {self.config.head_dim}, got {v.shape[-1]}", "value_embedding")
            added = gates * rows.transpose(1, 2)
            return v + added.unflatten(1, (v.shape[1], -1)).mean(2).to(v.dtype)

        return values

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tokens": None}  # of the last call
