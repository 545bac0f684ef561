"""A language model of blocks, one sequence and one pair of positions at a time: Vaswani 2017's blocks, Dai 2019's recurrence.

The weights come from a state_dict; everything else is written from the papers.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tests.oracles import positions
from tests.oracles.attention import attention, behind, concatenated, heads_of

Weights = dict[str, Tensor]


def normalized(x: Tensor, weights: Weights, name: str) -> Tensor:
    """Ba et al. 2016, a row at a time."""
    rows = []
    for row in x:
        centred = row - row.mean()
        rows.append(centred / ((centred**2).mean() + 1e-5).sqrt() * weights[f"{name}.weight"] + weights[f"{name}.bias"])
    return torch.stack(rows)


def fed_forward(x: Tensor, weights: Weights, name: str) -> Tensor:
    """Vaswani et al. 2017, equation 2, with the GELU of Hendrycks and Gimpel 2016 in place of the ReLU."""
    inner = x @ weights[f"{name}.widen.weight"].T + weights[f"{name}.widen.bias"]
    inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    return inner @ weights[f"{name}.narrow.weight"].T + weights[f"{name}.narrow.bias"]


def attended(x: Tensor, context: Tensor, weights: Weights, name: str, *, heads: int, position: str) -> Tensor:
    """Causal multi-head attention of x (t, dim) over context (s, dim); both end at the same position."""
    w_q, w_k, w_v = weights[f"{name}.project.weight"].chunk(3)
    q, k, v = heads_of(x, w_q, heads), heads_of(context, w_k, heads), heads_of(context, w_v, heads)
    t, s = len(x), len(context)
    logit = logit_of(weights, f"{name}.position", position, heads=heads, t=t, s=s)
    y = attention(q, k, v, visible=lambda h, i, j: behind(t, s, i, j) >= 0, logit=logit)
    return concatenated(y) @ weights[f"{name}.out.weight"].T


def logit_of(weights: Weights, name: str, position: str, *, heads: int, t: int, s: int) -> Callable[..., Tensor]:
    """Return the function for the whole logit of a pair; the names of the scheme's weights begin with ``name``."""

    def plain(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        return q @ k / math.sqrt(len(q))

    def rotary(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        return plain(h, positions.rotated(q, s - t + i), positions.rotated(k, j), i, j)

    def alibi(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        return plain(h, q, k, i, j) - positions.ALIBI_SLOPES[heads][h] * behind(t, s, i, j)

    def relative(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        w_r = weights[f"{name}.distance.weight"].chunk(heads)[h]
        u, v = weights[f"{name}.u"][h], weights[f"{name}.v"][h]
        return positions.relative_logit(q, k, u, v, w_r, behind(t, s, i, j))

    def t5(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        bucket = positions.t5_bucket(behind(t, s, i, j), buckets=32, max_distance=128, role="causal")
        return plain(h, q, k, i, j) + weights[f"{name}.table"][bucket, h]

    def kerple(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        r1, r2 = (torch.log(1 + weights[f"{name}.{rho}"][h].exp()) for rho in ("rho_1", "rho_2"))
        return plain(h, q, k, i, j) + positions.kerple_bias(behind(t, s, i, j), r1, r2, kernel="log")

    def pope(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        return positions.pope_logit(q, k, weights[f"{name}.delta"][h], behind(t, s, i, j))

    schemes = {"rotary": rotary, "alibi": alibi, "relative": relative, "t5": t5, "kerple": kerple, "pope": pope}
    return schemes.get(position, plain)


def language_model(
    tokens: Tensor,
    memory: list[Tensor] | None,
    weights: Weights,
    *,
    depth: int,
    heads: int,
    position: str,
    norm: str,
    mem_len: int,
) -> tuple[Tensor, list[Tensor]]:
    """tokens (t,) and a memory (m, dim) for each block -> logits (t, vocabulary) and the next memory.

    The memory of a block is the last ``mem_len`` of its inputs, SG(.) of Dai et al. 2019, equation 1.
    """
    embedding = weights["backbone.embedding.weight"]
    x = embedding[tokens] * math.sqrt(embedding.shape[1])
    if position == "learned":
        x = x + torch.stack([weights["backbone.position.table"][p] for p in range(len(tokens))])
    if position == "sinusoidal":
        x = x + torch.stack([positions.sinusoid(p, embedding.shape[1]) for p in range(len(tokens))])
    new_memory = []
    for i in range(depth):
        name = f"backbone.blocks.{i}"
        context = x if memory is None else torch.cat([memory[i], x])
        new_memory.append(context[max(0, len(context) - mem_len) :].detach())

        def attend(x: Tensor, context: Tensor, name: str = name) -> Tensor:
            return attended(x, context, weights, f"{name}.attention", heads=heads, position=position)

        if norm == "pre":
            inner = f"{name}.norm_attention"
            x = x + attend(normalized(x, weights, inner), normalized(context, weights, inner))
            x = x + fed_forward(normalized(x, weights, f"{name}.norm_feed_forward"), weights, f"{name}.feed_forward")
        else:
            x = normalized(x + attend(x, context), weights, f"{name}.norm_attention")
            x = normalized(x + fed_forward(x, weights, f"{name}.feed_forward"), weights, f"{name}.norm_feed_forward")
    if norm == "pre":
        x = normalized(x, weights, "backbone.norm")
    return x @ weights["head.weight"].T + weights["head.bias"], new_memory
