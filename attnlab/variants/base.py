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

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn

from attnlab.components import ATTEND_PLACES, Component, Components, Setting
from attnlab.nn import processor
from attnlab.nn.attention import BACKENDS, AttentionMask, attend
from attnlab.nn.cache import Cache, KeyValueCache
from attnlab.nn.layers import Projections, expand_heads, merge_heads, split_heads
from attnlab.nn.sparse import GroupOptions
from attnlab.positions import Position
from attnlab.registry import source

ROLES = ("causal", "bidirectional", "cross")
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class AttentionConfig:
    """Settings that a variant is constructed with, from the sections ``model``, ``task`` and ``position`` of a study.

    Attributes:
        dim: model width (``model.dim``).
        heads: number of heads (``model.heads``); 1 for a variant without heads.
        role: ``causal`` (query i attends to keys up to position i), ``bidirectional``, or ``cross``
            (``context`` is another sequence).
        backend: implementation of softmax attention, one of ``BACKENDS``; ``auto`` is already resolved.
        dropout: probability of dropping an attention weight in training (``model.attention_dropout``).
        position: the position scheme module of this block if it acts on queries and keys (hook ``rotate`` or ``bias``), else
            None.
        bias: True for biases in all projections (``model.attention_bias``).
        layer: the number of the block in its stack, from 0.
        components: the component modules of this layer by name, in the order in which they act.
    """

    dim: int
    heads: int
    role: str = "bidirectional"
    backend: str = "reference"
    dropout: float = 0.0
    position: Position | None = None
    bias: bool = False
    layer: int = 0
    components: Mapping[str, Component] = field(default_factory=dict)


def signature_mistake(cls: type[nn.Module]) -> str | None:
    """Return a description of the mistake if ``forward`` does not accept the arguments of ``Variant.forward``."""
    signature = inspect.signature(cls.forward)
    try:
        signature.bind(None, None, context=None, mask=None)
    except TypeError as error:
        return (
            f"expected forward(self, x, *, context=None, mask=None), got forward{signature} ({Path(source(cls)).name}): {error}"
        )
    return None


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"


