"""The target of a check: a variant with options, position scheme, backend and device."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.components import ComponentConfig
from attnlab.components.base import token_readers
from attnlab.nn import attention
from attnlab.positions import Position, PositionConfig
from attnlab.registry import POSITIONS, check_options, with_defaults
from attnlab.testing.checks.result import Failure, NotDeclared, Unsupported
from attnlab.testing.checks.sizes import DRAWS, Sizes, draw_heads, draw_sizes
from attnlab.testing.composition import build_components
from attnlab.variants import ROLES, AttentionConfig, Setting, Variant

BATCH, LENGTH = Sizes().batch, Sizes().length
VOCABULARY = 8  # of the tokens that components read
LONG_LENGTH = 293  # exceeds the block size of most kernels and patterns, and 256, up to which bf16 represents every integer
HEAD_SHAPES = ((3, 7), (3, 10), (3, 8), (2, 8), (4, 8), (8, 8))  # (heads, head width), the first supported one is used
LAYERS = (1, 2, 5)  # numbers of the block, of each draw
CUDA_BACKENDS = ("xformers", "flex")  # kernels for CUDA alone, without float64
FINITE_ADVICE = (
    "Look for a division by a sum or norm that is zero, an exponential without its maximum subtracted, and a softmax over no "
    "keys. fp16 represents 6e-8 to 65,504: compute sums, squares and epsilons in float32."
)
CUDA_HEAD_SHAPES = ((3, 16), (2, 16), (4, 16), (8, 16))  # head widths that these kernels support


class AttentionLayer(nn.Module):
    """A variant, preceded by its position scheme if the scheme acts on the input (hook ``embed``).

    Raises:
        Failure: an output at a real position is NaN or infinite, in whichever check calls the layer.
    """

    def __init__(self, attention: Variant, embed: Position | None, role: str) -> None:
        super().__init__()
        self.attention = attention
        self.embed = embed
        self.role = role

    def forward(self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        if self.embed is not None:
            x = x + self.embed.embed(x.shape[1])
            context = None if context is None else context + self.embed.embed(context.shape[1])
        y = self.attention(x, context=context, mask=mask)
        if not torch.compiler.is_compiling() and isinstance(y, Tensor) and y.shape == x.shape:
            self._require_finite(y, mask)
        return y

    def _require_finite(self, y: Tensor, mask: Tensor | None) -> None:
        """Raise ``Failure`` when an output is NaN or infinite, at a real position of a row that is not all padding."""
        bad = ~torch.isfinite(y).all(-1)  # (b, t)
        if mask is not None:
            bad &= mask.any(1, keepdim=True) if self.role == "cross" else mask[:, -y.shape[1] :]
        if bad.any():
            row, i = bad.nonzero()[0].tolist()
            value = "NaN" if y[row, i].isnan().any() else "infinite"
            mode = f"{describe_precision(y)}, {'training' if self.training else 'evaluation'}"
            case = f"{self.role}, {mode}, batch {y.shape[0]}, length {y.shape[1]}{'' if mask is None else ', masked'}"
            raise Failure(f"{case}: output {i} of row {row} is {value}", FINITE_ADVICE)


def describe_precision(y: Tensor) -> str:
    """Return the precision in which outputs were computed, for example ``float64`` or ``fp16 autocast``."""
    device = y.device.type
    if not torch.is_autocast_enabled(device):
        return str(y.dtype).removeprefix("torch.")
    return f"{ {torch.float16: 'fp16', torch.bfloat16: 'bf16'}[torch.get_autocast_dtype(device)] } autocast"


def pass_tokens(attention: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Give components a token below ``VOCABULARY`` for each input (b, s, dim), which the signs of its features determine."""
    powers = torch.tensor([1, 2, 4], device=inputs[0].device)
    for component in token_readers(attention):
        component.tokens = ((inputs[0][..., :3] > 0) * powers).sum(-1)


