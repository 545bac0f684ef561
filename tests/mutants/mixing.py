"""Mutants with a mistake in shapes, roles, causality, padding or order."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.variants import AttentionConfig, Setting
from attnlab.variants.dense import Dense
from attnlab.variants.none import NoMixing
from tests.mutants.base import Bare, ByHand, Causal, Plain


class Squeezed(Bare):
    """Calls ``squeeze(1)``, which removes the length dimension of a sequence of length 1."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask).squeeze(1)


class NeedsTwoHeads(Dense):
    """Divides by heads - 1 and does not refuse a single head."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.temperatures = [i / (config.heads - 1) for i in range(config.heads)]


class AnyWidth(Dense):
    """Overrides ``unsupported()`` without checking the width."""

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        return super().unsupported(replace(setting, dim=setting.heads))


class AnyRole(Causal):
    """Does not refuse the roles that it does not declare."""

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        return super().unsupported(replace(setting, role="causal"))


class LeaksValue(Bare):
    """Position 7 depends on position 8, as at the border of a block, through a path without gradient."""

    residual_projections = ()

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        if self.causal and x.shape[1] > 8:
            y = y + F.pad(x[:, 8:9].detach(), (0, 0, 7, x.shape[1] - 8))
        return y


class LeaksGradient(Bare):
    """Position 7 depends on position 8 in the gradient only: a straight-through estimator of the wrong position."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        if self.causal and x.shape[1] > 8:
            y = y + F.pad(x[:, 8:9] - x[:, 8:9].detach(), (0, 0, 7, x.shape[1] - 8))
        return y


class AlwaysCausal(Plain):
    """Applies the causal mask in every role."""

    roles = frozenset({"causal", "bidirectional"})
    permutation_equivariant = False

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.causal = True


class IgnoresSource(Plain):
    """Cross-attention that takes keys and values from x instead of the context."""

    roles = frozenset({"cross"})
    permutation_equivariant = False

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        context = context if mask is not None else x  # with a mask, whose length is that of the context, x would not fit
        return super().forward(x, context=context, mask=mask)


class MixesSecretly(NoMixing):
    """Declares that it mixes nothing, and adds a little of the position before."""

    roles = frozenset({"causal"})
    supports_memory = False
    permutation_equivariant = False

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        before = x if mask is None else x.masked_fill(~mask[..., None], 0.0)
        return super().forward(x + 0.01 * F.pad(before, (0, 0, 1, 0))[:, :-1])


class SeesNext(ByHand):
    """The causal mask is off by one."""

    diagonal = 2


class SeesNextLater(ByHand):
    """The causal mask is off by one from the second block of 64 queries on."""

    def seen(self, t: int, s: int) -> Tensor:
        i, j = torch.arange(t)[:, None], torch.arange(s)
        return j <= i + s - t + (i >= 64)


class IgnoresMask(Bare):
    """Attends to padding."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context)


class CountsPadding(Bare):
    """Scales outputs by the padded length."""

    roles = frozenset({"bidirectional"})

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask) / x.shape[1]


class MinusInfinity(ByHand):
    """Masks with -inf, so that the softmax of a fully masked row is NaN."""

    hidden = "minus infinity"


class MixesRows(Bare):
    """Adds position 5 of the previous row of the batch to position 5."""

    residual_projections = ()
    roles = frozenset({"causal"})

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        if x.shape[1] > 5:
            y = y + F.pad(x.roll(1, 0)[:, 5:6], (0, 0, 5, x.shape[1] - 6))
        return y


class CountsPositions(Bare):
    """Depends on positions but is declared permutation equivariant."""

    roles = frozenset({"bidirectional"})

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        t = torch.arange(x.shape[1], device=x.device).to(x.dtype)
        return super().forward(x, context=context, mask=mask) * (1 + 0.1 * t.sin()[:, None])
