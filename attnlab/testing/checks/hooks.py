"""Position hooks: declared hooks change the output in the right place; undeclared hooks are refused."""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.positions import Position, PositionConfig
from attnlab.registry import POSITIONS
from attnlab.testing.checks.measure import format_number, max_abs_diff
from attnlab.testing.checks.result import Check, Failure, NotDeclared
from attnlab.testing.checks.target import CheckTarget, at_drawn_sizes

HOOKS = ("embed", "rotate", "bias")
ADVICE = {
    "embed": "The scheme is added to x before the variant is called: the output must depend on x.",
    "rotate": "Call `q, k = self.rotate(q, k)` before computing logits, as self.attend does, or remove 'rotate' from `hooks`.",
    "bias": "Add `self.position.bias(q, k, scale=scale)` to scaled logits, as self.attend does, or remove 'bias' from `hooks`.",
}


class SignFlip(Position):
    """Multiply queries by ``q_sign`` and keys by ``k_sign`` (hook ``rotate``)."""

    hook = "rotate"

    def __init__(self, config: PositionConfig, q_sign: int, k_sign: int) -> None:
        super().__init__(config)
        self.q_sign, self.k_sign = q_sign, k_sign

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q * self.q_sign, k * self.k_sign


class ZeroPad(Position):
    """Append d zeros to queries and keys of width d, which leaves their products unchanged (hook ``rotate``)."""

    hook = "rotate"

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return F.pad(q, (0, q.shape[-1])), F.pad(k, (0, k.shape[-1]))


def take_effect(target: CheckTarget) -> str:
    """Every declared hook changes the output, with every scheme that uses it."""
    declared = target.variant.hooks
    names = [target.scheme_name] if target.scheme.hook != "none" else POSITIONS.names()
    tried, least = [], float("inf")
    for name in names:
        scheme = target.scheme if target.scheme.hook != "none" else POSITIONS.get(name)
        if scheme.hook not in declared:
            continue
        scheme_target = target.with_scheme(scheme, name)
        roles = scheme_target.roles if scheme.hook == "embed" else [role for role in scheme_target.roles if role != "cross"]
        for role in roles:
            x, context = scheme_target.inputs(role, 1, 3)
            with torch.no_grad():
                layer = scheme_target.build(role)
                without = scheme_target.build(role, position=Position(scheme_target.position_config(role)))
                without.attention.load_state_dict(layer.attention.state_dict(), strict=False)
                gap = max_abs_diff(layer(x, context), without(x, context))
            if not gap > scheme_target.tolerance:
                raise Failure(
                    f"{role}, batch 1, length 3: position scheme {name} (hook '{scheme.hook}') does not change the output",
                    ADVICE[scheme.hook],
                )
            least = min(least, gap)
        tried += [name] if roles else []
    if not tried:
        raise NotDeclared("no registered scheme uses a declared hook")
    return f"{', '.join(tried)}: the output changes by at least {format_number(least)}"


def roles_for_probe(target: CheckTarget, hook: str) -> list[str]:
    """Return the roles in which a probe with ``hook`` can replace the scheme; raise ``NotDeclared`` if none can."""
    if hook not in target.variant.hooks:
        raise NotDeclared(f"hook '{hook}' is not declared")
    if target.scheme.hook not in ("none", hook):
        raise NotDeclared(f"the position scheme uses hook '{target.scheme.hook}'")
    roles = [role for role in target.roles if role != "cross"]
    if not roles:
        raise NotDeclared("cross-attention does not support schemes that act on queries and keys")
    return roles


def rotates_both(target: CheckTarget) -> str:
    """Queries and keys are both rotated: flipping the sign of both leaves the output unchanged, of only one changes it."""
    worst = 0.0
    for role in roles_for_probe(target, "rotate"):
        outputs = {}
        weights = target.build(role).attention.state_dict()
        for signs in ((1, 1), (-1, -1), (-1, 1), (1, -1)):
            with torch.no_grad():
                layer = target.build(role, position=SignFlip(target.position_config(role), *signs))
                layer.attention.load_state_dict(weights, strict=False)  # the probe lacks the parameters of the scheme
                outputs[signs] = layer(target.noise(1, 3))
        gap = max_abs_diff(outputs[1, 1], outputs[-1, -1])
        if not gap <= target.tolerance:
            raise Failure(
                f"{role}, batch 1, length 3: flipping the signs of queries and keys changes the output by {format_number(gap)}",
                "Compute logits from the results of `q, k = self.rotate(q, k)`, and all else, such as a gate, from the q and k "
                "before it.",
            )
        for signs, name in (((-1, 1), "queries"), ((1, -1), "keys")):
            if not max_abs_diff(outputs[1, 1], outputs[signs]) > target.tolerance:
                raise Failure(
                    f"{role}, batch 1, length 3: flipping the signs of the {name} alone does not change the output",
                    ADVICE["rotate"],
                )
        worst = max(worst, gap, _widening_gap(target, role, weights, outputs[1, 1]))
    return f"both are rotated; flipping both signs, or appending zeros to both, changes the output by {format_number(worst)}"


def _widening_gap(target: CheckTarget, role: str, weights: dict[str, Tensor], expected: Tensor) -> float:
    """Return the change of the output where queries and keys become twice as wide, by zeros."""
    layer = target.build(role, position=ZeroPad(target.position_config(role)))
    layer.attention.load_state_dict(weights, strict=False)
    with torch.no_grad():
        gap = max_abs_diff(layer(target.noise(1, 3)), expected)
    if not gap <= target.tolerance:
        raise Failure(
            f"{role}, batch 1, length 3: a scheme that appends zeros to queries and keys changes the output by "
            f"{format_number(gap)}",
            "Compute the scale of the logits from the width before `q, k = self.rotate(q, k)`: a scheme may widen both.",
        )
    return gap


def refused(target: CheckTarget) -> str:
    """Undeclared hooks are refused; declared ones are not."""
    for hook in HOOKS:
        reason = target.variant_unsupported(hook=hook)
        if hook not in target.variant.hooks and not reason:
            raise Failure(
                f"hook '{hook}' is not among hooks, but unsupported() returns None",
                "End your override of unsupported() with `return super().unsupported(...)`, or apply the hook and declare it.",
            )
        if hook in target.variant.hooks and reason:
            raise Failure(f"hook '{hook}' is declared, yet refused: {reason}", f"Remove '{hook}' from `hooks`.")
    missing = [hook for hook in HOOKS if hook not in target.variant.hooks]
    return f"refused: {', '.join(missing)}" if missing else "every hook is declared"


CHECKS = [
    Check("hooks take effect", at_drawn_sizes(take_effect, draws=1)),
    Check("rotation placement", at_drawn_sizes(rotates_both, draws=1)),
    Check("hooks refused", refused),
]
