"""Base class of linear attention and its relatives: each head keeps a state of fixed size.

A variant computes queries, keys, values and its gates of every position, and passes them to ``recur`` with one of the rules of
``attnlab.nn.linear_attention``.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from attnlab.errors import UserError
from attnlab.nn.cache import Cache, State
from attnlab.nn.layers import split_heads
from attnlab.nn.shift import ShortConvolution
from attnlab.variants.base import AttentionConfig, Variant

EPS = 1e-5  # added to the mean square of a head
Rule = Callable[..., tuple[Tensor, Tensor]]


class LinearRecurrence(Variant):
    """Base class of variants with a recurrence of a matrix-valued state.

    Padding leaves the state as it is. Memory precedes the queries. For decoding, the state is kept (``State``), and the last
    inputs of short convolutions.
    """

    roles = frozenset({"causal"})
    hooks = frozenset({"embed"})
    supports_memory = True
    supports_cache = True
    supports_attention_bias = True
    default_position = "none"  # a recurrence depends on the order
    has_attention_dropout = False
    permutation_equivariant = False
    residual_projections = ("out",)
    cost_exponent = 1.0

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.head_width = config.dim // config.heads
        self.convolutions = nn.ModuleDict()

    def add_short_convolutions(self, width: int, *, bias: bool = False) -> None:
        """Add a short convolution after each of the projections ``query``, ``key`` and ``value``.

        Args:
            width: number of positions that it mixes, the position itself included; 0: none.
            bias: of the convolutions.

        Raises:
            UserError: ``width`` is negative.
        """
        if width < 0:
            raise UserError(f"short_conv: expected a number of positions of at least 0, got {width}")
        for name in ("query", "key", "value") if width else ():
            self.convolutions[name] = ShortConvolution(getattr(self, name).out_features, width=width, bias=bias)

    def features(self, name: str, x: Tensor, source: Tensor, mask: Tensor | None) -> Tensor:
        """Return what a projection computes from x, after its convolution: (b, n, width).

        Args:
            name: of the projection.
            x: (b, n, dim).
            source: (b, s, dim), which ends with the positions of x; a convolution sees those before them, too.
            mask: the mask that ``forward`` received.
        """
        layer = getattr(self, name)
        if name not in self.convolutions:
            return layer(x)
        convolution = cast(ShortConvolution, self.convolutions[name])
        n, reach = x.shape[1], len(convolution.weight) - 1
        before = source[:, max(0, source.shape[1] - n - reach) : source.shape[1] - n]
        z = layer(torch.cat([before, x], dim=1))
        return convolution(z, None if mask is None else mask[:, mask.shape[1] - z.shape[1] :])[:, z.shape[1] - n :]

    def head_features(self, name: str, x: Tensor, source: Tensor, mask: Tensor | None) -> Tensor:
        """Return ``features`` head by head: (b, h, n, d)."""
        return split_heads(self.features(name, x, source, mask), self.heads)

    def new_cache(self) -> Cache:
        return State()

    def project_heads(self, layer: nn.Module, x: Tensor) -> Tensor:
        """Return the features that ``layer`` computes from x (b, n, dim), head by head: (b, h, n, d)."""
        return split_heads(layer(x), self.heads)

    def recur(self, rule: Rule, q: Tensor, k: Tensor, v: Tensor, *gates: Tensor, mask: Tensor | None) -> Tensor:
        """Continue the recurrence from the cached state, or from zeros.

        Args:
            rule: ``linear_attention``, ``delta_rule``, or a function with their arguments and results.
            q: (b, h, t, d).
            k: (b, h, s, d).
            v: (b, h, s, e).
            gates: (b, h, s, any width), the further arguments of ``rule``. They are 0 at padding, so decays are logarithms.
            mask: (b, s), the mask that ``forward`` received.

        Returns:
            (b, h, t, e).
        """
        cache = self.cache if isinstance(self.cache, State) else None
        if mask is not None:
            real = mask[:, None, mask.shape[1] - k.shape[2] :, None]
            k, gates = k * real, tuple(gate * real for gate in gates)  # a key of 0 writes nothing, a log decay of 0 keeps all
        y, state = rule(q, k, v, *gates, state=None if cache is None else cache.state)
        if cache is not None:
            cache.state, cache.length = state, cache.length + k.shape[2]
        return y


def widen(x: Tensor) -> Tensor:
    """Return x in float32, or in float64 if it is. Logarithms of decays and lengths of keys are computed in it."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
