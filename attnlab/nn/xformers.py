"""Backend ``xformers``: calls of ``memory_efficient_attention``, and a check that its kernels are available.

A wheel of xformers is built for one CUDA version (0.0.35 for CUDA 12). With a torch for another version, the wheel's
library does not load; xformers then behaves as a build without CUDA and refuses every operator. But the operators that
attention uses are torch's kernels (their names end in "-pt": ``aten::_flash_attention_forward``,
``aten::_efficient_attention_forward`` and their backward), and they need nothing from that library, which holds 2:4
sparsity. This module enables them.

Import this module inside functions only: xformers is optional, and importing it takes a second.
"""

import logging
from typing import Any

from torch import Tensor
from torch.nn import functional as F


def _load() -> Any:
    """Import ``xformers.ops``; suppress the warning that attention is unavailable without that library."""
    logging.getLogger("xformers").addFilter(lambda record: "can't load C++/CUDA extensions" not in record.getMessage())
    import xformers.ops

    return xformers.ops


ops = _load()


def unsupported() -> str | None:
    """Return the reason why xformers has no CUDA kernels in this environment, or None.

    Enables the operators that use PyTorch's kernels if the library of xformers did not load (see the module's docstring).
    """
    common, operator = ops.fmha.common, ops.fmha.cutlass.FwOp
    if getattr(common, "_built_with_cuda", True):
        return None
    if operator.is_available() and operator.NAME.endswith("-pt"):
        common._built_with_cuda = True
        return None
    return (
        "backend xformers: its library does not load with this version of torch (XFORMERS_MORE_DETAILS=1 shows why); if it "
        "is built for CUDA 12, pip install nvidia-cuda-runtime-cu12 and add that package's lib folder to LD_LIBRARY_PATH"
    )


unsupported()  # enable PyTorch's kernels before the first call of an operator


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, additive: Tensor | None, dropout: float, scale: float
) -> Tensor:
    """Compute attention of q (b, h, t, d) over k (b, h, s, d) and v (b, h, s, e).

    Args:
        causal: query i attends to keys up to i + s - t only. Requires ``additive`` None.
        additive: mask and bias, broadcastable to (b, h, t, s), added to the scaled logits.
    """
    bias = ops.fmha.attn_bias.LowerTriangularFromBottomRightMask() if causal else _aligned(additive, q, k)
    q, k, v = (x.transpose(1, 2) for x in _same_dtype(q, k, v))  # xformers wants (b, t, h, d)
    return ops.memory_efficient_attention(q, k, v, attn_bias=bias, p=dropout, scale=scale).transpose(1, 2)


def windowed_attention(q: Tensor, k: Tensor, v: Tensor, *, window: int, dropout: float, scale: float) -> Tensor:
    """Compute causal attention of each query over the last ``window`` keys, including itself; q, k, v (b, h, t, d).

    The sequences of the batch are concatenated: the only local bias with a backward pass in float32 requires it.
    """
    b, _, t, _ = q.shape
    bias = ops.fmha.attn_bias.BlockDiagonalMask.from_seqlens([t] * b, device=q.device).make_local_attention(window)
    q, k, v = (x.transpose(1, 2).flatten(0, 1).unsqueeze(0) for x in _same_dtype(q, k, v))  # (1, b t, h, d)
    y = ops.memory_efficient_attention(q, k, v, attn_bias=bias, p=dropout, scale=scale)
    return y.unflatten(1, (b, t))[0].transpose(1, 2)


def _same_dtype(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cast q and k to the dtype of v: after a norm, autocast leaves q and k in float32."""
    return q.to(v.dtype), k.to(v.dtype), v


def _aligned(additive: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Expand to (b, h, t, s), in memory with rows that begin at multiples of 8 elements, as the kernels require."""
    if additive is None:
        return None
    b, h, t, s = *q.shape[:3], k.shape[-2]
    rows = F.pad(additive.expand(*additive.shape[:-2], t, s), (0, -s % 8))
    return rows[..., :s].expand(b, h, t, s)
