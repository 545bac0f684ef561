"""The bias of a position scheme: it reaches the right logit, and a piece of it is that part of the whole."""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.nn.layers import relative_distance
from attnlab.positions import Position, PositionConfig
from attnlab.testing.checks.hooks import USE, probed_roles
from attnlab.testing.checks.target import (
    Check,
    CheckTarget,
    Failure,
    NotDeclared,
    T,
    distance,
    number,
    perturb_constant_parameters,
)

ADVICE = (
    "Add bias[:, h, i, j] to the logit of head h, query i and key j, once, after the scale; and hand bias() the very q and k "
    "whose product is taken"
)


class BiasProbe(Position):
    """A bias of zeros that asks for its own gradient, and remembers the queries and keys it was given."""

    hook = "bias"

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        self.seen: tuple[Tensor, Tensor, Tensor, float] | None = None

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:
        zeros = q.new_zeros(*q.shape[:3], k.shape[-2], requires_grad=True)
        self.seen = q, k, zeros, scale
        return zeros


class Decay(Position):
    """Multiplies the product of a query and a key by exp(-r n), n their distance and r the head's own: by scaling both."""

    hook = "rotate"

    def rate(self, like: Tensor) -> Tensor:
        """(h, 1, 1)."""
        return 0.05 * torch.arange(1, self.config.heads + 1).to(like)[:, None, None]

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        j = torch.arange(k.shape[-2]).to(k)[:, None]
        return q * (-self.rate(q) * j[-q.shape[-2] :]).exp(), k * (self.rate(k) * j).exp()


class DecayByBias(Decay):
    """The same, by what it adds to the product."""

    hook = "bias"

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        n = relative_distance(q.shape[-2], k.shape[-2], device=q.device) * step + offset
        return scale * (q @ k.mT) * (-self.rate(q)[heads] * n).expm1()


def lands(subject: CheckTarget) -> str:
    """A bias reaches the logit of its own head, query and key."""
    roles = probed_roles(subject, "bias")
    if not subject.variant.blockwise_bias:
        worst = max(_whole(subject, role) for role in roles)
    elif "rotate" in subject.variant.hooks:
        worst = max(_decayed(subject, role) for role in roles)
    else:
        raise NotDeclared("pieces of a bias are held against the hook 'rotate', which it does not honour")
    return f"head by head and pair by pair, off by {number(worst)}"


def _whole(subject: CheckTarget, role: str) -> float:
    """The logit of a pair is scale x q.k + bias: the gradient to a query is the gradients to its biases times the keys."""
    worst = 0.0
    probe = BiasProbe(subject.position_config(role))
    cell = subject.build(role, position=probe)
    for t in (2, T):
        x = subject.noise(1, t).requires_grad_()
        # Keys from a tensor of their own where they may be: queries that are the keys would get the keys' gradient.
        y = cell(x, x.detach().clone() if subject.variant.memory else None)
        case = f"{role}, batch 1, length {t}"
        if probe.seen is None:
            raise Failure(f"{case}: position.bias is never called", USE["bias"])
        q, k, bias, scale = probe.seen
        loss = (y * subject.noise(1, t, seed=3)).sum()
        to_q, to_bias = torch.autograd.grad(loss, [q, bias], allow_unused=True)
        if to_q is None or to_bias is None:
            raise Failure(f"{case}: the output does not depend on the q and the bias of position.bias(q, k)", USE["bias"])
        expected = scale * torch.einsum("bhts,bhsd->bhtd", to_bias, k)
        gap = (to_q - expected).abs().amax((0, 2, 3))  # (h,)
        if not gap.max().item() <= 10 * subject.tolerance:
            head = int(gap.argmax())
            raise Failure(
                f"{case}: the bias of head {head} does not reach the logits of head {head}, pair by pair "
                f"(off by {number(gap.max().item())})",
                f"{ADVICE}.",
            )
        worst = max(worst, gap.max().item())
    return worst


