"""Adapters of the attention layers of PyTorch and of x-transformers."""

import importlib
from typing import Any

from torch import Tensor, nn

from attnlab.errors import UserError
from attnlab.extras.adapters.base import Adapted, construct, public, require_layer
from attnlab.nn.layers import causal_mask
from attnlab.variants import AttentionConfig, Variant

XT_PACKAGE = "x_transformers"


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
