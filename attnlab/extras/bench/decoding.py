"""The decoding of one layer: the time of a token, and the memory that is kept between tokens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

import torch

from attnlab.extras.bench.layer import LayerConfig, make_target
from attnlab.models.cache import key_value_cache, without_cache
from attnlab.training.decoding_costs import cached_bytes
from attnlab.training.device import autocast, synchronise

TOKENS_SHARE = 8  # the last length / 8 positions of a sequence are decoded, so that all are close to the length


class Decoding:
    """Decoding of the last positions of sequences by one layer in the causal role.

    A variant that supports a cache reads the earlier positions in one call, which is not timed, and then one position a call.
    Another variant computes the whole sequence again for each position.

    Args:
        clock: returns seconds.
    """

    def __init__(self, layer: LayerConfig, device: torch.device, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        built = make_target(layer, device).build(layer.role, length=layer.length, dtype=torch.float32)
        self.attention = built.attention
        self.x = torch.randn(layer.batch, layer.length, layer.dim, device=device)
        if built.embed is not None:
            self.x = self.x + built.embed.embed(layer.length)
        self.cached = not without_cache(self.attention)
        self.first = layer.length - max(1, layer.length // TOKENS_SHARE)  # position that is decoded first
        self.device, self.precision = device, layer.precision

    def figures(self) -> dict[str, bool | int]:
        """Return the bytes that are kept of one sequence, and whether they are, by the names of ``BenchResult``."""
        if not self.cached:
            return {"cached": False}
        one = self.x[:1]
        with self._inference():
            cache, state = cached_bytes(self.attention, lambda n: self.attention(one[:, :n]), length=self.x.shape[1])
        return {"cached": True, "cache_bytes": cache, "state_bytes": state}

    def seconds(self, repeats: int) -> float:
        """Return the mean time of a token of each sequence, over at least ``repeats`` tokens."""
        total, count = 0.0, 0
        while count < repeats:
            seconds, tokens = self._decode() if self.cached else self._recompute()
            total, count = total + seconds, count + tokens
        return total / count

    def _decode(self) -> tuple[float, int]:
        """Return the time of the last positions over a cache of the earlier ones, and their number."""
        length = self.x.shape[1]
        with self._inference(), key_value_cache(self.attention):
            if self.first:
                self.attention(self.x[:, : self.first])
            synchronise(self.device)
            start = self.clock()
            for i in range(self.first, length):
                self.attention(self.x[:, i : i + 1])
            synchronise(self.device)
            return self.clock() - start, length - self.first

    def _recompute(self) -> tuple[float, int]:
        """Return the time of the last position without a cache: of the whole sequence."""
        with self._inference():
            synchronise(self.device)
            start = self.clock()
            self.attention(self.x)
            synchronise(self.device)
            return self.clock() - start, 1

    @contextmanager
    def _inference(self) -> Iterator[None]:
        with torch.inference_mode(), autocast(self.device, self.precision):
            yield
