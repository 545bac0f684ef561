"""What is checked: a variant with its options, a position scheme, a backend and a device; and how a check puts its findings."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.nn import attention
from attnlab.positions import Position, PositionConfig
from attnlab.registry import POSITIONS, check_options
from attnlab.variants import ROLES, AttentionConfig, Variant

B, T, S = 3, 13, 11  # batch, length, length of the other sequence in cross-attention: prime, unequal
LENGTHS = (2, 3, T)  # ascending, so that the first failure is the smallest
LONG = 293  # beyond the blocks of most kernels and patterns, and beyond 256, where bf16 stops counting
SHAPES = ((3, 7), (3, 10), (3, 8), (2, 8), (4, 8), (8, 8))  # (heads, head width), the first that fits
ALIGNED = ((3, 8), (2, 8), (4, 8), (8, 8))  # head widths that xformers' kernels take


class Failure(Exception):
    """A property that does not hold.

    Args:
        case: the smallest case in which it fails. advice: what to change, in plain words.
    """

    def __init__(self, case: str, advice: str) -> None:
        super().__init__(case)
        self.case, self.advice = case, advice


class NotDeclared(Exception):
    """The variant does not claim this property."""


class Unsupported(Exception):
    """The variant says why it cannot be had."""


class Check(NamedTuple):
    """One property: ``name`` as printed, and the function that looks for it."""

    name: str
    run: Callable[["CheckTarget"], str]


class Cell(nn.Module):
    """A variant, and in front of it the position scheme where that acts on the input."""

    def __init__(self, attention: Variant, embed: Position | None) -> None:
        super().__init__()
        self.attention = attention
        self.embed = embed

    def forward(self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        if self.embed is not None:
            x = x + self.embed.embed(x.shape[1])
            context = None if context is None else context + self.embed.embed(context.shape[1])
        return self.attention(x, context=context, mask=mask)


@dataclass(frozen=True)
class CheckTarget:
    """One configuration under examination.

    Attributes:
        roles: those in which it can be had, of the ones asked for.
        heads, dim: the shape that is tried.
        any_scheme: whether no scheme was asked for: then what schemes can break is tried with every one there is.
        unsupported_roles: the other roles that were requested -> the reason why they are not supported.
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
    unsupported_roles: dict[str, str] = field(default_factory=dict)

    @property
    def dtype(self) -> torch.dtype:
        """Double precision, where the backend has it."""
        return torch.float32 if self.backend == "xformers" else torch.float64

    @property
    def tolerance(self) -> float:
        """What still counts as the same value."""
        return 1e-4 if self.dtype == torch.float32 else 1e-9

    @property
    def backends(self) -> list[str]:
        """The backend that was asked for; with ``reference`` the others that it declares, too, as far as they run here."""
        others = self.variant.backends if self.backend == "reference" else ()
        return [self.backend, *(n for n in others if n != "reference" and attention.unsupported(n, device=self.device) is None)]

    def fitted(self, asked: tuple[str, ...] = ROLES) -> "CheckTarget":
        """The same with the first shape that the variant takes, the roles in which it takes it, and why not the others."""
        unsupported_roles: dict[str, str] = {}
        on_cuda = self.device.startswith("cuda") and "xformers" in self.variant.backends
        for heads, d in ALIGNED if on_cuda or self.backend == "xformers" else SHAPES:
            heads = heads if self.variant.has_heads else 1
            tried = replace(self, heads=heads, dim=heads * d)
            reasons = {role: tried.unsupported(role) for role in asked}
            roles = tuple(role for role in asked if reasons[role] is None)
            if roles:
                return replace(tried, roles=roles, unsupported_roles={r: reason for r, reason in reasons.items() if reason})
            unsupported_roles = unsupported_roles or {role: reason or "" for role, reason in reasons.items()}
        return replace(self, roles=(), unsupported_roles=unsupported_roles)

    def unsupported(self, role: str, **changes: Any) -> str | None:
        """Return the reason why the variant or the position scheme does not support ``role``, or None."""
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
        }
        return self.variant.unsupported(**{**config, **changes})

    def position_config(self, role: str, *, length: int = 300, heads: int | None = None) -> PositionConfig:
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
        length: int = T,
        dropout: float = 0.0,
        backend: str | None = None,
        position: Position | None = None,
        dtype: torch.dtype | None = None,
        options: dict[str, Any] | None = None,
        seed: int = 0,
    ) -> Cell:
        """A cell in evaluation mode, with the options suited to ``length`` unless others were given.

        Args:
            position: instead of one made from the subject's scheme.
        """
        torch.manual_seed(seed)
        heads = heads or self.heads
        scheme = position or self.scheme(self.position_config(role, length=max(length, 300), heads=heads))
        config = AttentionConfig(
            dim=self.dim,
            heads=heads,
            role=role,
            backend=backend or self.backend,
            dropout=dropout,
            position=scheme if scheme.hook in ("rotate", "bias") else None,
        )
        given = {**self.variant.recommended_options(length), **self.options} if options is None else options
        check_options(self.variant, given, what=self.variant.__name__)
        cell = Cell(self.variant(config, **given), scheme if scheme.hook == "embed" else None)
        perturb_constant_parameters(cell)
        return cell.to(self.device, dtype or self.dtype).eval()

    def inputs(self, role: str, b: int = B, t: int = T, *, s: int = S, seed: int = 1) -> tuple[Tensor, Tensor | None]:
        """x (b, t, dim), and for ``cross`` a source (b, s, dim)."""
        x = self.noise(b, t, seed=seed)
        return x, self.noise(b, s, seed=seed + 100) if role == "cross" else None

    def noise(self, b: int, t: int, *, seed: int = 1) -> Tensor:
        """(b, t, dim) from a normal distribution."""
        made = torch.randn(b, t, self.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        return made.to(self.device, self.dtype)

    def need(self, role: str) -> None:
        """Raise ``NotDeclared`` unless the role is among those examined."""
        if role not in self.roles:
            raise NotDeclared(f"not {role} here")

    def with_scheme(self, scheme: type[Position], name: str) -> "CheckTarget":
        """The same variant with another scheme, in the roles that both take."""
        return replace(self, scheme=scheme, scheme_name=name, any_scheme=False).fitted(self.roles)

    def under_schemes(self) -> "list[CheckTarget]":
        """Itself, and where no scheme was asked for, with each that acts on queries and keys and that it honours."""
        names = POSITIONS.names() if self.any_scheme else []
        schemes = [(name, POSITIONS.get(name)) for name in names]
        acting = [(n, cls) for n, cls in schemes if cls.hook in ("rotate", "bias") and cls.hook in self.variant.hooks]
        tried = [self.with_scheme(cls, name) for name, cls in acting]
        return [self, *(each for each in tried if each.roles)]


def perturb_constant_parameters(module: nn.Module) -> None:
    """Give parameters that start as a constant (a gate at zero, a gain at one) some noise: mistakes hide behind them."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() and (parameter == parameter.flatten()[0]).all():
                parameter.add_(0.3 * torch.randn_like(parameter))


def distance(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference; infinite where either is not finite."""
    gap = (one.double() - other.double()).abs().max().item() if one.numel() else 0.0
    return gap if gap == gap else float("inf")


def number(value: float) -> str:
    """A measured number in few characters."""
    return "0" if value == 0 else f"{value:.1e}"
