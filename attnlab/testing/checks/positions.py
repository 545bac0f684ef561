"""Positions: what a variant does with a position scheme, and without one.

- Order: permutation equivariance without a position scheme, and translation invariance with a relative one.
- Hooks: declared hooks change the output in the right place; undeclared hooks are refused.
- Bias: each value reaches its logit.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab._util.raise_site import describe_error
from attnlab.nn.layers import relative_distance
from attnlab.positions import Position, PositionConfig
from attnlab.registry import POSITIONS
from attnlab.testing.checks.result import Check, Failure, NotDeclared, format_number, max_abs_diff, require_small
from attnlab.testing.checks.target import CheckTarget, at_drawn_sizes

ROTATE_ADVICE = "Call `q, k = self.rotate(q, k)` before computing logits, as self.attend does, or remove 'rotate' from `hooks`."
NO_BIAS_ADVICE = "Add `self.position.bias(q, k, scale=scale)` to scaled logits, as self.attend does, or remove it from `hooks`."
BIAS_ADVICE = (
    "Add bias[:, h, i, j] to the logit of head h, query i and key j, once, after the scale; and pass the same q and k to "
    "bias() whose product gives the logits"
)
MOST_KEYS = 64  # of which factors of queries are computed


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


def require_hook_shapes(scheme: Position, q: Tensor, k: Tensor, case: str) -> None:
    """Raise ``Failure`` unless a scheme returns finite values of the shapes that its hook requires for q and k (b, h, n, d)."""
    hook, s = scheme.hook, k.shape[-2]
    if hook == "rotate":
        values = scheme.rotate(q, k)
        if not isinstance(values, tuple | list) or len(values) != 2:
            raise Failure(f"{case}: rotate() returned a {type(values).__name__}", "rotate() must return q and k.")
        first = values[0]
        width = max(q.shape[-1], first.shape[-1] if isinstance(first, Tensor) and first.dim() else 0)  # both may become wider
        expected = [(*z.shape[:-1], width) for z in (q, k)]
    else:
        values = {"embed": lambda: [scheme.embed(s)], "bias": lambda: [scheme.bias(q, k, scale=0.5)], "none": list}[hook]()
        expected = [(s, scheme.config.dim) if hook == "embed" else (*q.shape[:-1], s)]
    for value, shape in zip(values, expected, strict=False):
        if not isinstance(value, Tensor) or not _fits(tuple(value.shape), shape, broadcasts=hook != "rotate"):
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise Failure(f"{case}: {hook}(): expected {shape}, got {got}", f"See Position.{hook} for the shape to return.")
        if not torch.isfinite(value).all():
            raise Failure(f"{case}: {hook}() is not finite", "Return finite values for hidden keys, too.")


def _fits(shape: tuple[int, ...], expected: tuple[int, ...], *, broadcasts: bool) -> bool:
    try:
        return shape == expected or (broadcasts and tuple(torch.broadcast_shapes(shape, expected)) == expected)
    except RuntimeError:
        return False


def take_effect(target: CheckTarget) -> str:
    """Every scheme of a declared hook changes the output."""
    names, least, tried = [target.scheme_name] if target.scheme.hook != "none" else POSITIONS.names(), float("inf"), []
    for name in names:
        scheme = target.scheme if name == target.scheme_name else POSITIONS.get(name)
        if scheme.hook not in target.variant.hooks:
            continue
        with_scheme = target.with_scheme(scheme, name)
        for role in with_scheme.roles:
            x, context = with_scheme.inputs(role, 1, 3)
            layer = with_scheme.build(role)
            without = with_scheme.build(role, position=Position(with_scheme.position_config(role)))
            without.attention.load_state_dict(layer.attention.state_dict(), strict=False)
            with torch.no_grad():
                gap = max_abs_diff(layer(x, context), without(x, context))
            if not gap > target.tolerance:
                case = f"{role}, batch 1, length 3: position scheme {name} (hook '{scheme.hook}') does not change the output"
                raise Failure(case, f"Apply the hook as self.attend does, or remove '{scheme.hook}' from `hooks`.")
            least = min(least, gap)
        tried.append(name)
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
        gap = require_small(
            max_abs_diff(outputs[1, 1], outputs[-1, -1]),
            target.tolerance,
            f"{role}, batch 1, length 3: flipping the signs of queries and keys changes the output",
            "Compute logits from the results of `q, k = self.rotate(q, k)`, and all else from those before it.",
        )
        for signs, name in (((-1, 1), "queries"), ((1, -1), "keys")):
            if not max_abs_diff(outputs[1, 1], outputs[signs]) > target.tolerance:
                raise Failure(
                    f"{role}, batch 1, length 3: flipping the signs of the {name} alone does not change the output",
                    ROTATE_ADVICE,
                )
        worst = max(worst, gap, _widening_gap(target, role, weights, outputs[1, 1]))
    return f"both are rotated; flipping both signs, or appending zeros to both, changes the output by {format_number(worst)}"


def _widening_gap(target: CheckTarget, role: str, weights: dict[str, Tensor], expected: Tensor) -> float:
    """Return the change of the output where queries and keys become twice as wide, by zeros."""
    layer = target.build(role, position=ZeroPad(target.position_config(role)))
    layer.attention.load_state_dict(weights, strict=False)
    try:
        with torch.no_grad():
            gap = max_abs_diff(layer(target.noise(1, 3)), expected)
    except Exception as error:  # the class is the user's code
        raise Failure(
            f"{role}, batch 1, length 3: with a scheme that appends zeros to queries and keys it raises "
            f"{describe_error(error, target.variant)}",
            "A scheme may widen queries and keys in `q, k = self.rotate(q, k)`, for example `pope`: the results have the width "
            "of the values, `v.shape[-1]`.",
        ) from error
    case = f"{role}, batch 1, length 3: a scheme that appends zeros to queries and keys changes the output"
    advice = "Compute the scale of the logits from the width before `q, k = self.rotate(q, k)`: a scheme may widen both."
    return require_small(gap, target.tolerance, case, advice)


class BiasProbe(Position):
    """A bias of zeros that requires a gradient and records the arguments of its last call in ``seen``: q, k, bias, scale."""

    hook = "bias"

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        self.seen: tuple[Tensor, Tensor, Tensor, float] | None = None

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:
        if self.seen is not None and self.seen[0] is q and self.seen[1] is k:
            return self.seen[2]  # the gradient then counts each time that it is added
        zeros = q.new_zeros(*q.shape[:3], k.shape[-2], requires_grad=True)
        self.seen = q, k, zeros, scale
        return zeros


class Decay(Position):
    """Multiply q.k by exp(-r n) for distance n and the head's rate r, by scaling queries and keys (hook ``rotate``)."""

    hook = "rotate"

    def rate(self, like: Tensor) -> Tensor:
        """Return the decay rate of each head, (h, 1, 1)."""
        return 0.05 * torch.arange(1, self.config.heads + 1).to(like)[:, None, None]

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        j = torch.arange(k.shape[-2]).to(k)[:, None]
        return q * (-self.rate(q) * j[-q.shape[-2] :]).exp(), k * (self.rate(k) * j).exp()


