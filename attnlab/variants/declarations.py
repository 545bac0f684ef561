"""Declarations of a variant: the capabilities that it has, and the configurations that they exclude."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from torch import nn

from attnlab.nn import processor
from attnlab.registry import source
from attnlab.variants.attention_config import ROLES


class Declarations:
    """Capabilities that a variant declares as class attributes; ``attnlab.variants.Variant`` is a subclass.

    Attributes:
        roles: the supported roles, of ``causal``, ``bidirectional`` and ``cross``.
        hooks: the supported position hooks, of ``embed``, ``rotate`` and ``bias``. ``embed`` acts on the input, so you should
            omit it only when an absolute position would be meaningless.
        blockwise_bias: True for a variant that computes its logits in parts and requests the bias of each part
            (``attnlab.positions.Position.bias``). Schemes that provide only the whole bias are then refused.
        supports_memory: True for a variant with keys and values that may cover more positions than the queries.
        supports_cache: True for a variant that continues a sequence from a cache (``attnlab.models.cache``). One call of
            ``attend`` caches its keys and values; when the output depends on other positions in another way, return a cache
            from ``new_cache``. A subclass that overrides ``forward`` or ``attend`` should declare it again.
        backends: the supported backends of ``attnlab.nn.attention``; ``BACKENDS``, all, for a variant that calls ``attend``.
        default_position: the position scheme of configurations that name none.
        has_heads: False when ``model.heads`` has no effect; the plan then sets it to 1.
        supports_attention_bias: True for a variant with biases in its projections when ``AttentionConfig.bias`` is True. A
            subclass that overrides ``forward`` should declare it again.
        residual_projections: names of the linear layers that compute the output of the variant, for example ``("out",)``; ()
            for a variant without such a layer. ``model.initialization: gpt2`` scales their weights, and requires a
            declaration.
        trained_apart: names of the submodules that the variant trains by a loss of its own
            (``attnlab.nn.functions.with_gradient_of``), because they only choose, for example, keys. The check of gradients
            leaves them out: their gradients are not those of the output.
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
        recurrent_layers: PyTorch's recurrent layers that the variant contains, for example ``nn.LSTM``. Some CPUs have no bf16
            kernel for one of them; the plan then refuses bf16.
        supports_compile: True for a variant that ``torch.compile`` captures without a graph break, with backends
            ``reference`` and ``sdpa``.
        paper: the citation, for example ``"Vaswani et al. 2017"``.
        references: its papers for the bibliography of ``attnlab report --paper``: keys of
            ``attnlab/extras/paper/references.bib``, or BibTeX entries.
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
    references: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # The declarations of the base class are about another computation.
        if not {"forward", "attend"}.isdisjoint(vars(cls)) and "supports_cache" not in vars(cls):
            cls.supports_cache = False
        if "forward" in vars(cls) and "supports_attention_bias" not in vars(cls):
            cls.supports_attention_bias = False
        if not {"forward", "attend"}.isdisjoint(vars(cls)) and "places" not in vars(cls):
            cls.places = frozenset()

    @classmethod
    def head_dim(cls, dim: int, heads: int) -> int:
        """Return the width of one head's queries and keys, for which ``rotate`` and ``bias`` schemes are constructed."""
        return dim // heads

    @classmethod
    def recommended_options(cls, length: int) -> dict[str, Any]:
        """Return the options with which ``cost_exponent`` holds at ``length``, for variants with options that grow with it."""
        return {}

    @classmethod
    def unsupported(
        cls,
        *,
        role: str,
        hook: str,
        memory: bool,
        backend: str,
        dim: int,
        heads: int,
        device: str = "cpu",
        precision: str = "fp32",
        attention_dropout: float = 0.0,
        attention_bias: bool = False,
        initialization: str = "default",
        compile: bool = False,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> str | None:
        """Return the reason why this variant does not support a configuration, or None. The plan calls it for every cell.

        An override that adds a requirement takes the arguments it needs, passes all of them on and ends with
        ``return super().unsupported(...)``::

            @classmethod
            def unsupported(cls, *, heads, options, **config):
                if heads % options["groups"]:
                    return f"requires groups that divide {heads} heads, got {options['groups']}"
                return super().unsupported(heads=heads, options=options, **config)

        Args:
            role: one of ``ROLES``.
            hook: the hook of the position scheme: ``none``, ``embed``, ``rotate`` or ``bias``.
            memory: whether keys and values include the memory of earlier segments (``model.mem_len``).
            backend: one of ``attnlab.nn.attention.BACKENDS``; ``auto`` is already resolved.
            dim: model width.
            heads: number of heads.
            device: ``cpu``, ``cuda`` or ``cuda:N``.
            precision: ``fp32`` or ``bf16``.
            attention_dropout: probability of dropping an attention weight in training.
            attention_bias: whether the projections have biases.
            initialization: ``default`` or ``gpt2``.
            compile: whether the model runs under ``torch.compile``.
            options: every option of the constructor with its value, defaults included.
        """
        if role not in cls.roles:
            return f"does not support the role {role} (supports {_listed(cls.roles)})"
        if hook != "none" and hook not in cls.hooks:
            return f"does not support a position scheme that acts by '{hook}' (supports {_listed(cls.hooks)})"
        if memory and not cls.supports_memory:
            return "does not support memory (model.mem_len)"
        if memory and hook == "embed":
            return "absolute positions combined with memory (model.mem_len) would give one position two meanings"
        if backend not in cls.backends:
            return f"does not support the backend {backend} (supports {', '.join(cls.backends)})"
        if dim % heads:
            return f"model.dim {dim} is not divisible by {heads} heads"
        if attention_dropout and not cls.has_attention_dropout:
            return "has no attention weights to drop (model.attention_dropout)"
        if attention_bias and not cls.supports_attention_bias:
            return "does not support biases in its projections (model.attention_bias)"
        if initialization == "gpt2" and cls.residual_projections is None:
            return "declares no residual_projections, which model.initialization: gpt2 scales"
        if compile and not cls.supports_compile:
            return "does not support torch.compile (train.compile)"
        if precision == "bf16" and device == "cpu":
            layers = [f"nn.{layer.__name__}" for layer in cls.recurrent_layers if not processor.runs_in_bf16(layer)]
            if layers:
                return f"this processor has no bf16 kernel for {', '.join(layers)}: use train.precision: fp32"
        return None


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
