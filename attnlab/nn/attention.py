"""Softmax attention with several interchangeable backends.

    y_i = sum_j softmax_j(scale * q_i . k_j + bias_ij) v_j      over the keys j that query i may attend to

``reference`` materializes the logits and follows the formula; the tests compare the other backends with it. ``blocked``
processes the queries in blocks (``attnlab.nn.blocked``) and is the fastest on a CPU. ``sdpa`` is PyTorch's
``scaled_dot_product_attention``. ``xformers`` is ``memory_efficient_attention`` (``attnlab.nn.xformers``) and needs a CUDA
device. ``flex`` is PyTorch's ``flex_attention`` (``attnlab.nn.flex``) and needs one, too. In every backend, a query that may
attend to no key at all yields zeros, never NaN.

``reference`` and ``blocked`` also compute changed forms of the formula: functions of the logits, and other weights than their
softmax (``attnlab.nn.functions``). ``flex`` computes functions of the logits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab._util.packages import missing
from attnlab.nn.blocked import blocked_attention, query_blocks
from attnlab.nn.functions import ScoreFunction, WeightFunction, attend_in_blocks
from attnlab.nn.mask import AttentionMask, make_block_masks, shows_any
from attnlab.registry import BACKENDS as BACKENDS

FUNCTION_BACKENDS = {  # those that change logits and weights by functions
    "score": ("reference", "blocked", "flex"),
    "weights": ("reference", "blocked"),
}

_recorded: list[Tensor] | None = None


class RelativeLogits(NamedTuple):
    """Scaled logits as two products: ``scale * (content @ k.mT + relative_shift(distance @ r.mT, s))``.

    Attributes:
        content: (b, h, t, d), the operand that is multiplied with the keys.
        distance: (b, h, t, d), the operand that is multiplied with the distances.
        r: (h, n, d), an embedding of each distance s-1, s-2, ..., down to -1 in a causal role and to -t in others.
    """

    content: Tensor
    distance: Tensor
    r: Tensor


class LogitBias(Protocol):
    """A bias that depends on queries and keys, as in position schemes that act by ``bias`` (``attnlab.positions``).

    When an object has the attribute ``reads_mask = True``, its ``bias`` also takes ``visible``: the whole mask, boolean,
    broadcastable to (b, h, t, s), or None when every key is visible.
    """

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:
        """Return the bias, broadcastable to (b, h, t, s)."""
        ...

    def relative_logits(self, q: Tensor, s: int) -> RelativeLogits | None:
        """Return ``scale * q k^T + bias`` as two products, or None when the bias has no such form."""
        ...


class _Options(NamedTuple):
    """Arguments of every backend in addition to q, k, v, mask and bias. Only ``blocked`` uses the last two."""

    dropout: float
    scale: float
    total_length: int | None
    relative: RelativeLogits | None


_Backend = Callable[[Tensor, Tensor, Tensor, AttentionMask, Tensor | None, _Options], Tensor]


@contextmanager
def record_attention_weights() -> Iterator[list[Tensor]]:
    """Collect the softmax weights (b, h, t, s) of every ``reference`` attention in this context, in call order."""
    global _recorded
    before, _recorded = _recorded, []
    try:
        yield _recorded
    finally:
        _recorded = before


def unsupported(
    backend: str,
    *,
    device: str,
    head_dim: int | None = None,
    precision: str = "fp32",
    dropout: float = 0.0,
) -> str | None:
    """Return the reason why ``backend`` cannot compute a configuration on this machine, or None.

    Properties of the configuration are checked first, then properties of the machine.

    Args:
        backend: one of ``BACKENDS``.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
        head_dim: width of one head's queries and keys; None skips the check of the width.
        precision: ``"fp32"``, ``"bf16"`` or ``"fp16"``.
        dropout: probability of dropping an attention weight in training.
    """
    if backend == "flex":
        return _unsupported_by_flex(device=device, head_dim=head_dim, dropout=dropout)
    if backend != "xformers":
        return None
    multiple = 4 if precision == "fp32" else 8  # the kernels read 16 bytes at a time
    if head_dim is not None and head_dim % multiple:
        return f"backend xformers requires a head width that is a multiple of {multiple} in {precision}, got {head_dim}"
    if not device.startswith("cuda"):
        return f"backend xformers requires a CUDA device, got {device}"
    if reason := missing("xformers"):
        return f"backend xformers {reason}"
    try:
        from attnlab.nn import xformers
    except ImportError as error:
        return f"backend xformers cannot be imported: {error}"
    return xformers.unsupported()


def _unsupported_by_flex(*, device: str, head_dim: int | None, dropout: float) -> str | None:
    """Return the reason why FlexAttention cannot compute a configuration, or None."""
    if head_dim is not None and head_dim < 16:
        return f"backend flex requires a head width of at least 16, got {head_dim}"
    if dropout:
        return f"backend flex cannot drop attention weights: expected model.attention_dropout 0, got {dropout}"
    if not device.startswith("cuda"):
        return f"backend flex requires a CUDA device, got {device}, on which FlexAttention has no backward pass"
    return None


def resolve_backend(
    device: str,
    *,
    hook: str,
    backends: tuple[str, ...],
    compiled: bool = False,
) -> str:
    """Return the backend that ``auto`` stands for. Called when the plan is made.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        hook: hook of the position scheme. A bias that requires gradients puts SDPA on its slow path.
        backends: the backends that the variant declares, and that compute the functions of its components.
        compiled: True under ``torch.compile``, which unrolls the loop of ``blocked`` again for each length.
    """
    fallback = "reference" if hook == "bias" else "sdpa"
    preferred = [fallback] if compiled or device.startswith("cuda") else ["blocked", fallback]
    if device.startswith("cuda"):
        preferred.append("flex")  # where functions of the logits leave no faster backend
    return next((name for name in preferred if name in backends), backends[0])


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: AttentionMask | None = None,
    bias: Tensor | LogitBias | None = None,
    *,
    backend: str = "reference",
    dropout: float = 0.0,
    scale: float | None = None,
    total_length: int | None = None,
    scores: Sequence[ScoreFunction] = (),
    weights: WeightFunction | None = None,
) -> Tensor:
    """Compute softmax attention of ``q`` over ``k`` and ``v``.

    Args:
        q: (b, h, t, d).
        k: (b, h, s, d).
        v: (b, h, s, e).
        mask: the keys that each query may attend to; None: all. ``blocked`` skips logits outside a window, and so does
            ``xformers`` when the mask is causal without an ``attn_mask`` and there is no bias; the other backends treat a
            window as a mask.
        bias: broadcastable to (b, h, t, s), added to the scaled logits; or a ``LogitBias`` that computes it from q and k.
            ``blocked`` uses its ``relative_logits`` when it has them, and then never holds the whole bias.
        backend: one of ``BACKENDS``.
        dropout: probability of dropping an attention weight; pass 0 outside training.
        scale: factor of the products q . k; default 1 / sqrt(d).
        total_length: length of the whole sequence when q and k are a part of it; default s. In the backward pass
            ``blocked`` recomputes the weights of long sequences instead of saving them.
        scores: functions that change the scaled and biased logits, in order; for ``reference``, ``blocked`` and ``flex``.
        weights: function that computes the weights instead of the softmax; for ``reference`` and ``blocked``.

    Returns:
        (b, h, t, e).

    Raises:
        ValueError: ``scores`` or ``weights`` with another backend, or dropout with ``flex``.

    Examples:
        >>> import torch
        >>> q = k = torch.zeros(1, 1, 3, 2)  # all visible keys get the same weight
        >>> v = torch.tensor([1.0, 3.0, 5.0]).view(1, 1, 3, 1)
        >>> attend(q, k, v).flatten()
        tensor([3., 3., 3.])
        >>> attend(q, k, v, AttentionMask(causal=True)).flatten()
        tensor([1., 2., 3.])
        >>> attend(q, k, v, AttentionMask(causal=True, window=2)).flatten()
        tensor([1., 2., 4.])
    """
    mask = (mask or AttentionMask()).normalized(q.shape[-2], k.shape[-2], device=q.device)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if scores or weights is not None or backend == "flex":
        return _changed(q, k, v, mask, bias, scores, weights, backend=backend, dropout=dropout, scale=scale)
    if backend != "blocked":
        mask = mask.without_functions(q, k.shape[-2])
    relative = None
    if bias is not None and not isinstance(bias, Tensor):
        relative = bias.relative_logits(q, k.shape[-2]) if backend == "blocked" else None
        bias = _bias(q, k, mask, bias, scale) if relative is None else None
    if not _has_window_kernel(backend, q, k, mask, bias):
        mask = mask.without_window(q.shape[-2], k.shape[-2], device=q.device)
    y = _IMPLEMENTATIONS[backend](q, k, v, mask, bias, _Options(dropout, scale, total_length, relative))
    if mask.functions or mask.attn_mask is None:  # blocked has set them to zero, or every query sees at least one key
        return y
    return y * mask.shows_any(q.shape[-2], k.shape[-2], device=q.device).to(y.dtype)


def _has_window_kernel(backend: str, q: Tensor, k: Tensor, mask: AttentionMask, bias: Tensor | LogitBias | None) -> bool:
    """Return True when the backend computes no logits outside of this window; otherwise the window becomes a mask."""
    if backend == "xformers":
        return mask.causal and mask.attn_mask is None and bias is None and q.shape[-2] == k.shape[-2]
    return backend == "blocked"


def _changed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: AttentionMask,
    bias: Tensor | LogitBias | None,
    scores: Sequence[ScoreFunction],
    weights: WeightFunction | None,
    *,
    backend: str,
    dropout: float,
    scale: float,
) -> Tensor:
    """Compute attention with functions of the logits, or with other weights than their softmax."""
    for place, functions in (("score", scores), ("weights", weights)):
        if functions and backend not in FUNCTION_BACKENDS[place]:
            expected = " or ".join(FUNCTION_BACKENDS[place])
            raise ValueError(f"attend: functions of the place {place} require the backend {expected}, got {backend}")
    bias = bias if bias is None or isinstance(bias, Tensor) else _bias(q, k, mask, bias, scale)
    if backend == "flex":
        from attnlab.nn import flex

        if dropout:
            raise ValueError(f"attend: backend flex cannot drop weights, got dropout={dropout}")
        return flex.attention(q, k, v, mask, bias, scores=scores, scale=scale)
    whole = backend == "reference"
    return attend_in_blocks(
        q, k, v, mask, bias, scores=scores, weights=weights, dropout=dropout, scale=scale, whole=whole, record=_record
    )


def _bias(q: Tensor, k: Tensor, mask: AttentionMask, bias: LogitBias, scale: float) -> Tensor:
    """Compute the whole bias, broadcastable to (b, h, t, s)."""
    if not getattr(bias, "reads_mask", False):
        return bias.bias(q, k, scale=scale)
    visible = _dense_mask(q, k, mask.without_functions(q, k.shape[-2]))
    return bias.bias(q, k, scale=scale, visible=visible)  # type: ignore[call-arg] as the attribute says


def _record(weights: Tensor) -> None:
    if _recorded is not None:
        _recorded.append(weights.detach())


def _dense_mask(q: Tensor, k: Tensor, mask: AttentionMask) -> Tensor | None:
    return mask.dense(q.shape[-2], k.shape[-2], device=q.device)


def _reference(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, bias: Tensor | None, options: _Options) -> Tensor:
    # In place: mask and bias then need no second tensor of logits, and the mask no backward pass.
    logits = torch.einsum("bhtd,bhsd->bhts", q * options.scale, k)
    if bias is not None:
        logits.add_(bias)
    additive = _additive(_dense_mask(q, k, mask), None, logits.dtype)
    if additive is not None:
        logits.add_(additive)
    weights = logits.softmax(-1)
    _record(weights)
    weights = F.dropout(weights, options.dropout)
    return torch.einsum("bhts,bhse->bhte", weights.to(v.dtype), v)


def _blocked(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, bias: Tensor | None, options: _Options) -> Tensor:
    q = q if options.relative is None else options.relative.content
    if min(k.shape[1], v.shape[1]) < q.shape[1]:  # heads may share keys and values
        k, v = (z.expand(-1, q.shape[1], -1, -1) for z in (k, v))
    device = q.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if autocast:
        q, k, v = (z.to(torch.get_autocast_dtype(device)) for z in (q, k, v))
    distance, r = (None, None) if options.relative is None else (z.to(q.dtype) for z in options.relative[1:])
    blocks = query_blocks(q, k.shape[2], causal=mask.causal, window=mask.window, masked=True) if mask.functions else []
    masks = make_block_masks(mask, q, k.shape[2], blocks, from_first=options.relative is not None)
    additive = _with_batch(_additive(None if masks else mask.attn_mask, bias, q.dtype))
    # Autocast would compute the softmax in float32, with twice the memory traffic, and then round it for the next product.
    with torch.autocast(device, enabled=False) if autocast else nullcontext():
        y = blocked_attention(
            q,
            k,
            v,
            additive,
            distance,
            r,
            causal=mask.causal,
            window=mask.window,
            masks=masks,
            dropout=options.dropout,
            scale=options.scale,
            total_length=options.total_length,
        )
    return y * shows_any(masks, q.device).to(y.dtype) if masks else y


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, bias: Tensor | None, options: _Options) -> Tensor:
    if mask.causal and mask.attn_mask is None and bias is None and q.shape[-2] == k.shape[-2]:
        # is_causal aligns the mask to the top left, which is our alignment only where t = s.
        return F.scaled_dot_product_attention(q, k, v, dropout_p=options.dropout, is_causal=True, scale=options.scale)
    # With a mask (h, t, s) that lacks the batch dimension, its kernels save all logits.
    additive = _with_batch(_additive(_dense_mask(q, k, mask), bias, q.dtype))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=additive, dropout_p=options.dropout, scale=options.scale)


def _xformers(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, bias: Tensor | None, options: _Options) -> Tensor:
    from attnlab.nn import xformers

    if mask.window is not None:
        return xformers.windowed_attention(q, k, v, window=mask.window, dropout=options.dropout, scale=options.scale)
    causal_only = mask.causal and mask.attn_mask is None and bias is None
    additive = None if causal_only else _additive(_dense_mask(q, k, mask), bias, v.dtype)
    return xformers.attention(q, k, v, causal=causal_only, additive=additive, dropout=options.dropout, scale=options.scale)


_IMPLEMENTATIONS: dict[str, _Backend] = {
    "reference": _reference,
    "blocked": _blocked,
    "sdpa": _sdpa,
    "xformers": _xformers,
}


def _additive(visible: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Combine mask and bias in one tensor to add to the logits."""
    if visible is None:
        return None if bias is None else bias.to(dtype)
    lowest = torch.finfo(dtype).min  # not -inf: a row without any visible key then stays finite, forward and backward
    if bias is None:
        return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, lowest)
    return bias.to(dtype).masked_fill(~visible, lowest)


def _with_batch(mask: Tensor | None) -> Tensor | None:
    """Prepend dimensions of size 1 until there are four."""
    return None if mask is None else mask[(None,) * (4 - mask.dim())]