class DecayByBias(Decay):
    """The same decay as ``Decay``, as a bias that is added to the logits."""

    hook = "bias"

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        n = relative_distance(q.shape[-2], k.shape[-2], device=q.device) * step + offset
        return scale * (q @ k.mT) * (-self.rate(q)[heads] * n).expm1()


def lands(target: CheckTarget) -> str:
    """Each bias value is added to the logit of its own head, query and key."""
    roles = roles_for_probe(target, "bias")
    if not target.variant.blockwise_bias:
        worst = max(_full_bias_gap(target, role) for role in roles)
    elif "rotate" in target.variant.hooks:
        worst = max(_decay_gap(target, role) for role in roles)
    else:
        raise NotDeclared("a bias computed in blocks is compared with hook 'rotate', which is not declared")
    return f"each head and pair: error {format_number(worst)}"


def _full_bias_gap(target: CheckTarget, role: str) -> float:
    """Return the largest error of the identities that tie the gradients of q and k to the gradient of the bias.

    The logits are scale * q k^T + bias, so that dL/dq = scale * dL/dbias k, and dL/dk = scale * dL/dbias^T q. Queries or
    keys may have a second use, such as a gate, a null key or a temperature: either identity suffices, or equal outputs for a
    decay of both kinds.
    """
    worst = 0.0
    probe = BiasProbe(target.position_config(role))
    layer = target.build(role, position=probe)
    for t in (2, target.sizes.length):
        x = target.noise(1, t).requires_grad_()
        # Keys come from a separate tensor if possible: otherwise x also receives the gradient of the keys.
        y = layer(x, x.detach().clone() if target.variant.supports_memory else None)
        case = f"{role}, batch 1, length {t}"
        if probe.seen is None:
            raise Failure(f"{case}: position.bias() is never called", NO_BIAS_ADVICE)
        q, k, bias, scale = probe.seen
        loss = (y * target.noise(1, t, seed=3)).sum()
        leaves = [q, bias, *([k] if k.requires_grad else [])]  # without projections, a separate tensor has no gradient
        to_q, to_bias, *to_k = torch.autograd.grad(loss, leaves, allow_unused=True)
        if to_q is None or to_bias is None:
            raise Failure(
                f"{case}: the output does not depend on the q passed to position.bias(q, k) or on its result",
                NO_BIAS_ADVICE,
            )
        expected = scale * torch.einsum("bhts,bhsd->bhtd", to_bias, k)
        gap = (to_q - expected).abs().amax((0, 2, 3))  # (h,)
        if not gap.max().item() <= 10 * target.tolerance:
            tolerance = 10 * target.tolerance
            if (to_k and _reaches_keys(to_k[0], scale * to_bias, q, tolerance)) or _decays_alike(target, role):
                continue
            head = int(gap.argmax())
            raise Failure(
                f"{case}: the bias of head {head} does not reach the logits of its own query-key pairs "
                f"(error {format_number(gap.max().item())})",
                f"{BIAS_ADVICE}.",
            )
        worst = max(worst, gap.max().item())
    return worst


