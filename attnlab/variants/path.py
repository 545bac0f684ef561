"""PaTH attention: the positions between query and key transform their logit.

Yang et al. 2025, arXiv:2505.16381, "PaTH Attention: Position Encoding via Accumulating Householder Transformations".

    w_t    = silu(conv(W_2 W_1 x)_t), divided by its length          beta_t = 2 sigmoid(W_beta x_t + b_beta)
    H_t    = I - beta_t w_t w_t^T
    s_ij   = k_j^T H_(j+1) H_(j+2) ... H_i q_i / sqrt(d)
    y_i    = W_O Concat(sum_(j <= i) softmax_j(s_ij) v_j)

Where rotary positions turn the product of a query and a key by their distance, here each position between them multiplies it by
its generalized Householder matrix, which depends on the input: a position scheme that counts what happened, for example
brackets or swaps. conv(z)_t = sum_(j < c) u_j * z_(t-j) is a causal convolution of each feature, with ``short_conv`` c.

The products are as in a delta rule. For keys of one block, c_lj is what position l > j removes from key j along w_l:

    c_lj   = beta_l w_l . (k_j - sum_(j < m < l) c_mj w_m)           a unit triangular system
    s_ij   = q_i . k_j - sum_(l <= i) (q_i . w_l) c_lj               before the scale

and a query passes a whole block by the transposed system. Padding has beta = 0.

Departures from the paper: there is no forget gate (PaTH-FoX). Decoding keeps keys that all later positions have transformed, as
in the paper, and so needs no w of earlier ones. Weights are drawn as in all other variants. The logits of a row are held as a
whole, without the paper's kernel: the variant is meant for rows of some hundreds of positions.
Cost: time O(t s dim (1 + C / d)) in blocks of C = 64 keys; O(h t s) memory for the logits and O(t s dim / C) for the queries
between blocks; 4 dim^2 + (2 r + h) dim + h parameters with ``rank`` r, and c dim of the convolution. Decoding caches keys and
values, as ``dense``, and c - 1 inputs of the convolution.
Glossary: ``project`` W_Q, W_K, W_V; ``turn`` W_1, then W_2; ``convolution`` u; ``beta`` W_beta and b_beta; ``out`` W_O.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.attention import AttentionMask
from attnlab.nn.cache import KeyValueCache
from attnlab.nn.layers import Projections, merge_heads, split_heads
from attnlab.nn.linear_attention import without_autocast
from attnlab.nn.shift import ShortConvolution
from attnlab.variants.base import AttentionConfig, Setting, Variant
from attnlab.variants.delta import unit_length

BLOCK = 64  # keys


class Path(Variant):
    """Attention with logits that pass a Householder matrix at each position between query and key.

    Args:
        rank: inner width of the projection to w.
        short_conv: number of positions of the convolution of w; 0: none.
    """

    roles = frozenset({"causal"})
    hooks = frozenset({"embed"})
    supports_memory = True
    supports_cache = True
    supports_attention_bias = True
    default_position = "none"  # the scheme is that of the variant
    permutation_equivariant = False
    residual_projections = ("out",)
    paper = "Yang et al. 2025"

    def __init__(self, config: AttentionConfig, *, rank: int = 32, short_conv: int = 3) -> None:
        super().__init__(config)
        dim = config.dim
        self.project = Projections(dim, dim, heads=config.heads, bias=config.bias)
        self.turn = nn.Sequential(nn.Linear(dim, rank, bias=False), nn.Linear(rank, dim, bias=False))
        self.convolution = ShortConvolution(dim, width=short_conv) if short_conv else None
        self.beta = nn.Linear(dim, config.heads)
        self.out = nn.Linear(dim, dim, bias=config.bias)

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        options = setting.options
        if options.get("rank", 1) < 1 or options.get("short_conv", 0) < 0:
            return f"expected a rank of at least 1 and a short_conv of at least 0, got {dict(options)}"
        return super().unsupported(setting)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        w, beta = self._householder(x if context is None else context, mask)
        with without_autocast(x.device):
            if isinstance(self.cache, KeyValueCache):
                new = k.shape[2]
                k, v = self.cache.extend(k, v)
                past = k.shape[2] - new
                w, beta = F.pad(w, (0, 0, past, 0)), F.pad(beta, (0, 0, past, 0))  # earlier ones have transformed the keys
                self.cache.keys = _passed_keys(k, w, beta, first=past)
            logits = _logits(q.to(w.dtype), k.to(w.dtype), w, beta) * q.shape[-1] ** -0.5
        keys = None if mask is None else mask[:, None, None, :]
        visible = AttentionMask(causal=True, attn_mask=keys).dense(*logits.shape[-2:], device=x.device)
        assert visible is not None
        weights = logits.masked_fill(~visible, torch.finfo(logits.dtype).min).softmax(-1) * visible.any(-1, keepdim=True)
        weights = F.dropout(weights, self.dropout, self.training)
        return self.out(merge_heads(weights.to(v.dtype) @ v))

    def _householder(self, source: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return w (b, h, s, d), of length 1, and beta (b, h, s, 1) of each position of source (b, s, dim)."""
        real = None if mask is None else mask[:, mask.shape[1] - source.shape[1] :]
        w = self.turn(source)
        w = w if self.convolution is None else self.convolution(w, real)
        w = unit_length(split_heads(F.silu(w), self.heads))
        beta = 2 * split_heads(self.beta(source), self.heads).to(w.dtype).sigmoid()
        return w, beta if real is None else beta * real[:, None, :, None]


