"""Mutants that are wrong only in a precision or a mode that float64 in evaluation mode never reaches."""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.variants import AttentionConfig
from tests.mutants.base import Bare, Plain


class _Leaks(Bare):
    """Adds the next input to each output where ``leaking`` is True: the base of several mutants."""

    roles = frozenset({"causal"})
    residual_projections = ()

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        return y + F.pad(x[:, 1:], (0, 0, 0, 1)) if self.leaking(x) else y

    def leaking(self, x: Tensor) -> bool:
        raise NotImplementedError


class LeaksInFloat32(_Leaks):
    def leaking(self, x: Tensor) -> bool:
        return x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


class LeaksUnderAutocast(_Leaks):
    def leaking(self, x: Tensor) -> bool:
        return torch.is_autocast_enabled("cpu") and self.training


class LeaksInInference(_Leaks):
    """Leaks where a run evaluates: in float32 and in inference mode."""

    def leaking(self, x: Tensor) -> bool:
        return x.dtype == torch.float32 and torch.is_inference_mode_enabled()


class LeaksWithoutGradients(_Leaks):
    def leaking(self, x: Tensor) -> bool:
        return x.dtype == torch.float32 and self.training and not torch.is_grad_enabled()


class LeaksWithDropout(_Leaks):
    def leaking(self, x: Tensor) -> bool:
        return x.dtype == torch.float32 and self.training and self.dropout > 0


class LeaksInLongFloat32(_Leaks):
    def leaking(self, x: Tensor) -> bool:
        return x.dtype == torch.float32 and x.shape[1] > 600


class LeaksInWideHeads(_Leaks):
    def leaking(self, x: Tensor) -> bool:
        return x.shape[-1] // self.heads == 64


class LeaksBackwards(_Leaks):
    """Has the value of a correct output, and a gradient of the next input."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        if x.dtype != torch.float32:
            return y
        after = F.pad(x[:, 1:], (0, 0, 0, 1))
        return y + after - after.detach()

    def leaking(self, x: Tensor) -> bool:
        return False


class LeaksInLaterBlocks(_Leaks):
    """Leaks in the third block of a stack and after it."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.layer = config.layer

    def leaking(self, x: Tensor) -> bool:
        return self.layer >= 2


class IgnoresMaskInFloat32(Plain):
    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=None if x.dtype == torch.float32 else mask)


class MixesRowsInFloat32(Plain):
    """Adds the mean over the batch, in training alone."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        return y + x.mean(0) if x.dtype == torch.float32 and self.training else y


class ForgetsScaleInFloat32(Plain):
    """Reads what it may read, but computes something else."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        scale = 1.0 if x.dtype == torch.float32 else None
        return self.out(self.attend(q, k, v, mask, scale=scale).transpose(1, 2).flatten(2))


class OverflowsInFloat16(Plain):
    """Divides after the output projection what it multiplied before, beyond the range of fp16."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        y = self.attend(q, k, v, mask).transpose(1, 2).flatten(2)
        return self.out(y * 2**20) / 2**20


class AddsNoise(Plain):
    """Adds noise in evaluation, too, where float32 is computed."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        if x.dtype != torch.float32:
            return y
        self.calls = getattr(self, "calls", 0) + 1
        return y + 0.01 * self.calls


class CountsSteps(Plain):
    """Counts the calls in training in a buffer, which nothing reads."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        if self.training:
            self.steps += 1
        return super().forward(x, context=context, mask=mask)


class DetachesFarPositions(Plain):
    """Cuts the gradient of keys and values that are not among the last 40."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        k, v = (torch.cat([z[:, :, :-40].detach(), z[:, :, -40:]], dim=2) for z in (k, v))
        return self.out(self.attend(q, k, v, mask).transpose(1, 2).flatten(2))


class DropsOutputs(Plain):
    """Drops single numbers of the output, not attention weights."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        p, self.dropout = self.dropout, 0.0
        y = super().forward(x, context=context, mask=mask)
        self.dropout = p
        return F.dropout(y, p, self.training)


class AveragesPadding(Plain):
    """Gives a query without keys the mean of all values."""

    roles = frozenset({"cross"})

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        if mask is None or context is None:
            return y
        return torch.where(mask.any(1)[:, None, None], y, context.mean(1, keepdim=True))


class DividesByTheSource(Plain):
    """Is not a number where the source is empty."""

    roles = frozenset({"cross"})

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        return y if context is None else y * (context.shape[1] / torch.tensor(context.shape[1], dtype=x.dtype))


class LeaksAfterManyCalls(_Leaks):
    """Leaks from call number 1,000,000 on."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.calls = 0

    def leaking(self, x: Tensor) -> bool:
        self.calls += 1
        return self.calls > 1_000_000