def _reaches_keys(to_k: Tensor | None, to_products: Tensor, q: Tensor, tolerance: float) -> bool:
    """Return True when dL/dk_j = sum_i c_i to_products_ij q_i for factors c_i of the queries: 1, or different temperatures.

    A factor that all queries of a head share is a bias before the scale, or one that is added several times.

    Args:
        to_k: (1, h, s, d).
        to_products: (1, h, t, s), the gradient of the bias times the scale.
        q: (1, h, t, d).
    """
    if to_k is None:
        return False
    if (to_k - torch.einsum("bhts,bhtd->bhsd", to_products, q)).abs().max() <= tolerance:
        return True
    keys = slice(MOST_KEYS)
    terms = (to_products[0, ..., keys, None] * q[0, :, :, None]).flatten(2).cpu()  # (h, t, s d)
    summed = to_k[0, :, keys].flatten(1).cpu()
    factors = torch.linalg.lstsq(terms.mT, summed[..., None], driver="gelsd").solution  # (h, t, 1)
    if not ((terms.mT @ factors).squeeze(-1) - summed).abs().max() <= tolerance:
        return False
    acts = terms.abs().amax(-1) > tolerance  # (h, t): a query with a single key has no gradient
    values = [head[seen] for head, seen in zip(factors.squeeze(-1), acts, strict=True)]
    values = [head for head in values if len(head) > 1] or [torch.cat(values)]
    return all((head.max() - head.min()).item() > 1e-6 for head in values if len(head) > 1)


def _decays_alike(target: CheckTarget, role: str) -> bool:
    """Return True when the variant rotates, and ``_decay_gap`` is 0: queries and keys may then have other uses before that."""
    if "rotate" not in target.variant.hooks:
        return False
    try:
        return _decay_gap(target, role) <= target.tolerance
    except Failure:
        return False


def _decay_gap(target: CheckTarget, role: str) -> float:
    """Return the largest difference between the same decay applied by the hooks ``rotate`` and ``bias``.

    For variants that compute the bias in blocks: blocks may be copies, which have no gradient to compare.
    """
    worst = 0.0
    layers = [target.build(role, position=probe(target.position_config(role))) for probe in (Decay, DecayByBias)]
    for t in (2, target.sizes.length):
        with torch.no_grad():
            gap = max_abs_diff(*(layer(target.noise(1, t)) for layer in layers))
        advice = (
            f"{BIAS_ADVICE}. For a block, pass the head indices as `heads`, the distance between its positions as `step` and "
            "the extra distance of its keys as `offset`."
        )
        case = f"{role}, batch 1, length {t}: outputs for the same decay by hook 'rotate' and by hook 'bias' differ"
        worst = max(worst, require_small(gap, target.tolerance, case, advice))
    return worst


