"""Backend ``flex``: PyTorch's FlexAttention, which compiles the functions of logits and masks into one kernel.

Dong et al. 2024, arXiv:2412.05496. ``score_mod`` is the composition of the position bias and the functions of the logits,
``block_mask`` combines causal mask, window, ``attn_mask`` and mask functions: blocks that it hides are not computed.

FlexAttention numbers the queries from 0. The functions of attnlab receive the position of a query among the keys, i + s - t.

On a CPU, FlexAttention has no backward pass (torch 2.13); its forward pass then runs without compilation, for tests.
Importing this module takes a second: import it inside functions only.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._dynamo import config as compiler
from torch._dynamo.exc import FailOnRecompileLimitHit
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from attnlab.errors import UserError
from attnlab.nn.functions import ScoreFunction
from attnlab.nn.mask import AttentionMask

KERNELS = 64  # compiled for a run: one for each mask, function of the logits, type and set of shapes


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: AttentionMask,
    bias: Tensor | None,
    *,
    scores: Sequence[ScoreFunction],
    scale: float,
) -> Tensor:
    """Compute attention of ``q`` (b, h, t, d) over ``k`` (b, g, s, d) and ``v`` (b, g, s, e), where g divides h.

    Args:
        mask: the keys that each query may attend to.
        bias: broadcastable to (b, h, t, s), added to the scaled logits.
        scores: functions of the logits, in order.
        scale: factor of the products q . k.

    Returns:
        (b, h, t, e); zeros for a query that may attend to no key.

    Raises:
        UserError: the run needs more than ``KERNELS`` kernels. PyTorch would compute all logits, without a kernel.
    """
    if not q.shape[2] or not k.shape[2]:  # FlexAttention requires queries and keys
        return q @ k.mT @ v
    q, k = q.to(v.dtype), k.to(v.dtype)  # after a norm, autocast leaves q and k in float32
    score_mod = _score_mod(bias, scores, k.shape[2] - q.shape[2])
    options = {"score_mod": score_mod, "scale": scale, "enable_gqa": k.shape[1] < q.shape[1]}
    if q.is_cuda and not torch.compiler.is_compiling():
        return _with_kernels(q, k, v, mask, options)
    return flex_attention(q, k, v, block_mask=_block_mask(q, k.shape[2], mask, create_block_mask), **options)


def _with_kernels(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, options: dict[str, Any]) -> Tensor:
    try:
        with compiler.patch(recompile_limit=KERNELS):
            block_mask = _block_mask(q, k.shape[2], mask, _compiled(create_block_mask))
            return _compiled(flex_attention)(q, k, v, block_mask=block_mask, **options)
    except FailOnRecompileLimitHit as error:
        raise UserError(f"backend flex: expected at most {KERNELS} masks and functions of logits in a run, got more") from error


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function; without ``fullgraph`` it would run uncompiled once its kernels exceed the limit."""
    return torch.compile(function, fullgraph=True)


def _score_mod(bias: Tensor | None, scores: Sequence[ScoreFunction], offset: int) -> ScoreFunction | None:
    """Return the composition of the bias and the functions of the logits; ``offset`` is s - t."""
    if bias is None and not scores:
        return None

    element = None if bias is None else _element_of(bias)

    def score_mod(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if element is not None:
            s = s + element(b, h, i, j).to(s.dtype)
        for function in scores:
            s = function(s, b, h, i + offset, j)
        return s

    return score_mod


def _block_mask(q: Tensor, s: int, mask: AttentionMask, create: Callable[..., BlockMask]) -> BlockMask | None:
    """Return the blocks of q (b, h, t, d) and s keys that FlexAttention computes; None for all.

    Args:
        create: ``create_block_mask``, compiled or not. Without compilation it allocates the mask of every pair.
    """
    causal, window, attn_mask, functions = mask.causal, mask.window, mask.attn_mask, mask.functions
    if not causal and window is None and attn_mask is None and not functions:
        return None
    b, h, t, _ = q.shape
    offset, sizes = s - t, (1, 1) if attn_mask is None else (1, 1, *attn_mask.shape)[-4:-2]

    visible_element = None if attn_mask is None else _element_of(attn_mask)

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        visible = j <= i + offset if causal else j >= 0
        if window is not None:
            visible = visible & ((i + offset - j).abs() < window)
        if visible_element is not None:
            visible = visible & visible_element(b, h, i, j)
        for function in functions:
            visible = visible & function(b, h, i + offset, j)
        return visible

    # One mask for all sequences and heads, where no function may distinguish them.
    rows, heads = (n if functions or size > 1 else None for n, size in zip((b, h), sizes, strict=True))
    return create(mask_mod, rows, heads, t, s, device=str(q.device))


def _element_of(z: Tensor) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return a function that returns the element of a tensor that is broadcastable to (b, h, t, s).

    Its only operation on the tensor is one indexing: FlexAttention supports no other for a tensor that requires a gradient.
    """
    kept, elements = [size > 1 for size in z.shape], z.squeeze()

    def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        own = (b, h, i, j)[4 - len(kept) :]
        indices = tuple(index for index, keep in zip(own, kept, strict=True) if keep)
        return elements[indices] if indices else elements

    return element
