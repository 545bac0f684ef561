"""The target of the checks of position schemes, and the measurements that several of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnlab.positions import Position, PositionConfig
from attnlab.registry import with_defaults
from attnlab.testing.checks.measure import max_abs_diff
from attnlab.testing.checks.result import NotDeclared
from attnlab.testing.checks.target import BATCH, perturb_constant_parameters, seed_generators
from attnlab.variants import ROLES

HOOKS = ("embed", "rotate", "bias", "none")
HEAD_SHAPES = ((3, 7), (3, 10), (3, 8), (2, 8), (4, 8))  # (heads, head width), the first supported one is used
TRAINED_LENGTH = 300  # that the scheme is constructed for
TOLERANCE = 1e-9


@dataclass(frozen=True)
class SchemeTarget:
    """A position scheme with its options, and the sizes and roles to check it with.

    Attributes:
        scheme: the class to check.
        options: keyword arguments of its constructor.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        heads, head_dim: number of heads and width of one; ``with_supported_shape`` chooses them.
        roles: the roles that the scheme supports.
        unsupported_roles: the other roles, with the reason.
        treatments: of calls of the scheme, for a diagnosis: see ``attnlab.testing.diagnosis.treatments``.
    """

    scheme: type[Position]
    options: dict[str, Any]
    device: str = "cpu"
    heads: int = 3
    head_dim: int = 7
    roles: tuple[str, ...] = ROLES
    unsupported_roles: tuple[tuple[str, str], ...] = ()
    treatments: tuple[Callable[..., Any], ...] = ()

    @property
    def hook(self) -> str:
        """The hook of the scheme."""
        return self.scheme.hook

    def config(self, role: str, *, length: int = TRAINED_LENGTH) -> PositionConfig:
        """Return the configuration that the scheme is constructed with."""
        width = self.heads * self.head_dim
        return PositionConfig(dim=width, heads=self.heads, head_dim=self.head_dim, length=length, role=role)

    def with_supported_shape(self, heads: int | None, dim: int | None) -> SchemeTarget:
        """Return a copy with the first supported shape, and the roles that support it."""
        refused: tuple[tuple[str, str], ...] = ()
        for h, d in HEAD_SHAPES:
            h = heads or h
            tried = replace(self, heads=h, head_dim=dim // h if dim else d)
            reasons = {role: tried.unsupported(role) for role in ROLES}
            refused = tuple((role, reason) for role, reason in reasons.items() if reason)
            roles = tuple(role for role in ROLES if not reasons[role])
            if roles:
                return replace(tried, roles=roles, unsupported_roles=refused)
        return replace(self, roles=(), unsupported_roles=refused)

    def unsupported(self, role: str) -> str | None:
        """Return the reason why the scheme does not support a role, or None."""
        return self.scheme.unsupported(self.config(role), options=with_defaults(self.scheme, self.options))

    def build(self, role: str, *, length: int = TRAINED_LENGTH, seed: int = 0) -> Position:
        """Return the scheme in float64, with noise added to parameters that start as a constant."""
        seed_generators(seed, self.device)
        scheme = self.scheme(self.config(role, length=length), **self.options)
        perturb_constant_parameters(scheme)
        for treatment in self.treatments:
            setattr(scheme, self.hook, partial(treatment, scheme, getattr(scheme, self.hook)))
        return scheme.to(self.device, torch.float64).eval()

    def noise(self, length: int, *, b: int = BATCH, seed: int = 1) -> Tensor:
        """Return standard normal values (b, h, length, d)."""
        generator = torch.Generator().manual_seed(seed)
        values = torch.randn(b, self.heads, length, self.head_dim, dtype=torch.float64, generator=generator)
        return values.to(self.device)

    def require(self, *hooks: str) -> None:
        """Raise ``NotDeclared`` unless the scheme acts by one of ``hooks``."""
        if self.hook not in hooks:
            raise NotDeclared(f"the hook is '{self.hook}'")


def logits(scheme: Position, q: Tensor, k: Tensor) -> Tensor:
    """Return the logits (b, h, t, s) of q and k with a scheme that acts by ``rotate`` or ``bias``."""
    if scheme.hook == "rotate":
        q, k = scheme.rotate(q, k)
        return q @ k.mT / 2
    return q @ k.mT / 2 + scheme.bias(q, k, scale=0.5)


def visible_gap(role: str, one: Tensor, other: Tensor) -> float:
    """Return the largest difference of two tensors of logits (..., t, s), in a causal role of the visible ones."""
    t, s = one.shape[-2:]
    gap = one - other
    return max_abs_diff(gap.tril(s - t) if role == "causal" else gap, torch.zeros_like(gap))
