"""The adapters of the attention layers of PyTorch and of x-transformers, and the base class of all adapters."""

import importlib
import sys
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attnlab.errors import UserError, nearest
from attnlab.nn.layers import causal_mask
from attnlab.variants import AttentionConfig, Variant

LAYERS = (
    "torch:nn.MultiheadAttention",
    "xt:Attention",
    "hf:LlamaAttention or another attention class of transformers",
    "fla:NAME of a folder in fla/ops",
)

XT_PACKAGE = "x_transformers"


class Adapted(Variant):
    """A layer of another library: in evaluation, training and with a mask as it is; nothing that attnlab adds is declared."""

    hooks = frozenset({"embed"})
    supports_compile = False
    rounding: ClassVar[float] = 1e-6  # some compute their softmax in float32 in any precision of the input
    checked_dtype: ClassVar[torch.dtype] = torch.float64  # float32 for layers that are written for it, with its masks


def construct(cls: type[nn.Module], *sizes: int, **arguments: Any) -> nn.Module:
    """Return an instance of a class of another library; raise ``UserError`` if it does not take the arguments."""
    try:
        return cls(*sizes, **arguments)
    except TypeError as error:
        raise UserError(f"{cls.__name__}: {error}") from error


def public(cls: type[Variant], name: str) -> type[Variant]:
    """Name a class, and return it where pickle looks for it: in its module."""
    cls.__name__ = cls.__qualname__ = name
    setattr(sys.modules[cls.__module__], name, cls)
    return cls


def require_layer(ref: str, known: str) -> None:
    """Raise ``UserError`` unless a reference names the only layer of its library."""
    if ref != known:
        raise UserError(f"no adapter for this layer{nearest(ref, [known])}: expected {', '.join(LAYERS)}", ref)


def torch_attention(name: str, options: dict[str, Any]) -> type[Variant]:
    """Return ``torch.nn.MultiheadAttention`` as a variant.

    Raises:
        UserError: the name is not ``nn.MultiheadAttention``.
    """
    require_layer(f"torch:{name}", "torch:nn.MultiheadAttention")

    class MultiheadAttention(Adapted):
        supports_memory = True

        def __init__(self, config: AttentionConfig) -> None:
            super().__init__(config)
            arguments = {"dropout": config.dropout, "bias": config.bias, "batch_first": True, **options}
            self.layer = construct(nn.MultiheadAttention, config.dim, config.heads, **arguments)

        def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
            context = x if context is None else context
            hidden = ~causal_mask(x.shape[1], context.shape[1], device=x.device) if self.causal else None
            padding = None if mask is None else ~mask
            return self.layer(x, context, context, key_padding_mask=padding, attn_mask=hidden, need_weights=False)[0]

    return public(MultiheadAttention, "MultiheadAttention")


def xt_attention(name: str, options: dict[str, Any]) -> type[Variant]:
    """Return the attention layer of x-transformers as a variant.

    Raises:
        UserError: the name is not ``Attention``, or x-transformers is not installed.
    """
    require_layer(f"xt:{name}", "xt:Attention")
    try:
        module = importlib.import_module(f"{XT_PACKAGE}.x_transformers")
    except ImportError as error:
        raise UserError(f"x-transformers cannot be imported ({error}): pip install x-transformers", "xt:Attention") from error

    class XTransformersAttention(Adapted):
        def __init__(self, config: AttentionConfig) -> None:
            super().__init__(config)
            width = self.head_dim(config.dim, config.heads)
            arguments = {"heads": config.heads, "dim_head": width, "causal": self.causal, "dropout": config.dropout, **options}
            self.layer = construct(module.Attention, config.dim, **arguments)

        def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
            masks = {"mask": mask} if context is None else {"context": context, "context_mask": mask}
            return self.layer(x, **masks)

    return public(XTransformersAttention, "XTransformersAttention")
