"""Softmax attention, several implementations of the same mathematics.

    y_i = sum_j softmax_j(scale * q_i . k_j + bias_ij) v_j      over the keys j that query i may see

``reference`` materialises the logits and reads like the formula: it is the oracle for the others. ``blocked`` goes through
them by blocks (``attnlab.nn.blocked``) and is what a CPU does best. ``sdpa`` is PyTorch's
``scaled_dot_product_attention``; ``xformers`` is ``memory_efficient_attention`` (``attnlab.nn.xformers``) and needs a CUDA
device. A query that may see no key at all yields zeros, never NaN, in each of them.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.nn.blocked import blocked
from attnlab.nn.layers import causal_mask, relative_distance, shift

BACKENDS = ("reference", "blocked", "sdpa", "xformers")

_recorded: list[Tensor] | None = None


@contextmanager
def recorded_weights() -> Iterator[list[Tensor]]:
    """Collect the softmax weights of each ``reference`` attention inside, (b, h, t, s), in the order of the calls."""
    global _recorded
    before, _recorded = _recorded, []
    try:
        yield _recorded
    finally:
        _recorded = before


def unsupported(
    backend: str, *, device: str, head_dim: int | None = None, precision: str = "fp32", compile: bool = False
) -> str | None:
    """Return the reason why ``backend`` cannot compute a configuration on this machine, or None.

    Properties of the configuration are checked before those of the machine.

    Args:
        backend: one of ``BACKENDS``.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
        head_dim: width of one head's queries and keys; None skips the check of the width.
        precision: ``"fp32"`` or ``"bf16"``.
        compile: whether the model runs under ``torch.compile``.
    """
    if backend == "blocked" and compile:
        # torch.compile unrolls the loop once per sequence length, and silently stops compiling at its recompilation limit.
        return "backend blocked does not support torch.compile: it loops over blocks in Python"
    if backend != "xformers":
        return None
    multiple = 4 if precision == "fp32" else 8  # the kernels read 16 bytes at a time
    if head_dim is not None and head_dim % multiple:
        return f"backend xformers requires a head width that is a multiple of {multiple} in {precision}, got {head_dim}"
    if not device.startswith("cuda"):
        return f"backend xformers requires a CUDA device, got {device}"
    try:
        from attnlab.nn import xformers
    except ImportError as error:
        return f"backend xformers cannot be imported: {error}"
    return xformers.unsupported()


def resolve(device: str, *, hook: str, offered: tuple[str, ...], compiled: bool = False) -> str:
    """The backend that ``auto`` stands for, decided when the plan is made.

    Args:
        hook: the position scheme's hook. A bias that needs a gradient sends SDPA down its slow path.
        offered: the backends that the variant declares.
        compiled: whether it runs under ``torch.compile``, which ``blocked`` does not.
    """
    rest = "reference" if hook == "bias" else "sdpa"
    wanted = [rest] if compiled or device.startswith("cuda") else ["blocked", rest]
    return next((name for name in wanted if name in offered), offered[0])


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    backend: str = "reference",
    causal: bool = False,
    window: int | None = None,
    attn_mask: Tensor | None = None,
    bias: Tensor | None = None,
    relative: tuple[Tensor, Tensor] | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    total_length: int | None = None,
) -> Tensor:
    """Attention of ``q`` over ``k`` and ``v``.

    Args:
        q: (b, h, t, d). k: (b, h, s, d). v: (b, h, s, e).
        causal: query i sees keys up to i + s - t only.
        window: of these only so many, the last one included. ``xformers`` computes no others where there is neither an
            ``attn_mask`` nor a bias; to the other backends it is a mask.
        attn_mask: boolean, broadcastable to (b, h, t, s), True = may be attended; together with ``causal``, both must hold.
        bias: broadcastable to (b, h, t, s), added to the scaled logits.
        relative: ``distance`` and ``r`` of ``attnlab.positions.RelativeLogits``: scale * shift(distance r^T) is added, too.
            Only ``blocked`` has a better way than to make a bias of it.
        dropout: probability of dropping an attention weight (0 outside training).
        scale: default 1 / sqrt(d).
        total_length: positions of the whole sequence, where q and k are a piece of it: ``blocked`` keeps less of longer
            ones for the backward pass.

    Returns:
        (b, h, t, e).
    """
    if window is not None and not causal:
        raise ValueError("attend: a window needs causal=True")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    local = backend == "xformers" and attn_mask is None and bias is None and relative is None and q.shape[-2] == k.shape[-2]
    if window is not None and local:
        from attnlab.nn import xformers

        return xformers.local(q, k, v, window=window, dropout=dropout, scale=scale)
    if window is not None:
        near = relative_distance(q.shape[-2], k.shape[-2], device=q.device) < window
        attn_mask = near if attn_mask is None else near & attn_mask
    if backend == "blocked":
        y = _blocked(
            q,
            k,
            v,
            relative,
            causal=causal,
            attn_mask=attn_mask,
            bias=bias,
            dropout=dropout,
            scale=scale,
            total_length=total_length,
        )
    else:
        if relative is not None:
            more = shift(relative[0] * scale @ relative[1].mT, k.shape[-2])
            bias = more if bias is None else bias + more
        call = {"reference": _reference, "sdpa": _sdpa, "xformers": _xformers}[backend]
        y = call(q, k, v, causal=causal, attn_mask=attn_mask, bias=bias, dropout=dropout, scale=scale)
    if attn_mask is not None:  # without a mask every query sees at least one key
        y = y * _sees_any(q, k, causal, attn_mask).to(y.dtype)
    return y


def _sees_any(q: Tensor, k: Tensor, causal: bool, attn_mask: Tensor) -> Tensor:
    """(..., t, 1): whether a query has any key at all."""
    return _visible(q, k, causal, attn_mask).any(-1, keepdim=True)  # type: ignore[union-attr]


def _visible(q: Tensor, k: Tensor, causal: bool, attn_mask: Tensor | None) -> Tensor | None:
    """The two masks as one, broadcastable to (b, h, t, s); None when everything is visible."""
    if not causal:
        return attn_mask
    below = causal_mask(q.shape[-2], k.shape[-2], device=q.device)
    return below if attn_mask is None else below & attn_mask


def _reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    attn_mask: Tensor | None,
    bias: Tensor | None,
    dropout: float,
    scale: float,
) -> Tensor:
    # In place, so that mask and bias cost neither a second tensor of logits nor, for the mask, a backward pass.
    logits = torch.einsum("bhtd,bhsd->bhts", q * scale, k)
    if bias is not None:
        logits.add_(bias)
    visible = _visible(q, k, causal, attn_mask)
    if visible is not None:
        logits.add_(_additive(visible, None, logits.dtype))  # type: ignore[arg-type] of a mask there always is one
    weights = logits.softmax(-1)
    if _recorded is not None:
        _recorded.append(weights.detach())
    weights = F.dropout(weights, dropout)
    return torch.einsum("bhts,bhse->bhte", weights.to(v.dtype), v)


def _blocked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative: tuple[Tensor, Tensor] | None,
    *,
    causal: bool,
    attn_mask: Tensor | None,
    bias: Tensor | None,
    dropout: float,
    scale: float,
    total_length: int | None,
) -> Tensor:
    if min(k.shape[1], v.shape[1]) < q.shape[1]:  # heads may share keys and values
        k, v = (z.expand(-1, q.shape[1], -1, -1) for z in (k, v))
    device = q.device.type
    lowered = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if lowered:
        q, k, v = (z.to(torch.get_autocast_dtype(device)) for z in (q, k, v))
    distance, r = (None, None) if relative is None else (z.to(q.dtype) for z in relative)
    additive = _with_batch(_additive(attn_mask, bias, q.dtype))
    # Autocast would have the softmax in float32, for twice the memory traffic, only to round it for the next product.
    with torch.autocast(device, enabled=False) if lowered else nullcontext():
        return blocked(q, k, v, additive, distance, r, causal=causal, dropout=dropout, scale=scale, total_length=total_length)


def _sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    attn_mask: Tensor | None,
    bias: Tensor | None,
    dropout: float,
    scale: float,
) -> Tensor:
    plain = causal and attn_mask is None and bias is None and q.shape[-2] == k.shape[-2]
    if plain:  # is_causal aligns to the top left, which is our alignment only where t = s
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, scale=scale)
    mask = _with_batch(_additive(_visible(q, k, causal, attn_mask), bias, q.dtype))  # of (h, t, s) its kernels keep all logits
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)


def _additive(visible: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Mask and bias as one tensor to add to the logits."""
    if visible is None:
        return None if bias is None else bias.to(dtype)
    lowest = torch.finfo(dtype).min  # not -inf: a row without any key then stays finite, forward and backward
    if bias is None:
        return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, lowest)
    return bias.to(dtype).masked_fill(~visible, lowest)


def _with_batch(mask: Tensor | None) -> Tensor | None:
    """Four-dimensional, with sizes of 1 in front."""
    return None if mask is None else mask[(None,) * (4 - mask.dim())]


def _xformers(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    attn_mask: Tensor | None,
    bias: Tensor | None,
    dropout: float,
    scale: float,
) -> Tensor:
    from attnlab.nn import xformers

    plain = causal and attn_mask is None and bias is None
    mask = None if plain else _additive(_visible(q, k, causal, attn_mask), bias, v.dtype)
    return xformers.attention(q, k, v, causal=plain, mask=mask, dropout=dropout, scale=scale)