@dataclass(frozen=True)
class CheckTarget:
    """The configuration of a variant that the checks examine.

    Attributes:
        variant: the class to check.
        options: keyword arguments of its constructor; they override ``Variant.recommended_options``.
        scheme: the position scheme, registered as ``scheme_name``.
        backend: the attention backend.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        roles: the requested roles that this configuration supports.
        heads, dim: number of heads and model width; ``with_supported_shape`` chooses them.
        requested_heads, requested_dim: number of heads and model width that the caller fixed; None: the first supported ones.
        any_scheme: True when no scheme was requested: checks that depend on the scheme then run with one of each kind.
        sizes: the sizes of the inputs.
        seed: the seed of ``drawn``.
        study_sizes: the sizes of a study, which replace the sizes of ``drawn``.
        study_length: the longest sequence in training of a study, memory included; 0 without a study.
        unsupported_roles: requested roles that are not supported, with the reason.
        layer: the number of the block in its stack.
        study_layers: numbers of the blocks of a study that have the variant.
        longest: queries of the longest sequence of a study, which may exceed ``study_sizes``; 0 without a study.
        precisions: of a run, ``fp32``, ``bf16`` and ``fp16``.
    """

    variant: type[Variant]
    options: dict[str, Any]
    scheme: type[Position]
    backend: str = "reference"
    device: str = "cpu"
    roles: tuple[str, ...] = ROLES
    heads: int = 3
    dim: int = 21
    scheme_name: str = "none"
    any_scheme: bool = False
    sizes: Sizes = Sizes()
    seed: int = 0
    study_sizes: Sizes | None = None
    study_length: int = 0
    requested_heads: int | None = None
    requested_dim: int | None = None
    unsupported_roles: dict[str, str] = field(default_factory=dict)
    layer: int = 0
    study_layers: tuple[int, ...] = ()
    longest: int = 0
    precisions: tuple[str, ...] = ("fp32", "bf16", "fp16")

    @property
    def dtype(self) -> torch.dtype:
        """float64; float32 for kernels of CUDA alone, and for layers of other libraries that declare it."""
        return torch.float32 if self.backend in CUDA_BACKENDS else getattr(self.variant, "checked_dtype", torch.float64)

    @property
    def tolerance(self) -> float:
        """The largest absolute difference between values that count as equal."""
        return 1e-4 if self.dtype == torch.float32 else getattr(self.variant, "rounding", 1e-9)

    @property
    def backends(self) -> list[str]:
        """The target's backend; if it is ``reference``, also every other declared backend that computes in float64."""
        others = self.variant.backends if self.backend == "reference" else ()
        return [self.backend, *(name for name in others if name not in ("reference", *CUDA_BACKENDS))]

    def backend_unsupported(self, name: str) -> str | None:
        """Return the reason why a backend cannot compute every precision at this width on the device, or None."""
        width = self.variant.head_dim(self.dim, self.heads) if self.variant.has_heads else None
        return attention.unsupported(name, device=self.device, head_dim=width, precision="bf16")

    def with_supported_shape(self, requested: tuple[str, ...] = ROLES) -> "CheckTarget":
        """Return a copy with the first supported shape, the roles that support it, and the reasons of the other roles."""
        unsupported_roles: dict[str, str] = {}
        for heads, dim in self._shapes():
            tried = replace(self, heads=heads, dim=dim)
            reasons = {role: tried.unsupported(role) for role in requested}
            roles = tuple(role for role in requested if reasons[role] is None)
            if roles:
                refused = {role: reason for role, reason in reasons.items() if reason}
                return replace(tried, roles=roles, unsupported_roles=refused)
            unsupported_roles = unsupported_roles or {role: reason or "" for role, reason in reasons.items()}
        return replace(self, roles=(), unsupported_roles=unsupported_roles)

    def _shapes(self) -> Iterator[tuple[int, int]]:
        """Yield the numbers of heads and the widths to try."""
        on_cuda = self.device.startswith("cuda") and not set(CUDA_BACKENDS).isdisjoint(self.variant.backends)
        for heads, d in CUDA_HEAD_SHAPES if on_cuda or self.backend in CUDA_BACKENDS else HEAD_SHAPES:
            heads = self.requested_heads or heads if self.variant.has_heads else 1
            yield heads, self.requested_dim or heads * d

    def unsupported(self, role: str, **changes: Any) -> str | None:
        """Return the reason why the variant or the scheme does not support ``role``, or None."""
        reason = self.variant_unsupported(role=role, **changes)
        return reason or self.scheme.unsupported(self.position_config(role))

    def variant_unsupported(self, **changes: Any) -> str | None:
        """Return ``Variant.unsupported`` of this configuration with ``changes`` applied."""
        config: dict[str, Any] = {
            "role": self.roles[0] if self.roles else "causal",
            "hook": self.scheme.hook,
            "memory": False,
            "backend": self.backend,
            "dim": self.dim,
            "heads": self.heads,
            "options": with_defaults(self.variant, {**self.variant.recommended_options(self.sizes.length), **self.options}),
        }
        return self.variant.unsupported(Setting(**{**config, **changes}))

    def position_config(self, role: str, *, length: int = 0, heads: int | None = None) -> PositionConfig:
        """Return the configuration of the position scheme, for all positions of the checks and of the study, at least 300."""
        length = max(length, self.sizes.total, self.study_length, 300)
        heads = heads or self.heads
        width = self.variant.head_dim(self.dim, heads)
        return PositionConfig(
            dim=self.dim, heads=heads, head_dim=width, length=length, role=role, blockwise_bias=self.variant.blockwise_bias
        )

    def build(
        self,
        role: str,
        *,
        heads: int | None = None,
        length: int | None = None,
        dropout: float = 0.0,
        bias: bool = False,
        backend: str | None = None,
        position: Position | None = None,
        dtype: torch.dtype | None = None,
        options: dict[str, Any] | None = None,
        seed: int = 0,
    ) -> AttentionLayer:
        """Build the variant with its scheme, in evaluation mode, with noise added to constant parameters.

        Args:
            role: the variant's role.
            heads, backend, dtype: default to the target's.
            length: passed to ``Variant.recommended_options``; default ``sizes.length``. The scheme and the components are built
                for the longest sequence of the checks and of the study, at least 300 positions.
            dropout: the probability of dropping an attention weight.
            bias: True for biases in the projections.
            position: replaces the target's scheme.
            options: replace the recommended options and the target's.
            seed: seeds torch's generator before any parameter is drawn.
        """
        seed_generators(seed, self.device)
        heads, length = heads or self.heads, length or self.sizes.length
        settings = self.position_config(role, length=length, heads=heads)
        scheme = position or self.scheme(settings)
        component_config = ComponentConfig(self.dim, heads, settings.head_dim, role, settings.length, bias, VOCABULARY)
        config = AttentionConfig(
            dim=self.dim,
            heads=heads,
            role=role,
            backend=backend or self.backend,
            dropout=dropout,
            position=scheme if scheme.hook in ("rotate", "bias") else None,
            bias=bias,
            layer=self.layer,
            components=build_components(self.variant, component_config),
        )
        kwargs = {**self.variant.recommended_options(length), **self.options} if options is None else options
        check_options(self.variant, kwargs, what=self.variant.__name__)
        layer = AttentionLayer(self.variant(config, **kwargs), scheme if scheme.hook == "embed" else None, role)
        if token_readers(layer):
            layer.attention.register_forward_pre_hook(pass_tokens)
        perturb_constant_parameters(layer)
        return layer.to(self.device, dtype or self.dtype).eval()

    def inputs(
        self, role: str, b: int | None = None, t: int | None = None, *, s: int | None = None, seed: int = 1
    ) -> tuple[Tensor, Tensor | None]:
        """Return x (b, t, dim) and the context: (b, s, dim) for role ``cross``, else None; by default of ``sizes``."""
        b = b or self.sizes.batch
        x = self.noise(b, t or self.sizes.length, seed=seed)
        return x, self.noise(b, s or self.sizes.context, seed=seed + 100) if role == "cross" else None

    def calls(self, role: str) -> Iterator[tuple[str, tuple[Tensor, Tensor | None, Tensor | None]]]:
        """Yield the name and the arguments of each kind of call: plain, with a mask and, if it is supported, with memory."""
        x, context = self.inputs(role)
        yield "", (x, context, None)
        mask = torch.ones((x if context is None else context).shape[:2], dtype=torch.bool, device=self.device)
        mask[0, 1:][-2:] = False
        yield ", masked", (x, context, mask)
        if self.has_memory(role):
            memory = self.noise(len(x), self.sizes.memory, seed=8)
            yield f", memory {memory.shape[1]}", (x, torch.cat([memory, x], dim=1), None)

    def noise(self, b: int, t: int, *, seed: int = 1) -> Tensor:
        """Return (b, t, dim) standard normal values."""
        values = torch.randn(b, t, self.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        return values.to(self.device, self.dtype)

    def describe_sizes(self) -> str:
        """Return the sizes as a phrase for a failure: ``seed 0, draw 1: 4 heads, width 32, batch 5, ...``."""
        sizes = ", ".join(f"{name} {size}" for name, size in vars(self.sizes).items() if name != "name")
        return f"{self.sizes.name}: {self.heads} heads, width {self.dim}, {sizes}"

    def has_memory(self, role: str) -> bool:
        """Return whether the configuration supports memory in a role."""
        return role == "causal" and self.variant.supports_memory and not self.variant_unsupported(role=role, memory=True)

    def require_role(self, role: str) -> None:
        """Raise ``NotDeclared`` when ``role`` is not among the roles to check."""
        if role not in self.roles:
            raise NotDeclared(f"role {role} is not checked")

    def with_variant(self, variant: type[Variant]) -> "CheckTarget":
        """Return a copy with another variant."""
        return replace(self, variant=variant)

    def with_scheme(self, scheme: type[Position], name: str) -> "CheckTarget":
        """Return a copy with another scheme, in the roles that the variant supports with it."""
        return replace(self, scheme=scheme, scheme_name=name, any_scheme=False).with_supported_shape(self.roles)

    def drawn(self) -> "list[CheckTarget]":
        """Return copies with sizes drawn from ``seed``, as later blocks; one has four heads, the default of a study.

        Numbers of heads that the variant does not support are left out; there are none of a copy that is itself drawn.
        """
        if self.sizes.name:
            return []
        if self.study_sizes is not None:
            return [replace(self, sizes=self.study_sizes, layer=max(self.study_layers, default=0))]
        targets = []
        for number in range(DRAWS):
            heads, width = draw_heads(self.seed, number)
            width = CUDA_HEAD_SHAPES[0][1] if self.backend in CUDA_BACKENDS else width
            heads = self.requested_heads or heads if self.variant.has_heads else 1
            dim = self.requested_dim or heads * width
            sizes = draw_sizes(self.seed, number, heads=heads)
            target = replace(self, requested_heads=heads, requested_dim=dim, sizes=sizes, layer=LAYERS[number])
            target = target.with_supported_shape(self.roles)
            targets += [target] if target.roles else []
        return targets

    def with_every_scheme(self) -> "list[CheckTarget]":
        """Return the target and, if no scheme was requested, a copy with each kind of scheme that acts on queries and keys.

        A kind is what a variant can treat differently: the hook, dependence on distances alone, and the further arguments and
        methods. Only schemes with a hook that the variant declares are included; at drawn sizes one of them.
        """
        kinds: dict[tuple[Any, ...], tuple[str, type[Position]]] = {}
        for name in POSITIONS.names() if self.any_scheme else []:
            cls = POSITIONS.get(name)
            products = cls.relative_logits is not Position.relative_logits
            if cls.hook in ("rotate", "bias") and cls.hook in self.variant.hooks:
                kinds.setdefault((cls.hook, cls.relative, cls.reads_mask, cls.has_blockwise_bias(), products), (name, cls))
        acting = list(kinds.values())
        if self.sizes.name and acting:
            acting = [random.Random(self.sizes.name).choice(acting)]
        tried = [self.with_scheme(cls, name) for name, cls in acting]
        return [self, *(target for target in tried if target.roles)]


def at_drawn_sizes(run: Callable[[CheckTarget], str], *, draws: int = DRAWS) -> Callable[[CheckTarget], str]:
    """Return a check that runs at the target's sizes, where failures are small, and then at the sizes of ``CheckTarget.drawn``.

    Args:
        run: the check at the sizes of its target.
        draws: of an expensive check, how many of the drawn sizes it runs at.
    """

    @wraps(run)
    def run_at_every_size(target: CheckTarget) -> str:
        detail = run(target)
        for drawn in target.drawn()[:draws]:
            try:
                run(drawn)
            except (NotDeclared, Unsupported):  # with another number of heads
                continue
            except Failure as failure:
                raise Failure(f"{failure.case} ({drawn.describe_sizes()})", failure.advice) from failure
            except Exception as error:  # the variant is user code and may raise anything
                error.add_note(f"({drawn.describe_sizes()})")
                raise
        return detail

    return run_at_every_size


def seed_generators(seed: int, device: str | torch.device) -> None:
    """Seed the generators of the CPU and of ``device``.

    ``torch.manual_seed`` also records the whole stack for every type of device that has not been used, which takes longer than
    many a forward pass of the checks.
    """
    torch.default_generator.manual_seed(seed)
    if torch.device(device).type == "cuda":
        torch.cuda.manual_seed_all(seed)


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return name -> parameter of those that are trained: others, for example fixed random features, have no gradient."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def perturb_constant_parameters(module: nn.Module) -> None:
    """Add noise to parameters that are initialized to a constant, in place.

    A gate of zeros or a gain of ones would hide mistakes in the terms that it multiplies.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() and (parameter == parameter.flatten()[0]).all():
                parameter.add_(0.3 * torch.randn_like(parameter))
