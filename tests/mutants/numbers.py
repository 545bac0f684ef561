"""Mutants with a mistake in gradients, backends, dropout, cost or the module lifecycle."""

import random
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.layers import merge_heads
from attnlab.variants import AttentionConfig, Setting
from attnlab.variants.dense import Dense
from attnlab.variants.strided_sparse import StridedSparse
from tests.mutants.base import ByHand, Plain


class DoubleGradient(Dense):
    """Doubles the gradient but not the value."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        return 2 * y - y.detach()


class IdleProjection(Dense):
    """Has a projection that forward() does not use."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.gate = nn.Linear(config.dim, config.dim)


class DeadKeys(Plain):
    """Detaches the keys: a third of the packed projection receives no gradient."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float | None = None) -> Tensor:
        return super().attend(q, k.detach(), v, mask, scale=scale)


class CountsInBf16(ByHand):
    """Adds a penalty on distance, computed from positions in the dtype of the activations."""

    roles = frozenset({"causal"})

    def own_bias(self, q: Tensor, k: Tensor) -> Tensor:
        j = torch.arange(k.shape[-2]).to(q.dtype)
        return -(j[-q.shape[-2] :, None] - j).abs()


class ForgetsScale(Plain):
    """Omits the scale with backend ``sdpa``."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float | None = None) -> Tensor:
        return super().attend(q, k, v, mask, scale=1.0 if self.backend == "sdpa" else None)


class ForgetsScaleLater(Plain):
    """Omits the scale with backend ``blocked`` if there is more than one block of 64 queries."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float | None = None) -> Tensor:
        return super().attend(q, k, v, mask, scale=1.0 if self.backend == "blocked" and q.shape[2] > 64 else None)


class NoDropout(ByHand):
    """Drops nothing."""

    def drop(self, weights: Tensor) -> Tensor:
        return weights


class AlwaysDropout(ByHand):
    """Also drops in evaluation mode."""

    def drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout)


class UnscaledDropout(ByHand):
    """Does not rescale the weights that remain."""

    def drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout, self.training) * (1 - self.dropout if self.training else 1)


class _OtherMaskInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, p: float) -> Tensor:
        ctx.p = p
        return F.dropout(weights, p)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        drawn = torch.empty_like(dy).bernoulli_(1 - ctx.p, generator=torch.Generator().manual_seed(1))
        return dy * drawn / (1 - ctx.p), None


class ForgetsMask(ByHand):
    """Draws another dropout mask in the backward pass."""

    def drop(self, weights: Tensor) -> Tensor:
        return _OtherMaskInBackward.apply(weights, self.dropout) if self.training and self.dropout else weights  # type: ignore[no-any-return]


class DropsTheSameWeights(ByHand):
    """Draws its dropout mask from a generator that each call seeds."""

    def drop(self, weights: Tensor) -> Tensor:
        if not (self.training and self.dropout):
            return weights
        generator = torch.Generator().manual_seed(0)
        return weights * torch.empty_like(weights).bernoulli_(1 - self.dropout, generator=generator) / (1 - self.dropout)


class NormalizesWithoutEpsilon(Plain):
    """Divides queries and keys by their norms, which are zero for a vector of zeros."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float | None = None) -> Tensor:
        q, k = (z / z.norm(dim=-1, keepdim=True) for z in (q, k))
        return super().attend(q, k, v, mask, scale=scale)


class NormalizesMaskedWithoutEpsilon(NormalizesWithoutEpsilon):
    """Does so in calls with a mask alone."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float | None = None) -> Tensor:
        attend = super().attend if mask is not None else super(NormalizesWithoutEpsilon, self).attend
        if mask is None:
            q, k = (z / (z.norm(dim=-1, keepdim=True) + 1e-12) for z in (q, k))
        return attend(q, k, v, mask, scale=scale)


class SoftmaxWithoutMaximum(ByHand):
    """Computes exponentials of logits as they are."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        t, s = q.shape[2], k.shape[2]
        seen = self.seen(t, s) if self.causal else torch.ones(t, s, dtype=torch.bool)
        seen = seen if mask is None else seen & mask[:, None, None, :]
        weights = (q @ k.mT / q.shape[-1] ** 0.5).exp() * seen
        return self.out(merge_heads(self.drop(weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)) @ v))


class AnyBackend(Plain):
    """Declares one backend but does not refuse the others."""

    backends = ("reference",)

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        return super().unsupported(replace(setting, backend="reference"))


class SavesSquare(StridedSparse):
    """Sparse attention with a (t, t) gate that autograd saves."""

    def __init__(self, config: AttentionConfig, *, stride: int = 16) -> None:
        super().__init__(config, stride=stride)
        self.decay = nn.Parameter(torch.tensor(0.1))

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        i = torch.arange(x.shape[1], device=x.device)
        gate = (self.decay * (i[:, None] - i)).tanh().tril().sum(1) / (i + 1)
        return super().forward(x, context=context, mask=mask) * (1 + gate[:, None]).to(x.dtype)


class ComputesSquare(StridedSparse):
    """Sparse attention that first computes the products of all pairs."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            logits = x @ x.mT
        return super().forward(x, context=context, mask=mask) + 0 * logits.clamp(-1, 1).mean()


class SaysLinear(Plain):
    """Declares linear cost for dense attention with a kernel that saves few bytes."""

    backends = ("sdpa",)
    cost_exponent = 1.0


class PlainTensor(Dense):
    """Holds weights in a plain tensor."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.mix = torch.rand(config.dim) + 0.5

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask) * self.mix.to(x)


class KeepsOutput(Dense):
    """Stores its last output, with its graph."""

    last: Tensor | None = None

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        self.last = super().forward(x, context=context, mask=mask)
        return self.last


class HoldsLambda(Dense):
    """Has a lambda as an attribute."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.activation = lambda x: x

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return self.activation(super().forward(x, context=context, mask=mask))


class AsksForValues(Dense):
    """Branches on the value of a tensor."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        return y.clamp(-1e6, 1e6) if y.abs().max().item() > 1e6 else y


class Remembers(Plain):
    """Changes its output after a call with a sequence of length 5."""

    before = 0

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        t, before = x.shape[1], self.before
        self.before = t
        y = super().forward(x, context=context, mask=mask)
        return y * 1.01 if before == 5 and t != 5 else y


class KeepsKeys(Plain):
    """Keeps the keys of the first call, and uses them again in calls of the same shape."""

    kept: Tensor | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float | None = None) -> Tensor:
        if self.kept is None or self.kept.shape != k.shape:
            self.kept = k.detach()
        return super().attend(q, self.kept + 0 * k, v, mask, scale=scale)


class ForeignRandom(Dense):
    """Initialises a parameter from Python's random generator."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.gain = nn.Parameter(torch.tensor([random.random() + 0.5, random.random() + 0.5]))

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask) * self.gain.mean()