class Variant(nn.Module):
    """Base class of attention variants.

    A subclass declares its capabilities as class attributes.

    Attributes:
        roles: the supported roles, among ``causal``, ``bidirectional`` and ``cross``.
        hooks: the supported position hooks, among ``embed``, ``rotate`` and ``bias``. ``embed`` acts on the input, so you
            should omit it only when an absolute position would be meaningless.
        blockwise_bias: True for a variant that computes its logits in parts and requests the bias of each part
            (``attnlab.positions.Position.bias``). Schemes that provide only the whole bias are then refused.
        supports_memory: True for a variant with keys and values that may cover more positions than the queries.
        supports_cache: True for a variant that continues a sequence from a cache (``attnlab.models.decoding``). One call of
            ``attend`` caches its keys and values; when the output depends on other positions in another way, you should
            return a cache from ``new_cache``. A subclass that overrides ``forward`` or ``attend`` should declare it again.
        backends: the supported backends of ``attnlab.nn.attention``; ``BACKENDS``, all, for a variant that calls ``attend``.
        default_position: the position scheme when a configuration does not name one.
        has_heads: False when ``model.heads`` has no effect; the plan then sets it to 1.
        supports_attention_bias: True for a variant with biases in its projections when ``AttentionConfig.bias`` is True. A
            subclass that overrides ``forward`` should declare it again.
        residual_projections: names of the linear layers that compute the output of the variant, for example ``("out",)``; ()
            for a variant without such a layer. ``model.initialization: gpt2`` scales their weights, and requires that
            they are declared.
        trained_apart: names of the submodules that the variant trains with a separate loss
            (``attnlab.nn.functions.with_gradient_of``), because they only make a choice, for example of keys. The gradient
            check skips them: their gradients are not the gradients of the output.
        has_attention_dropout: True for a variant with attention weights that ``model.attention_dropout`` can drop.
        permutation_equivariant: True for a variant that treats its keys as a set, apart from role and position scheme. False
            when its pattern depends on positions.
        places: the places of ``attnlab.components.PLACES`` at which the variant supports components, in addition to ``input``:
            ``ATTEND_PLACES`` for a variant that returns the results of ``attend``, and ``projections`` and
            ``output_projection`` for one that constructs these layers by ``replaced``.
        mixes_positions: False when the output at a position depends only on the input at that position, for example in the
            control ``none``. ``attnlab check`` then requires exactly that.
        constant_first_output: True when the first output of a causal role is the same for every input, because a position
            cannot attend to itself and the first one has nothing else to attend to.
        cost_exponent: the exponent of t that bounds both the arithmetic and the bytes saved for the backward pass, with the
            options of ``recommended_options``.
        recurrent_layers: PyTorch's recurrent layers that the variant contains, for example ``nn.LSTM``. Some CPUs have no
            half-precision kernel for one of them; the plan then refuses that precision.
        supports_compile: True for a variant that ``torch.compile`` captures without a graph break, with backends
            ``reference`` and ``sdpa``.
        paper: the citation, for example ``"Vaswani et al. 2017"``.

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

    roles: ClassVar[frozenset[str]] = frozenset(ROLES)
    hooks: ClassVar[frozenset[str]] = frozenset({"embed", "rotate", "bias"})
    blockwise_bias: ClassVar[bool] = False
    supports_memory: ClassVar[bool] = False
    supports_cache: ClassVar[bool] = False
    backends: ClassVar[tuple[str, ...]] = ("reference",)
    default_position: ClassVar[str] = "learned"
    has_heads: ClassVar[bool] = True
    supports_attention_bias: ClassVar[bool] = False
    residual_projections: ClassVar[tuple[str, ...] | None] = None
    trained_apart: ClassVar[tuple[str, ...]] = ()
    has_attention_dropout: ClassVar[bool] = True
    permutation_equivariant: ClassVar[bool] = True
    mixes_positions: ClassVar[bool] = True
    constant_first_output: ClassVar[bool] = False
    cost_exponent: ClassVar[float] = 2.0
    recurrent_layers: ClassVar[tuple[processor.RecurrentLayer, ...]] = ()
    supports_compile: ClassVar[bool] = True
    places: ClassVar[frozenset[str]] = frozenset()
    paper: ClassVar[str] = ""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # The declarations of the base class are about another computation.
        if not {"forward", "attend"}.isdisjoint(vars(cls)) and "supports_cache" not in vars(cls):
            cls.supports_cache = False
        if "forward" in vars(cls) and "supports_attention_bias" not in vars(cls):
            cls.supports_attention_bias = False
        if not {"forward", "attend"}.isdisjoint(vars(cls)) and "places" not in vars(cls):
            cls.places = frozenset()

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

    @classmethod
    def head_dim(cls, dim: int, heads: int) -> int:
        """Return the width of one head's queries and keys, for which ``rotate`` and ``bias`` schemes are constructed."""
        return dim // heads

    @classmethod
    def recommended_options(cls, length: int) -> dict[str, Any]:
        """Return the options with which ``cost_exponent`` holds at ``length``, for variants with options that grow with it."""
        return {}

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        """Return the reason why this variant does not support a setting, or None. The plan calls it for every cell.

        An override that adds a requirement should end with ``return super().unsupported(setting)``::

            @classmethod
            def unsupported(cls, setting):
                if setting.heads % setting.options["groups"]:
                    return f"requires groups that divide {setting.heads} heads, got {setting.options['groups']}"
                return super().unsupported(setting)
        """
        if setting.role not in cls.roles:
            return f"does not support the role {setting.role} (supports {_listed(cls.roles)})"
        if setting.hook != "none" and setting.hook not in cls.hooks:
            return f"does not support a position scheme that acts by '{setting.hook}' (supports {_listed(cls.hooks)})"
        if setting.memory and not cls.supports_memory:
            return "does not support memory (model.mem_len)"
        if setting.memory and setting.hook == "embed":
            return "absolute positions combined with memory (model.mem_len) would give one position two meanings"
        if setting.backend not in cls.backends:
            return f"does not support the backend {setting.backend} (supports {', '.join(cls.backends)})"
        if setting.dim % setting.heads:
            return f"model.dim {setting.dim} is not divisible by {setting.heads} heads"
        if setting.attention_dropout and not cls.has_attention_dropout:
            return "has no attention weights to drop (model.attention_dropout)"
        if setting.attention_bias == "out" and not cls.residual_projections:
            return "has no residual_projections, to which model.attention_bias: out adds a bias"
        if setting.attention_bias is True and not cls.supports_attention_bias:
            return "does not support biases in its projections (model.attention_bias)"
        if setting.initialization == "gpt2" and cls.residual_projections is None:
            return "declares no residual_projections, which model.initialization: gpt2 scales"
        if (precision := setting.precision) in processor.DTYPES and setting.device == "cpu":
            layers = [f"nn.{layer.__name__}" for layer in cls.recurrent_layers if not processor.runs_in_half(layer, precision)]
            if layers:
                return f"this processor has no {precision} kernel for {', '.join(layers)}: use train.precision: fp32"
        return None

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
        """Return the layer of the component that replaces ``projections`` or ``output_projection``; without one, ``layer``."""
        return next((getattr(component, place)() for component in self.components.at(place)), layer)

    def new_cache(self) -> Cache:
        """Return an empty cache for decoding. When ``attend`` does not cache, an override should return another ``Cache``."""
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
            window: attend only to keys at a distance below ``window``; in a causal role, these are the last ``window`` keys,
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
        x, context = self._inputs or (q, k)  # without components, nothing reads them
        q, k = components.apply_queries_keys(q, k)
        v = components.apply_values(v, context)
        if isinstance(self.cache, KeyValueCache):
            k, v = self.cache.extend(k, v)
        k, v = (expand_heads(z, q.shape[1]) for z in (k, v))  # first: position schemes may treat each head differently
        scale = float(q.shape[-1] ** -0.5) if scale is None else scale  # before rotate(), which may widen q and k
        q, k = self.rotate(q, k)
        if mask is not None:
            keys = mask[:, None, None, :]
            attn_mask = keys if attn_mask is None else keys & attn_mask
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
        """True when the position scheme acts by ``bias``."""
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
