"""Differential attention: the difference of two softmax attentions.

Ye et al. 2024, arXiv:2410.05258, "Differential Transformer".

    [Q_1; Q_2] = x W_Q, [K_1; K_2] = s W_K, V = s W_V
    DiffAttn   = (softmax(Q_1 K_1^T / sqrt(d)) - lambda softmax(Q_2 K_2^T / sqrt(d))) V
    lambda     = exp(lambda_q1 . lambda_k1) - exp(lambda_q2 . lambda_k2) + lambda_init
    y          = Concat_i((1 - lambda_init) RMSNorm(DiffAttn_i)) W_O
    lambda_init = 0.8 - 0.6 exp(-0.3 (l - 1))          in block l = 1, 2, ...

A head has two queries and two keys of width d = dim / (2 h) for each position, and values of width 2 d. RMSNorm normalizes
each head by itself. The heads of a block share lambda.

Departures from the paper: none. ``model.attention_dropout`` drops weights of each softmax. Both softmaxes of a head have the
same position scheme. The paper halves the number of heads of the Transformer that it compares with: ``model.heads``.
Cost: as ``dense`` with 2 h heads of d features for queries and keys and 2 d for values; 4 dim^2 + 6 d parameters.
Glossary: ``project`` W_Q, W_K, W_V stacked, the two queries of a head next to each other; ``lambda_q``, ``lambda_k`` lambda_q1
and lambda_q2, lambda_k1 and lambda_k2 stacked; ``norm`` RMSNorm; ``out`` W_O.
"""

from math import exp

import torch
from torch import Tensor, nn

from attnlab.errors import UserError
from attnlab.nn.cache import Cache, SequenceCache
from attnlab.nn.layers import Projections, merge_heads
from attnlab.variants.base import AttentionConfig, Setting, Variant

EPS = 1e-5  # added to the mean square of a head


class Differential(Variant):
    """Attention weights that are the difference of two softmaxes.

    Args:
        lambda_init: a number for all blocks; None: the paper's, which grows from block to block.

    Raises:
        UserError: ``lambda_init`` is not between 0 and 1.
    """

    supports_memory = True
    supports_cache = True
    supports_attention_bias = True
    residual_projections = ("out",)
    backends = ("reference", "blocked", "sdpa")
    paper = "Ye et al. 2024"

    def __init__(self, config: AttentionConfig, *, lambda_init: float | None = None) -> None:
        super().__init__(config)
        if lambda_init is not None and not 0 < lambda_init < 1:
            raise UserError(f"differential: expected a lambda_init between 0 and 1, got {lambda_init:g}")
        self.lambda_init = 0.8 - 0.6 * exp(-0.3 * config.layer) if lambda_init is None else lambda_init
        dim, d = config.dim, self.head_dim(config.dim, config.heads)
        self.project = Projections(dim, dim, heads=2 * config.heads, bias=config.bias)
        self.lambda_q = nn.Parameter(0.1 * torch.randn(2, d))
        self.lambda_k = nn.Parameter(0.1 * torch.randn(2, d))
        self.norm = nn.RMSNorm(2 * d, eps=EPS)
        self.out = nn.Linear(dim, dim, bias=config.bias)

    @classmethod
    def head_dim(cls, dim: int, heads: int) -> int:
        return dim // heads // 2

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        if setting.dim % setting.heads == 0 and (width := setting.dim // setting.heads) % 2:
            return f"requires a head width that is even, got {width}: a head has two queries of half of it"
        return super().unsupported(setting)

    def new_cache(self) -> Cache:
        return SequenceCache()

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)  # (b, 2 h, t or s, d)
        k, v = self._extend(k, v)
        values = torch.cat([v[:, 0::2], v[:, 1::2]], dim=-1)  # (b, h, s, 2 d)
        # Both softmaxes in one call, as rows of the batch: position schemes then see h heads.
        q, k = (torch.cat([z[:, 0::2], z[:, 1::2]]) for z in (q, k))  # (2 b, h, t or s, d)
        y = self.attend(q, k, values.repeat(2, 1, 1, 1), None if mask is None else mask.repeat(2, 1))
        first, second = y.chunk(2)
        lambda_1, lambda_2 = (self.lambda_q * self.lambda_k).sum(-1).exp()
        y = self.norm(first - (lambda_1 - lambda_2 + self.lambda_init) * second)
        return self.out((1 - self.lambda_init) * merge_heads(y))

    def _extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values (b, 2 h, s, d) of all positions, with those in the cache."""
        if not isinstance(self.cache, SequenceCache):
            return k, v
        both = self.cache.extend(torch.cat([k, v], dim=-1).transpose(1, 2))
        k, v = both.transpose(1, 2).chunk(2, dim=-1)
        return k, v
