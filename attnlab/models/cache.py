"""Decoding with caches: each call of a module computes its new positions alone."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from attnlab.components import Component
from attnlab.nn.cache import Cache
from attnlab.nn.shift import ShortConvolution
from attnlab.variants import Variant


class KeyValueCaches:
    """The caches of all attention layers of a module; ``key_value_cache`` creates them."""

    def __init__(self, caches: list[Cache]) -> None:
        self._caches = caches

    @property
    def nbytes(self) -> int:
        """The bytes that all caches hold now."""
        return sum(cache.nbytes for cache in self._caches)

    def tensors(self) -> dict[tuple[int, str], Tensor]:
        """Return the tensors that the caches hold now, by the number of the layer and the attribute of its cache."""
        return {(i, name): tensor for i, cache in enumerate(self._caches) for name, tensor in cache.tensors().items()}

    def is_bounded(self, name: tuple[int, str]) -> bool:
        """Return whether the cache of a tensor, named as in ``tensors``, declares that it is ``bounded``."""
        return self._caches[name[0]].bounded

    def select(self, rows: Tensor) -> None:
        """Keep ``rows`` (n,) of the batch in every cache, in their order; a row may occur several times."""
        for cache in self._caches:
            cache.select(rows)


@contextmanager
def key_value_cache(module: nn.Module) -> Iterator[KeyValueCaches]:
    """Give every attention layer of ``module`` and its components a cache (``Variant.new_cache``) in this context.

    A call with the inputs of new positions, and with a mask of all positions, returns the outputs that a call with all inputs
    has at the new positions. Cross-attention reads its whole context in the first call and an empty one, (b, 0, dim), in the
    further calls.

    Raises:
        ValueError: a variant or a component does not support a cache (``Variant.supports_cache``).

    Examples:
        >>> import torch
        >>> from attnlab.registry import VARIANTS
        >>> from attnlab.variants import AttentionConfig
        >>> attention = VARIANTS.get("dense")(AttentionConfig(dim=8, heads=2, role="causal"))
        >>> x = torch.randn(1, 5, 8)
        >>> with key_value_cache(attention):
        ...     y = torch.cat([attention(x[:, :4]), attention(x[:, 4:])], dim=1)
        >>> torch.allclose(y, attention(x), atol=1e-6)
        True
    """
    if names := without_cache(module):
        raise ValueError(f"{', '.join(names)} does not support a cache")
    layers = [layer for layer in module.modules() if isinstance(layer, Variant | Component | ShortConvolution)]
    for layer in layers:
        layer.cache = layer.new_cache()  # type: ignore[assignment] of the class that the layer declares
    try:
        yield KeyValueCaches([layer.cache for layer in layers if layer.cache is not None])
    finally:
        for layer in layers:
            layer.cache = None


def without_cache(module: nn.Module) -> list[str]:
    """Return the names of the variants and components in ``module`` that do not support a cache."""
    layers = [layer for layer in module.modules() if isinstance(layer, Variant | Component)]
    return sorted({type(layer).__name__ for layer in layers if not layer.supports_cache})
