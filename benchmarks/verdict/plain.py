"""The cells of the quickstart in plain PyTorch, in one file, in the manner of nanoGPT.

Every cell computes what attnlab's does, parameter by parameter. Attention is PyTorch's ``scaled_dot_product_attention``; the
sparse cells pass it their mask, so that it computes all pairs.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Causal attention of one of the cells.

    Args:
        variant: name of the cell's variant.
        heads: number of heads; the variant ``basic`` has none.
        options: of the variant.
    """

    mask: Tensor | None

    def __init__(self, variant: str, *, dim: int, heads: int, length: int, options: Mapping[str, int]) -> None:
        super().__init__()
        self.variant, self.heads = variant, heads
        width = heads * dim if variant == "wide" else dim
        if variant == "narrow":
            self.query, self.key, self.value = (nn.Linear(dim // heads, dim // heads, bias=False) for _ in range(3))
        elif variant != "basic":
            self.qkv = nn.Linear(dim, 3 * width, bias=False)
        self.out = nn.Identity() if variant in ("no_wo", "basic") else nn.Linear(width, dim, bias=False)
        mask = sparse_mask(variant, heads=heads, length=length, **options) if variant in SPARSE else None
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, t, dim) to (b, t, dim)."""
        b, t, _ = x.shape
        if self.variant == "basic":
            return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True, scale=1.0)[:, 0]
        if self.variant == "narrow":
            x = x.view(b, t, self.heads, -1).transpose(1, 2)
            q, k, v = self.query(x), self.key(x), self.value(x)
        else:
            q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1))
        mask = None if self.mask is None else self.mask[:, :t, :t]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out(y.transpose(1, 2).flatten(2))


SPARSE = ("strided_sparse", "fixed_sparse")


def sparse_mask(variant: str, *, heads: int, length: int, stride: int = 16, summary: int = 4) -> Tensor:
    """Return the mask (heads, length, length) of Child et al. 2019, arXiv:1904.10509, True = may be attended to."""
    i, j = torch.arange(length)[:, None], torch.arange(length)
    if variant == "strided_sparse":
        local, distant = i - j <= stride, (i - j) % stride == 0
    else:
        local, distant = i // stride == j // stride, j % stride >= stride - summary
    half = heads // 2
    return torch.stack([*[local] * half, *[distant.expand(length, length)] * (heads - half)]) & (j <= i)


class Block(nn.Module):
    """Attention and a feed-forward network, each after a layer norm and with a residual connection."""

    def __init__(self, attention: Attention, dim: int) -> None:
        super().__init__()
        self.attention = attention
        self.widen, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.norm_attention, self.norm_feed_forward = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.narrow(F.gelu(self.widen(self.norm_feed_forward(x))))


class LanguageModel(nn.Module):
    """A language model with learned positions.

    Args:
        config: the fields of a resolved ``RunConfig``.
        vocabulary: number of tokens.
    """

    def __init__(self, config: Mapping[str, Any], vocabulary: int) -> None:
        super().__init__()
        dim, length = config["model"]["dim"], config["task"]["length"]
        self.scale = sqrt(dim)
        self.embedding = nn.Embedding(vocabulary, dim)
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        self.position = nn.Parameter(0.1 * torch.randn(length, dim))
        self.blocks = nn.ModuleList([Block(attention(config), dim) for _ in range(config["model"]["depth"])])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (b, t) to logits (b, t, vocabulary) of the next ones."""
        x = self.scale * self.embedding(tokens) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def attention(config: Mapping[str, Any]) -> Attention:
    """Return the attention of a block of a resolved configuration."""
    model, options = config["model"], dict(config["variant"])
    name = options.pop("name")
    return Attention(name, dim=model["dim"], heads=model["heads"], length=config["task"]["length"], options=options)
