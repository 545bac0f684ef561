"""Attention variants: modules ``(b, t, dim) -> (b, t, dim)`` that mix along ``t``.

A variant owns its projections and declares its capabilities as class attributes. When a configuration needs anything else, the
plan refuses it with the reason; nothing falls back silently. To add a variant, write a class like this in a Python file:

    @register_variant("mine")
    class Mine(Variant):
        roles = frozenset({"causal"})
        hooks = frozenset({"embed"})

        def __init__(self, config: AttentionConfig, *, my_option: float = 1.0) -> None:
            super().__init__(config)
            ...

        def forward(self, x, *, context=None, mask=None):
            ...

Keyword-only parameters of the constructor are the options that a study can set. You should run ``attnlab check FILE.py:Mine``,
which tests a variant against this contract.
"""

from functools import partial
from typing import Any, TypeVar

from torch import Tensor, nn

from attnlab.components import ATTEND_PLACES, Components
from attnlab.nn.attention import BACKENDS, AttentionMask, attend
from attnlab.nn.cache import Cache, KeyValueCache
from attnlab.nn.layers import Projections, expand_heads, merge_heads, split_heads
from attnlab.nn.sparse import GroupOptions
from attnlab.variants.attention_config import ROLES, AttentionConfig
from attnlab.variants.declarations import Declarations

M = TypeVar("M", bound=nn.Module)


