"""Backend ``xformers``: how ``memory_efficient_attention`` is asked, and whether it has kernels here.

A wheel of xformers is built for one CUDA (that of 0.0.35 for 12). Where torch comes with another, the wheel's own library does
not load; xformers then takes itself for a build without CUDA and refuses every operator. But the operators that attention
goes through are torch's own kernels (their names end in "-pt": ``aten::_flash_attention_forward``,
``aten::_efficient_attention_forward`` and their backward), and of that library, which holds 2:4 sparsity, they call nothing.
So they are let through.

Import this inside functions only: xformers is optional, and importing it takes a second.
"""

import logging
from typing import Any

from torch import Tensor
from torch.nn import functional as F


def _load() -> Any:
    """``xformers.ops``, without the warning that attention will not be there for want of that library."""
    logging.getLogger("xformers").addFilter(lambda record: "can't load C++/CUDA extensions" not in record.getMessage())
    import xformers.ops

    return xformers.ops


ops = _load()


def unsupported() -> str | None:
    """Return the reason why xformers has no CUDA kernels in this environment, or None.

    Enables the operators that use PyTorch's own kernels if the library of xformers did not load (see the module's docstring).
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


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, mask: Tensor | None, dropout: float, scale: float) -> Tensor:
    """``attnlab.nn.attention.attend`` with everything but ``causal`` in a ``mask`` to add, and one or the other only."""
    bias = ops.fmha.attn_bias.LowerTriangularFromBottomRightMask() if causal else _aligned(mask, q, k)
    by_position = [x.transpose(1, 2) for x in _alike(q, k, v)]  # xformers wants (b, t, h, d)
    return ops.memory_efficient_attention(*by_position, attn_bias=bias, p=dropout, scale=scale).transpose(1, 2)


def local(q: Tensor, k: Tensor, v: Tensor, *, window: int, dropout: float, scale: float) -> Tensor:
    """Causal, within a window: the sequences end to end, as the only local bias with a backward pass in float32 wants them."""
    b, _, t, _ = q.shape
    bias = ops.fmha.attn_bias.BlockDiagonalMask.from_seqlens([t] * b, device=q.device).make_local_attention(window)
    end_to_end = [x.transpose(1, 2).flatten(0, 1).unsqueeze(0) for x in _alike(q, k, v)]  # (1, b t, h, d)
    y = ops.memory_efficient_attention(*end_to_end, attn_bias=bias, p=dropout, scale=scale)
    return y.unflatten(1, (b, t))[0].transpose(1, 2)


def _alike(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All in the type of v: autocast leaves q and k in float32 where a norm is the last that happens to them."""
    return q.to(v.dtype), k.to(v.dtype), v


def _aligned(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """(b, h, t, s) in memory whose rows begin at multiples of 8 elements, which the kernels demand."""
    if mask is None:
        return None
    b, h, t, s = *q.shape[:3], k.shape[-2]
    rows = F.pad(mask.expand(*mask.shape[:-2], t, s), (0, -s % 8))
    return rows[..., :s].expand(b, h, t, s)
