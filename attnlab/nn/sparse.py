"""Sparse attention patterns, computed as dense attention inside groups of positions, without a (t, t) matrix.

Each function takes q and k (b, h, t, e) and v (b, h, t, d), and returns a grid (b, n, l, h, d): row ``n`` holds the positions
``n l`` .. ``n l + l - 1``, a column holds the positions ``l`` apart, and zeros pad the sequence to a multiple of ``l``
(False in a mask). The padding comes after every real position, so a causal mask hides it. Everything but the padding is a view;
``merge_grid`` returns from the grid to (b, t, h d).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional as F

from attnlab.nn.attention import AttentionMask, attend


@dataclass(frozen=True)
class GroupOptions:
    """Settings of the attention inside the groups.

    Attributes:
        backend: one of ``attnlab.nn.attention.BACKENDS``.
        dropout: probability of dropping an attention weight.
        scale: factor of the products q . k.
        bias: ``bias(q, k, scale=..., step=..., offset=...)`` of ``attnlab.positions.Position``, for the heads of q and k;
            None: no bias.
    """

    backend: str
    dropout: float
    scale: float
    bias: Callable[..., Tensor] | None


def sliding_window_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, reach: int, options: GroupOptions
) -> Tensor:
    """Attend from each query i to the keys i - reach .. i. The rows of the grid are ``reach`` long.

    Args:
        mask: (b, t), True = may be attended to; None: all.
    """
    l, t = reach, q.shape[2]  # noqa: E741 the paper's letter
    if options.backend == "xformers" and mask is None and options.bias is None:  # it has a kernel for this pattern
        y = attend(
            q, k, v, AttentionMask(causal=True, window=l + 1), backend="xformers", dropout=options.dropout, scale=options.scale
        )
        return to_grid(y, l)
    q, k, v = (split_blocks(z, l) for z in (q, k, v))  # (b, n, h, l, d)
    keys = None if mask is None else split_blocks(mask[:, None, :, None], l)[..., 0]  # (b, n, 1, l)

    # The first block has no predecessor: causal attention inside it.
    first_mask = AttentionMask(causal=True, attn_mask=_group_mask(None if keys is None else keys[:, :1]))
    first = _attend_groups(q[:, :1], k[:, :1], v[:, :1], first_mask, options, total_length=t)
    if q.shape[1] == 1:
        return _blocks_to_grid(first)

    # Every other block attends to its predecessor and itself. Column c of the two is l + p - c behind query p.
    k, v = (torch.cat([z[:, :-1], z[:, 1:]], dim=3) for z in (k, v))  # (b, n-1, h, 2l, d)
    p, c = torch.arange(l, device=q.device)[:, None], torch.arange(2 * l, device=q.device)
    window = (p <= c) & (c <= p + l)  # (l, 2l)
    if keys is not None:
        window = (window & torch.cat([keys[:, :-1], keys[:, 1:]], dim=3).unsqueeze(-2)).flatten(0, 1)
    rest = _attend_groups(q[:, 1:], k, v, AttentionMask(attn_mask=window), options, total_length=t)
    return _blocks_to_grid(torch.cat([first, rest], dim=1))


def strided_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, stride: int, options: GroupOptions) -> Tensor:
    """Attend from each query i to the keys i, i - stride, i - 2 stride, ...: causal attention in each column of the grid.

    Args:
        mask: (b, t), True = may be attended to; None: all.
    """
    t = q.shape[2]
    keys = None if mask is None else split_columns(mask[:, None, :, None], stride)[..., 0]  # (b, l, 1, n)
    q, k, v = (split_columns(z, stride) for z in (q, k, v))  # (b, l, h, n, d)
    group_mask = AttentionMask(causal=True, attn_mask=_group_mask(keys))
    y = _attend_groups(q, k, v, group_mask, options, total_length=t, step=stride)
    return y.permute(0, 3, 1, 2, 4)


def block_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, block_size: int, options: GroupOptions) -> Tensor:
    """Attend from each query to the earlier keys of its block and to itself: causal attention in each row of the grid.

    Args:
        mask: (b, t), True = may be attended to; None: all.
    """
    t = q.shape[2]
    keys = None if mask is None else split_blocks(mask[:, None, :, None], block_size)[..., 0]  # (b, n, 1, l)
    q, k, v = (split_blocks(z, block_size) for z in (q, k, v))  # (b, n, h, l, d)
    group_mask = AttentionMask(causal=True, attn_mask=_group_mask(keys))
    return _blocks_to_grid(_attend_groups(q, k, v, group_mask, options, total_length=t))


def summary_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, block_size: int, summary: int, options: GroupOptions
) -> Tensor:
    """Attend from each query to the last ``summary`` positions of every block so far; a query before the first gets zeros.

    Args:
        mask: (b, t), True = may be attended to; None: all.
    """
    t, l, c = q.shape[2], block_size, summary  # noqa: E741 the paper's letters
    n = t // l * c + max(0, t % l - (l - c))  # summary positions, those of an incomplete last block included
    if n == 0:
        return to_grid(torch.zeros_like(v), l)
    starts, within = torch.arange(0, t, l, device=q.device), torch.arange(l - c, l, device=q.device)
    j = (starts[:, None] + within).flatten()[:n]  # positions of the summaries
    attn_mask = j <= torch.arange(t, device=q.device)[:, None]  # (t, n)
    if mask is not None:
        attn_mask = attn_mask & mask[:, None, None, j]
    y = attend(
        q,
        k[:, :, j],
        v[:, :, j],
        AttentionMask(attn_mask=attn_mask),
        _summary_bias(q, k, n, block_size=l, summary=c, options=options),
        backend=options.backend,
        dropout=options.dropout,
        scale=options.scale,
        total_length=t,
    )
    return to_grid(y, l)


def to_grid(z: Tensor, length: int) -> Tensor:
    """Arrange z (b, h, t, d) in rows of ``length`` positions: (b, n, length, h, d)."""
    by_position = z.transpose(1, 2)  # (b, t, h, d), the memory order of the projections
    missing = -z.shape[2] % length
    padded = F.pad(by_position, (0, 0, 0, 0, 0, missing)) if missing else by_position
    return padded.unflatten(1, (-1, length))


def merge_grid(y: Tensor, t: int) -> Tensor:
    """Arrange a grid (b, n, length, h, d) as a sequence with its heads concatenated, without the padding: (b, t, h d)."""
    return y.flatten(1, 2)[:, :t].flatten(2)


def split_blocks(z: Tensor, length: int) -> Tensor:
    """Split z (b, h, t, d) into blocks of ``length`` positions, the rows of the grid: (b, n, h, length, d)."""
    return to_grid(z, length).transpose(2, 3)


def split_columns(z: Tensor, length: int) -> Tensor:
    """Split z (b, h, t, d) into positions ``length`` apart, the columns of the grid: (b, length, h, n, d)."""
    return to_grid(z, length).permute(0, 2, 3, 1, 4)


def _blocks_to_grid(y: Tensor) -> Tensor:
    return y.transpose(2, 3)


def _group_mask(keys: Tensor | None) -> Tensor | None:
    """Arrange the mask of the keys of each group (b, n, 1, s) for ``attend``: (b n, 1, 1, s)."""
    return None if keys is None else keys.unsqueeze(-2).flatten(0, 1)


def _attend_groups(
    q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, options: GroupOptions, *, total_length: int, step: int = 1
) -> Tensor:
    """Compute attention of q (b, n, h, t, e) over k (b, n, h, s, e) and v (b, n, h, s, d) in each of n groups: (b, n, h, t, d).

    Args:
        mask: ``attn_mask`` (t, s), or (b n, 1, t or 1, s).
        step: distance of neighboring positions of a group.
    """
    groups = q.shape[:2]
    q, k, v = (z.flatten(0, 1) for z in (q, k, v))
    bias = None if options.bias is None else options.bias(q, k, scale=options.scale, step=step)
    y = attend(
        q,
        k,
        v,
        mask,
        bias,
        backend=options.backend,
        dropout=options.dropout,
        scale=options.scale,
        total_length=total_length,
    )
    return y.unflatten(0, groups)


def _summary_bias(q: Tensor, k: Tensor, n: int, *, block_size: int, summary: int, options: GroupOptions) -> Tensor | None:
    """Compute the bias of all queries q and the n summaries among the keys k: ([b,] h, t, n); None without a bias.

    A part of it holds the queries at place p of their blocks a, and the summaries at place e of their blocks m. In a part,
    neighboring queries are l apart, as are neighboring keys: distances are (a - m) l + p - e.
    """
    if options.bias is None:
        return None
    t, l, c = q.shape[2], block_size, summary  # noqa: E741
    q = split_columns(q, l).unsqueeze(2)  # (b, p, 1, h, a, d)
    k = split_columns(k, l)[:, l - c :].unsqueeze(1)  # (b, 1, e, h, m, d)
    p, e = torch.arange(l, device=q.device)[:, None], torch.arange(l - c, l, device=q.device)
    offset = (p - e)[..., None, None, None]
    parts = options.bias(q, k, scale=options.scale, step=l, offset=offset)
    parts = parts.expand(*parts.shape[:-5], l, c, *q.shape[-3:-1], k.shape[-2])  # it may only be broadcastable to this shape
    return rearrange(parts, "... p e h a m -> ... h (a p) (m e)")[..., :t, :n]
