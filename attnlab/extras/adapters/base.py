"""Base class of the adapters of other libraries' layers."""

import sys
from typing import Any, ClassVar

import torch
from torch import nn

from attnlab.errors import UserError, nearest
from attnlab.variants import Variant

LAYERS = (
    "torch:nn.MultiheadAttention",
    "xt:Attention",
    "hf:LlamaAttention or another attention class of transformers",
    "fla:NAME of a folder in fla/ops",
)


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
