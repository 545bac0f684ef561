"""Position hooks: what is declared acts, on the right head and the right pair; what is not declared is refused."""

import torch
from torch import Tensor

from attnlab.positions import Position, PositionConfig
from attnlab.registry import POSITIONS
from attnlab.testing.checks.target import Check, CheckTarget, Failure, NotDeclared, distance, number

HOOKS = ("embed", "rotate", "bias")
USE = {
    "embed": "The scheme is added to x before the variant sees it: the output must depend on x.",
    "rotate": "Take `q, k = self.rotate(q, k)` before their product (self.attend does), or take 'rotate' out of `hooks`.",
    "bias": "Add `self.position.bias(q, k, scale=scale)` to scaled logits (self.attend does), or take 'bias' out of `hooks`.",
}


class Turned(Position):
    """Multiplies queries and keys by a sign each."""

    hook = "rotate"

    def __init__(self, config: PositionConfig, q_sign: int, k_sign: int) -> None:
        super().__init__(config)
        self.q_sign, self.k_sign = q_sign, k_sign

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q * self.q_sign, k * self.k_sign


def act(subject: CheckTarget) -> str:
    """Every declared hook changes the output, with every scheme that acts by it."""
    declared = subject.variant.hooks
    names = [subject.scheme_name] if subject.scheme.hook != "none" else POSITIONS.names()
    tried, least = [], float("inf")
    for name in names:
        scheme = subject.scheme if subject.scheme.hook != "none" else POSITIONS.get(name)
        if scheme.hook not in declared:
            continue
        having = subject.with_scheme(scheme, name)
        roles = having.roles if scheme.hook == "embed" else [role for role in having.roles if role != "cross"]
        for role in roles:
            x, context = having.inputs(role, 1, 3)
            with torch.no_grad():
                cell = having.build(role)
                without = having.build(role, position=Position(having.position_config(role)))
                without.attention.load_state_dict(cell.attention.state_dict(), strict=False)
                gap = distance(cell(x, context), without(x, context))
            if not gap > having.tolerance:
                raise Failure(
                    f"{role}, batch 1, length 3: position scheme {name} (hook '{scheme.hook}') changes nothing",
                    USE[scheme.hook],
                )
            least = min(least, gap)
        tried += [name] if roles else []
    if not tried:
        raise NotDeclared("no scheme to try")
    return f"{', '.join(tried)}: the output moves by at least {number(least)}"


def probed_roles(subject: CheckTarget, hook: str) -> list[str]:
    """The roles in which a probe with ``hook`` can take the scheme's place; ``NotDeclared`` where there are none."""
    if hook not in subject.variant.hooks:
        raise NotDeclared(f"no hook '{hook}'")
    if subject.scheme.hook not in ("none", hook):
        raise NotDeclared(f"the scheme acts by '{subject.scheme.hook}'")
    roles = [role for role in subject.roles if role != "cross"]
    if not roles:
        raise NotDeclared("schemes on pairs have no place in cross-attention")
    return roles


def rotation_lands(subject: CheckTarget) -> str:
    """Both queries and keys are turned: turning both by the same changes no product, turning one does."""
    worst = 0.0
    for role in probed_roles(subject, "rotate"):
        outputs = {}
        weights = subject.build(role).attention.state_dict()
        for signs in ((1, 1), (-1, -1), (-1, 1), (1, -1)):
            with torch.no_grad():
                cell = subject.build(role, position=Turned(subject.position_config(role), *signs))
                cell.attention.load_state_dict(weights, strict=False)  # the scheme's own are not among the probe's
                outputs[signs] = cell(subject.noise(1, 3))
        gap = distance(outputs[1, 1], outputs[-1, -1])
        if not gap <= subject.tolerance:
            raise Failure(
                f"{role}, batch 1, length 3: turning queries and keys alike changes the output by {number(gap)}",
                "Multiply both turned ones: `q, k = self.rotate(q, k)`, not what was computed from them before.",
            )
        for signs, what in (((-1, 1), "queries"), ((1, -1), "keys")):
            if not distance(outputs[1, 1], outputs[signs]) > subject.tolerance:
                raise Failure(f"{role}, batch 1, length 3: turning the {what} alone changes nothing", USE["rotate"])
        worst = max(worst, gap)
    return f"queries and keys both, turned alike they differ by {number(worst)}"


def refused(subject: CheckTarget) -> str:
    """Hooks that are not declared are refused; declared ones are not."""
    for hook in HOOKS:
        reason = subject.variant_unsupported(hook=hook)
        if hook not in subject.variant.hooks and not reason:
            raise Failure(
                f"hook '{hook}' is not among hooks, yet unsupported() returns None",
                "End your override of unsupported() with `return super().unsupported(...)`, or honour the hook and declare it.",
            )
        if hook in subject.variant.hooks and reason:
            raise Failure(f"hook '{hook}' is declared, yet refused: {reason}", f"Take '{hook}' out of `hooks`.")
    missing = [hook for hook in HOOKS if hook not in subject.variant.hooks]
    return f"refused: {', '.join(missing)}" if missing else "it honours every hook"


CHECKS = [
    Check("hooks act", act),
    Check("rotation lands", rotation_lands),
    Check("hooks refused", refused),
]
