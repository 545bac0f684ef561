"""Attention layers of other libraries as variants, so that ``attnlab check`` can test them as they are.

    torch:nn.MultiheadAttention     PyTorch's layer
    xt:Attention                    the layer of x-transformers, with its flags as options
    hf:LlamaAttention               an attention class of transformers, with fields of its configuration as options
    fla:gated_delta_rule            a reference function of flash-linear-attention, between projections

The options of the command are keyword arguments of the other library. A library is imported when it is named.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attnlab.errors import UserError, nearest
from attnlab.variants import Variant

LAYERS = {
    "torch": "torch:nn.MultiheadAttention",
    "xt": "xt:Attention",
    "hf": "hf:LlamaAttention or another attention class of transformers",
    "fla": "fla:NAME of a folder in fla/ops",
}


def is_adapted(ref: str) -> bool:
    """Return whether a reference names a layer of another library, as in ``xt:Attention``."""
    return ref.partition(":")[0] in LAYERS and ":" in ref


def adapt(ref: str, options: Mapping[str, Any]) -> type[Variant]:
    """Return a variant that computes a layer of another library.

    Args:
        ref: as in the table above.
        options: keyword arguments of the layer; width, heads, role and dropout come from the check.

    Raises:
        UserError: the library is not installed, it has no such layer, or the layer has no such option.

    Examples:
        >>> from attnlab.testing import check
        >>> [result] = check(adapt("torch:nn.MultiheadAttention", {}), heads=4, dim=16, only=["shapes"])
        >>> result.status
        'passed'
    """
    library, _, name = ref.partition(":")
    if library == "hf":
        from attnlab.testing.adapters.huggingface import huggingface_attention

        return huggingface_attention(name, dict(options))
    if library == "fla":
        from attnlab.testing.adapters.fla import fla_recurrence

        return fla_recurrence(name, dict(options))
    from attnlab.testing.adapters.layers import torch_attention, xt_attention

    adapters: dict[str, Callable[[dict[str, Any]], type[Variant]]] = {
        LAYERS["torch"]: torch_attention,
        LAYERS["xt"]: xt_attention,
    }
    if ref not in adapters:
        raise UserError(f"no adapter for this layer{nearest(ref, adapters)}: expected {', '.join(LAYERS.values())}", ref)
    return adapters[ref](dict(options))
