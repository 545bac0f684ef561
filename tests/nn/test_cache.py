"""Tests of caches: rows, bytes, and caches that variants define."""

import torch
from torch import Tensor, nn

from attnlab.models.decoding import key_value_cache
from attnlab.nn.cache import Cache, KeyValueCache
from attnlab.variants import AttentionConfig, Variant
from attnlab.variants.dense import Dense


class Sum(Cache):
    """A sum over all earlier positions, (b, dim)."""

    def __init__(self) -> None:
        self.total: Tensor | None = None


class RunningSum(Variant):
    """Returns at each position the sum of the inputs up to it."""

    supports_cache = True

    def new_cache(self) -> Cache:
        return Sum()

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        cache = self.cache
        assert cache is None or isinstance(cache, Sum)
        before = 0.0 if cache is None or cache.total is None else cache.total[:, None]
        y = before + x.cumsum(1)
        if cache is not None:
            cache.total = y[:, -1]
        return y


def test_select_and_nbytes_cover_every_tensor_of_a_cache() -> None:
    cache = KeyValueCache()
    cache.select(torch.tensor([1]))  # before the first call there is nothing to select
    assert cache.nbytes == 0
    k, v = torch.randn(3, 2, 5, 4), torch.randn(3, 2, 5, 7)
    cache.extend(k, v)
    assert cache.nbytes == 4 * (k.numel() + v.numel())
    rows = torch.tensor([2, 0, 2, 1])
    cache.select(rows)
    assert torch.equal(cache.keys, k[rows]) and torch.equal(cache.values, v[rows])  # type: ignore[arg-type] not None
    assert cache.nbytes == 4 * (k.numel() + v.numel()) // 3 * 4


def test_decoding_uses_the_cache_that_a_variant_returns() -> None:
    """A state has the same bytes after any number of positions; keys and values have more with each."""
    config = AttentionConfig(dim=6, heads=2, role="causal")
    model = nn.ModuleDict({"sum": RunningSum(config), "dense": Dense(config)}).double()
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    with torch.no_grad(), key_value_cache(model) as caches:
        sizes, parts = [], []
        for i in range(7):
            model["dense"](x[:, i : i + 1])
            parts.append(model["sum"](x[:, i : i + 1]))
            sizes.append(caches.nbytes)
        assert isinstance(model["sum"].cache, Sum) and isinstance(model["dense"].cache, KeyValueCache)
    torch.testing.assert_close(torch.cat(parts, dim=1), x.cumsum(1))
    state, position = 3 * 6 * 8, 2 * 3 * 6 * 8
    assert sizes == [state + n * position for n in range(1, 8)]
    assert model["sum"].cache is None