def order(target: CheckTarget) -> str:
    """Permuting the inputs permutes the outputs if and only if the target has no position scheme."""
    if not target.variant.permutation_equivariant:
        raise NotDeclared("`permutation_equivariant` is False")
    results = [_check_permutation(target, role) for role in ("bidirectional", "cross") if role in target.roles]
    if not results:
        raise NotDeclared("a causal mask depends on positions")
    return "; ".join(results)


def _check_permutation(target: CheckTarget, role: str) -> str:
    """Return a description of the change when the inputs are permuted; raise ``Failure`` if it is wrong."""
    layer = target.build(role)
    largest = 0.0
    for n in target.sizes.lengths:
        x, context = target.inputs(role, 1, n, s=n)
        permuted = torch.randperm(n, generator=torch.Generator().manual_seed(n)).roll(1).to(target.device)
        with torch.no_grad():
            if context is None:
                gap = max_abs_diff(layer(x[:, permuted]), layer(x)[:, permuted])
            else:
                gap = max_abs_diff(layer(x, context[:, permuted]), layer(x, context))
        case = f"{role}, batch 1, length {n}, inputs permuted"
        if target.scheme.hook == "none":
            advice = (
                "Without a position scheme the outputs must not depend on the order. If the variant's own pattern depends on "
                "positions, declare `permutation_equivariant = False`."
            )
            require_small(gap, target.tolerance, f"{case}: outputs differ from the permuted ones", advice)
        elif n > 3 and not gap > target.tolerance:
            raise Failure(
                f"{case}: outputs equal the permuted ones, although the position scheme is {target.scheme_name}",
                f"Apply hook '{target.scheme.hook}', or remove it from `hooks`.",
            )
        largest = max(largest, gap)
    if target.scheme.hook != "none":
        return f"{role}: permuting the inputs changes outputs by {format_number(largest)}"
    return f"{role}: permuting the inputs permutes outputs, error {format_number(largest)}"


def beginning(target: CheckTarget) -> str:
    """With a relative scheme, masked positions in front of a sequence do not change the outputs."""
    if not target.variant.permutation_equivariant:
        raise NotDeclared("`permutation_equivariant` is False")
    targets = [variation for variation in target.with_every_scheme() if variation.scheme.relative]
    if not targets:
        raise NotDeclared("no relative position scheme")
    worst = max(_prefix_gap(variation) for variation in targets)
    names = ", ".join(variation.scheme_name for variation in targets)
    return f"{names}: {target.sizes.prefix} padded positions in front change outputs by {format_number(worst)}"


def _prefix_gap(target: CheckTarget) -> float:
    """Return the largest change of the outputs when padded positions precede the sequence."""
    worst, n = 0.0, target.sizes.prefix
    for role in (role for role in target.roles if role != "cross"):
        layer = target.build(role)
        for t in target.sizes.lengths:
            x = target.noise(2, t)
            padded = F.pad(x, (0, 0, n, 0), value=1.0)
            mask = F.pad(torch.ones(2, t, dtype=torch.bool, device=target.device), (n, 0), value=False)
            with torch.no_grad():
                gap = max_abs_diff(layer(padded, None, mask)[:, n:], layer(x))
            case = f"{role}, batch 2, length {t}: {n} padded positions in front change the outputs"
            advice = f"'{target.scheme_name}' must depend on distances alone: query i is at position i + s - t."
            worst = max(worst, require_small(gap, target.tolerance, case, advice))
    return worst


CHECKS = [
    Check("permutation", at_drawn_sizes(order)),
    Check("leading padding", at_drawn_sizes(beginning)),
    Check("hooks take effect", take_effect),
    Check("rotation placement", at_drawn_sizes(rotates_both, draws=1)),
    Check("bias placement", at_drawn_sizes(lands)),
]
