"""Attention variants: modules ``(b, t, dim) -> (b, t, dim)`` that mix along ``t``.

A variant owns its projections and declares, as class attributes, what it can do. What it does not declare is refused when
the plan is made, with the reason; nothing falls back silently. To add one, write a class like this in a file of your own:

    @register_variant("mine")
    class Mine(Variant):
        roles = frozenset({"causal"})
        hooks = frozenset({"embed"})

        def __init__(self, config: AttentionConfig, *, my_option: float = 1.0) -> None:
            super().__init__(config)
            ...

        def forward(self, x, *, context=None, mask=None):
            ...

Keyword-only parameters of the constructor are the options that a YAML may set. ``attnlab check FILE.py:Mine`` holds a variant
against this contract.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from attnlab.nn import processor
from attnlab.nn.attention import BACKENDS, attend
from attnlab.nn.layers import merge_heads, split_heads
from attnlab.positions import Position

ROLES = ("causal", "bidirectional", "cross")


@dataclass(frozen=True)
class AttentionConfig:
    """What a variant is built for.

    Attributes:
        dim: model width. heads: number of heads.
        role: ``causal`` (query i sees keys up to its own position), ``bidirectional``, or ``cross`` (``context`` is
            another sequence).
        backend: which implementation of softmax attention to use.
        dropout: probability of dropping an attention weight in training.
        position: the scheme of this block when it acts on queries and keys (hook ``rotate`` or ``bias``), else None.
    """

    dim: int
    heads: int
    role: str = "bidirectional"
    backend: str = "reference"
    dropout: float = 0.0
    position: Position | None = None


class Variant(nn.Module):
    """The contract of an attention variant, and what most variants need to keep it.

    Attributes:
        roles: the roles it can play.
        hooks: the position hooks that it honours, of ``embed``, ``rotate`` and ``bias``. ``embed`` acts on its input, so
            leave it out only where an absolute position would be meaningless.
        pieces: whether it asks for the bias of pieces of its logits (``attnlab.positions.Position.bias``). Schemes that give it
            whole only are then refused.
        memory: whether keys and values may run over more positions than the queries.
        backends: the names in ``attnlab.nn.attention`` that it passes on to; ``BACKENDS``, all, where it calls ``attend``.
        default_position: the scheme used when a YAML names none.
        has_heads: False where ``model.heads`` changes nothing; the plan then sets it to 1.
        drops: whether it has attention weights that ``model.attention_dropout`` can drop.
        equivariant: whether it treats what it attends to as a set, role and position scheme apart. False where its own pattern
            knows positions.
        growth: the exponent of t that bounds both its arithmetic and the bytes it saves for the backward pass, at the options
            of ``recommended_options``.
        recurrent_layers: PyTorch's recurrent layers that it is built of, such as ``nn.LSTM``. Some CPUs have no bf16 kernel of
            one; the plan then refuses bf16.
        compiles: whether ``torch.compile`` takes it whole, without a graph break, with backends ``reference`` and ``sdpa``.
        paper: who proposed it.
    """

    roles: ClassVar[frozenset[str]] = frozenset(ROLES)
    hooks: ClassVar[frozenset[str]] = frozenset({"embed", "rotate", "bias"})
    blockwise_bias: ClassVar[bool] = False
    memory: ClassVar[bool] = False
    backends: ClassVar[tuple[str, ...]] = ("reference",)
    default_position: ClassVar[str] = "learned"
    has_heads: ClassVar[bool] = True
    has_attention_dropout: ClassVar[bool] = True
    permutation_equivariant: ClassVar[bool] = True
    cost_exponent: ClassVar[float] = 2.0
    recurrent_layers: ClassVar[tuple[processor.RecurrentLayer, ...]] = ()
    compiles: ClassVar[bool] = True
    paper: ClassVar[str] = ""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.causal = config.role == "causal"
        self.backend = config.backend
        self.dropout = config.dropout
        self.position = config.position

    @classmethod
    def head_dim(cls, dim: int, heads: int) -> int:
        """The width of one head's queries and keys, which ``rotate`` and ``bias`` schemes are built for."""
        return dim // heads

    @classmethod
    def recommended_options(cls, length: int) -> dict[str, Any]:
        """The options at which ``cost_exponent`` holds for sequences of ``length``: where an option grows with it."""
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
        compile: bool = False,
    ) -> str | None:
        """Return the reason why this variant does not support a configuration, or None. The plan calls it for every cell.

        An override that adds a requirement takes the arguments it needs, passes all of them on and ends with
        ``return super().unsupported(...)``::

            @classmethod
            def unsupported(cls, *, heads: int, **config: Any) -> str | None:
                if heads % 2:
                    return f"requires an even number of heads, got {heads}"
                return super().unsupported(heads=heads, **config)

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
            compile: whether the model runs under ``torch.compile``.
        """
        if role not in cls.roles:
            return f"does not support the role {role} (supports {_listed(cls.roles)})"
        if hook != "none" and hook not in cls.hooks:
            return f"does not support a position scheme that acts by '{hook}' (supports {_listed(cls.hooks)})"
        if memory and not cls.memory:
            return "does not support memory (model.mem_len)"
        if memory and hook == "embed":
            return "absolute positions combined with memory (model.mem_len) would give one position two meanings"
        if backend not in cls.backends:
            return f"does not support the backend {backend} (supports {', '.join(cls.backends)})"
        if dim % heads:
            return f"model.dim {dim} is not divisible by {heads} heads"
        if attention_dropout and not cls.has_attention_dropout:
            return "has no attention weights to drop (model.attention_dropout)"
        if compile and not cls.compiles:
            return "does not support torch.compile (train.compile)"
        if precision == "bf16" and device == "cpu":
            layers = [f"nn.{layer.__name__}" for layer in cls.recurrent_layers if not processor.runs_in_bf16(layer)]
            if layers:
                return f"this processor has no bf16 kernel for {', '.join(layers)}: use train.precision: fp32"
        return None

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Mix along t.

        Args:
            x: (b, t, dim), the queries' side.
            source: (b, s, dim), what keys and values run over: ``[memory; x]``, or the other sequence of a ``cross``
                role. None: ``x`` itself.
            mask: (b, s) boolean, True = may be attended; None: everything may.

        Returns:
            (b, t, dim).
        """
        raise NotImplementedError

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float | None = None) -> Tensor:
        """Softmax attention as this block is set: role, position scheme, backend, dropout.

        Args:
            q: (b, h, t, d). k: (b, h, s, d). v: (b, h, s, e). mask: (b, s) or None.
            scale: what the products are multiplied by; default 1 / sqrt(d).

        Returns:
            (b, h, t, e).
        """
        scale = float(q.shape[-1] ** -0.5) if scale is None else scale
        q, k = self.rotated(q, k)
        relative_logits = (
            self.position.relative_logits(q, k.shape[-2]) if self.position is not None and self.backend == "blocked" else None
        )
        return attend(
            q if relative_logits is None else relative_logits.content,
            k,
            v,
            backend=self.backend,
            causal=self.causal,
            attn_mask=None if mask is None else mask[:, None, None, :],
            bias=self.logit_bias(q, k, scale=scale) if relative_logits is None else None,
            relative=None if relative_logits is None else relative_logits[1:],
            dropout=self.dropout if self.training else 0.0,
            scale=scale,
        )

    def rotated(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """q and k after the position scheme, where it acts by ``rotate``."""
        if self.position is not None and self.position.hook == "rotate":
            return self.position.rotate(q, k)
        return q, k

    def logit_bias(self, q: Tensor, k: Tensor, *, scale: float, **piece: Any) -> Tensor | None:
        """The position scheme's ``bias``, where it acts by that. piece: its ``heads``, ``step`` and ``offset``."""
        if self.position is not None and self.position.hook == "bias":
            return self.position.bias(q, k, scale=scale, **piece)
        return None


class Projections(nn.Module):
    """Queries, keys and values of every head, by one matrix product where they come from the same sequence.

    Args:
        dim: model width. width: the heads' widths together.
    """

    def __init__(self, dim: int, width: int, *, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.weight = nn.Parameter(nn.Linear(dim, 3 * width, bias=False).weight.data)  # (3 width, dim): W_Q, W_K, W_V

    def forward(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """x (b, t, dim) and source (b, s, dim) -> q (b, h, t, d), k and v (b, h, s, d)."""
        if context is None:
            q, k, v = nn.functional.linear(x, self.weight).chunk(3, dim=-1)
        else:
            w_q, w_kv = self.weight.tensor_split([len(self.weight) // 3])
            q = nn.functional.linear(x, w_q)
            k, v = nn.functional.linear(context, w_kv).chunk(2, dim=-1)
        return split_heads(q, self.heads), split_heads(k, self.heads), split_heads(v, self.heads)


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"


__all__ = ["BACKENDS", "ROLES", "Projections", "AttentionConfig", "Variant", "merge_heads", "split_heads"]