class Variant(Declarations, nn.Module):
    """Base class of attention variants.

    ``attnlab.variants.declarations`` documents the class attributes that a subclass sets, and ``unsupported``.

    Args:
        config: width, heads, role, backend, dropout and position scheme. A subclass adds its options as keyword-only
            parameters. When its constructor raises an exception, the cell is refused with the message as the reason.

    Examples:
        >>> import torch
        >>> from attnlab.variants import AttentionConfig, Projections, Variant, merge_heads
        >>> class Attention(Variant):
        ...     def __init__(self, config):
        ...         super().__init__(config)
        ...         self.project = Projections(config.dim, config.dim, heads=config.heads)
        ...     def forward(self, x, *, context=None, mask=None):
        ...         q, k, v = self.project(x, context)
        ...         return merge_heads(self.attend(q, k, v, mask))
        >>> variant = Attention(AttentionConfig(dim=8, heads=2, role="causal"))
        >>> variant(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.causal = config.role == "causal"
        self.backend = config.backend
        self.dropout = config.dropout
        self.position = config.position
        self.components = Components(config.components)
        self._inputs: tuple[Tensor, Tensor] | None = None  # x and context, during a forward pass
        self.cache: Cache | None = None  # set while a decoder generates

    def __call__(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Apply the components of the place ``input``, then ``forward``."""
        if not self.components:
            return super().__call__(x, context=context, mask=mask)
        x, context = self.components.apply_input(x, context, mask)
        self._inputs = x, x if context is None else context
        try:
            return super().__call__(x, context=context, mask=mask)
        finally:
            self._inputs = None

    def replaced(self, place: str, layer: M) -> M:
        """Return the layer of a component that replaces ``projections`` or ``output_projection``; ``layer`` without one."""
        return next((getattr(component, place)() for component in self.components.at(place)), layer)

    def new_cache(self) -> Cache:
        """Return an empty cache for decoding; when ``attend`` does not cache, return another ``Cache``."""
        return KeyValueCache()

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Mix along t.

        Args:
            x: (b, t, dim), the input of the queries.
            context: (b, s, dim), the input of the keys and values: ``[memory; x]``, or the other sequence of a ``cross``
                role. None: ``x``.
            mask: (b, s), boolean, True = may be attended to; None: all.

        Returns:
            (b, t, dim).
        """
        raise NotImplementedError

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        *,
        scale: float | None = None,
        attn_mask: Tensor | None = None,
        window: int | None = None,
    ) -> Tensor:
        """Compute softmax attention with the role, position scheme, components, backend and dropout of this block.

        ``mask``, ``attn_mask``, ``window`` and the causal role all apply: a query attends to the keys that each of them allows.
        A query without any such key yields zeros.

        Args:
            q: (b, h, t, d).
            k: (b, g, s, d) with g heads, a divisor of h: each head of keys serves h / g consecutive heads of queries.
            v: (b, g, s, e).
            mask: (b, s), boolean, True = may be attended to; None: all. The mask that ``forward`` received.
            scale: factor of the products q . k; default 1 / sqrt(d).
            attn_mask: boolean, broadcastable to (b, h, t, s), True = may be attended to; None: all.
            window: attend to keys at a distance below ``window`` only; in a causal role, these are the last ``window`` keys,
                including the position of the query.

        Returns:
            (b, h, t, e).

        Raises:
            ValueError: ``window`` below 1, or a number of heads of keys that does not divide h.

        Examples:
            >>> import torch
            >>> from attnlab.variants import AttentionConfig, Variant
            >>> variant = Variant(AttentionConfig(dim=2, heads=1, role="causal"))
            >>> q = k = torch.zeros(1, 1, 4, 2)  # all visible keys get the same weight
            >>> v = torch.tensor([1.0, 3.0, 5.0, 7.0]).view(1, 1, 4, 1)
            >>> variant.attend(q, k, v, None, window=2).flatten()
            tensor([1., 2., 4., 6.])
            >>> not_first = torch.tensor([False, True, True, True])
            >>> variant.attend(q, k, v, None, attn_mask=not_first).flatten()
            tensor([0., 3., 4., 5.])
        """
        components = self.components
        q, k = components.apply_queries_keys(q, k)
        v = components.apply_values(v)
        if isinstance(self.cache, KeyValueCache):
            k, v = self.cache.extend(k, v)
        k, v = (expand_heads(z, q.shape[1]) for z in (k, v))  # first: position schemes may treat each head differently
        scale = float(q.shape[-1] ** -0.5) if scale is None else scale  # before rotate(), which may widen q and k
        q, k = self.rotate(q, k)
        if mask is not None:
            keys = mask[:, None, None, :]
            attn_mask = keys if attn_mask is None else keys & attn_mask
        x, context = self._inputs or (q, k)  # without components, nothing reads them
        y = attend(
            q,
            k,
            v,
            AttentionMask(self.causal, components.smallest_window(window), attn_mask, components.mask_functions(q, k, mask)),
            self.position if self.has_position_bias else None,
            backend=self.backend,
            dropout=self.dropout if self.training else 0.0,
            scale=scale,
            scores=components.score_functions(context, mask),
            weights=components.weight_function(),
        )
        return components.apply_head_outputs(y, x=x, v=v)

    @property
    def has_position_bias(self) -> bool:
        """True if the position scheme acts by ``bias``."""
        return self.position is not None and self.position.hook == "bias"

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the position scheme to q (b, h, t, d) and k (b, h, s, d) if it acts by ``rotate``; else return them.

        The results may be wider than d, but the scale of their products does not change: 1 / sqrt(d) in most variants.
        """
        if self.position is not None and self.position.hook == "rotate":
            return self.position.rotate(q, k)
        return q, k

    def position_bias(self, q: Tensor, k: Tensor, *, scale: float, visible: Tensor | None = None, **part: Any) -> Tensor | None:
        """Return the bias of the position scheme if it acts by ``bias``, else None.

        Args:
            q: (b, h, t, d).
            k: (b, h, s, d).
            scale: factor of the products q . k.
            visible: boolean, broadcastable to (b, h, t, s), True = may be attended to; None: only the role decides. Used by
                schemes with ``reads_mask``, for example ``cope``.
            part: ``heads``, ``step`` and ``offset`` of ``attnlab.positions.Position.bias``, for a part of the logits.

        Returns:
            Broadcastable to (b, h, t, s).
        """
        if self.position is None or not self.has_position_bias:
            return None
        if self.position.reads_mask:
            part["visible"] = visible
        return self.position.bias(q, k, scale=scale, **part)

    def group_options(self, heads: slice, *, scale: float) -> GroupOptions:
        """Return the settings of ``attnlab.nn.sparse`` for some of the heads."""
        bias = partial(self.position_bias, heads=heads) if self.has_position_bias else None
        return GroupOptions(self.backend, self.dropout if self.training else 0.0, scale, bias)  # type: ignore[arg-type] never None


__all__ = ["ATTEND_PLACES", "BACKENDS", "ROLES", "Projections", "AttentionConfig", "Variant", "merge_heads", "split_heads"]