def _logits(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> Tensor:
    """Return k_j^T H_(j+1) ... H_i q_i of the queries of the last t positions, 0 for keys ahead: (b, h, t, s).

    Args:
        q: (b, h, t, d).
        k: (b, h, s, d).
        w: (b, h, s, d).
        beta: (b, h, s, 1).
    """
    t, s = q.shape[2], k.shape[2]
    columns = []
    passing = q[:, :, t:]  # the queries behind the block, transformed by the positions between
    for start in reversed(range(0, s, BLOCK)):
        block = slice(start, min(start + BLOCK, s))
        first = max(0, start - (s - t))  # of the queries that see a key of the block
        own = q[:, :, first : max(0, block.stop - (s - t))]
        passing = torch.cat([own, passing], dim=2)
        k1, w1, beta1 = (z[:, :, block] for z in (k, w, beta))
        # The transformation of a query begins at its own position, also within the block.
        at = torch.arange(s - t + first, s, device=q.device)[:, None]
        behind = torch.arange(block.start, block.stop, device=q.device) <= at
        along = (passing @ w1.mT) * behind
        logits = (passing @ k1.mT - along @ _removed(k1, w1, beta1)) * behind
        columns.append(F.pad(logits, (0, 0, first, 0)))
        upper = (beta1 * (w1 @ w1.mT)).triu(1)
        steps = torch.linalg.solve_triangular(upper, beta1 * along.mT, upper=True, unitriangular=True)
        passing = passing - steps.mT @ w1
    return torch.cat(columns[::-1], dim=-1)


def _removed(k: Tensor, w: Tensor, beta: Tensor, *, first: int = 0) -> Tensor:
    """Return c (b, h, C, s): what each position of a block removes from each earlier key along its w, 0 for other keys.

    Args:
        k: (b, h, s, d).
        w: (b, h, C, d).
        beta: (b, h, C, 1).
        first: the number of keys before the block.
    """
    lower = (beta * (w @ w.mT)).tril(-1)
    removed = (beta * (w @ k.mT)).tril(first - 1)
    return torch.linalg.solve_triangular(lower, removed, upper=False, unitriangular=True)


def _passed_keys(k: Tensor, w: Tensor, beta: Tensor, *, first: int) -> Tensor:
    """Return the keys (b, h, s, d), each transformed by all positions from ``first`` on that follow it."""
    dtype, k = k.dtype, k.to(w.dtype)
    for start in range(first, k.shape[2], BLOCK):
        w1, beta1 = (z[:, :, start : start + BLOCK] for z in (w, beta))
        k = k - _removed(k, w1, beta1, first=start).mT @ w1
    return k.to(dtype)