def _decayed(subject: CheckTarget, role: str) -> float:
    """Pieces may be copies, which have no gradient to compare: a decay by bias must be what it is by 'rotate'."""
    worst = 0.0
    cells = [subject.build(role, position=probe(subject.position_config(role))) for probe in (Decay, DecayByBias)]
    for t in (2, T):
        with torch.no_grad():
            gap = distance(*(cell(subject.noise(1, t)) for cell in cells))
        if not gap <= subject.tolerance:
            raise Failure(
                f"{role}, batch 1, length {t}: logits that decay with distance, in each head at a rate of its own, give "
                f"outputs that differ by {number(gap)} between the hooks 'rotate' and 'bias'",
                f"{ADVICE}. Say with `heads` which heads they are, with `step` how far apart they stand, and with `offset` how "
                "much further behind the keys are.",
            )
        worst = max(worst, gap)
    return worst


class Piece(NamedTuple):
    """Where the queries and the keys of a piece stand: i (..., t), j (..., s), and what `Position.bias` is told of it."""

    what: str
    i: Tensor
    j: Tensor
    step: int
    offset: Tensor | int


def in_pieces(subject: CheckTarget) -> str:
    """A piece of the bias is that part of the whole bias, with every scheme that gives it in pieces."""
    if "bias" not in subject.variant.hooks:
        raise NotDeclared("no hook 'bias'")
    tried = [each for each in subject.under_schemes() if each.scheme.hook == "bias" and each.scheme.has_blockwise_bias()]
    if not tried:
        raise NotDeclared("no scheme that gives its bias in pieces")
    worst = max(_cut(each, role) for each in tried for role in each.roles)
    return f"{', '.join(each.scheme_name for each in tried)}: off by {number(worst)}"


def _cut(subject: CheckTarget, role: str) -> float:
    worst = 0.0
    scheme = subject.scheme(subject.position_config(role))
    perturb_constant_parameters(scheme)
    scheme.to(subject.device, subject.dtype)
    h, d = scheme.config.heads, scheme.config.head_dim
    q, k = torch.randn(2, 2, h, 15, d, generator=torch.Generator().manual_seed(4)).to(subject.device, subject.dtype)
    whole = scheme.bias(q, k, scale=0.5).expand(2, h, 15, 15)
    heads = slice(h // 2, None)
    for what, i, j, step, offset in _pieces(subject.device):
        pairs = i[..., :, None], j[..., None, :]
        expected = whole[:, heads, *pairs].movedim(1, -3)  # (2, ..., h, t, s)
        q_i, k_j = (z[:, heads, at].movedim(1, -3) for z, at in ((q, i), (k, j)))  # (2, ..., h, t, d)
        got = scheme.bias(q_i, k_j, scale=0.5, heads=heads, step=step, offset=offset)
        counts = (pairs[0] >= pairs[1]).unsqueeze(-3) if role == "causal" else True
        gap = distance((got - expected) * counts, torch.zeros_like(expected))
        if not gap <= subject.tolerance:
            raise Failure(
                f"{role}, position scheme {subject.scheme_name}, {what}: bias() of this piece differs by {number(gap)} from "
                "the same pairs in the whole",
                "Index what belongs to heads by [heads], and take `relative_distance(t, s) * step + offset` as the distance. "
                "Or leave these three out of bias(): it is then refused where a variant asks for pieces.",
            )
        worst = max(worst, gap)
    return worst


def _pieces(device: str) -> list[Piece]:
    """A sequence of 5 blocks of 3 positions, cut as sparse variants cut it."""
    block_place = torch.arange(15, device=device).view(5, 3)
    place_block = block_place.T
    p, e = place_block[:, None], place_block[None, 1:]
    return [
        Piece("the later half of the heads, whole", *(block_place.flatten(),) * 2, step=1, offset=0),
        Piece("each block with itself", block_place, block_place, step=1, offset=0),
        Piece("the second block and the one before", block_place[1], block_place[:2].flatten(), step=1, offset=0),
        Piece("every third position", place_block, place_block, step=3, offset=0),
        Piece("place p of each block against place e", p, e, step=3, offset=(p - e)[..., :1, None, None]),
    ]


CHECKS = [Check("bias lands", lands), Check("bias in pieces", in_pieces)]
