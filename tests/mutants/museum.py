"""A museum of published bugs: each rebuilt from its thread as a variant, with the check of the contract that catches it."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.positions import Position
from attnlab.positions.alibi import Alibi
from attnlab.positions.rotary import Rotary
from attnlab.variants import Variant
from attnlab.variants.dense import Dense
from tests.mutants.base import Bare, ByHand, Causal, Plain
from tests.mutants.numbers import ForgetsMask
from tests.mutants.schemes import ShiftOffByOne


class Exhibit(NamedTuple):
    """A published bug.

    Attributes:
        variant: the bug, rebuilt.
        check: the check that catches it.
        thread: where it was published.
        position: the position scheme that has the bug, or None.
    """

    variant: type[Variant]
    check: str
    thread: str
    position: type[Position] | None = None


class OrthogonalToTheWholeSequence(Bare):
    """Projects the output onto the complement of the values, with positions flattened: all positions share one projection."""

    roles = frozenset({"causal"})

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        y = super().attend(q, k, v, mask, **options)
        flat, direction = y.flatten(1), F.normalize(v.flatten(1), dim=-1)
        return (flat - (flat * direction).sum(-1, keepdim=True) * direction).view_as(y)


class NanOfMaskedRows(ByHand):
    """Masks with minus infinity, so that the softmax of a query without any key is NaN."""

    hidden = "minus infinity"


class TopLeftCausal(Dense):
    """Aligns the causal mask with the first key, so that a query with a cache sees the oldest keys only."""

    roles = frozenset({"causal"})
    hooks = frozenset({"embed"})
    supports_cache = True

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        if self.cache is not None:
            k, v = self.cache.extend(k, v)  # type: ignore[attr-defined]
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        seen = seen if mask is None else seen & mask[:, None, None, :]
        weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, torch.finfo(q.dtype).min).softmax(-1)
        return F.dropout(weights, self.dropout, self.training) @ v


class DropsInEvaluation(ByHand):
    """Passes the probability of dropout to the kernel in evaluation mode, too."""

    def drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout, training=True)


class RotaryInHalfPrecision(Rotary):
    """Computes the angles in the precision of the activations."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        n, d = k.shape[-2], q.shape[-1]
        rate = (10_000.0 ** (-torch.arange(0, d, 2) / d)).to(k.dtype)
        angle = (torch.arange(n).to(k.dtype)[:, None] * rate).repeat(1, 2)
        turn = [torch.cat([-z[..., d // 2 :], z[..., : d // 2]], dim=-1) for z in (q, k)]
        at = slice(n - q.shape[-2], n)
        return q * angle.cos()[at] + turn[0] * angle.sin()[at], k * angle.cos() + turn[1] * angle.sin()


class HidesFirstMemory(Dense):
    """The mask that bounds the length of memory is off by one and hides its first position."""

    roles = frozenset({"causal"})

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        if k.shape[2] > q.shape[2]:
            options["attn_mask"] = torch.arange(k.shape[2], device=q.device) > 0
        return super().attend(q, k, v, mask, **options)


class ForgetsCausalMaskWithDropout(ByHand):
    """Leaves the causal mask to a kernel, and falls back to code without a mask where weights are dropped."""

    def seen(self, t: int, s: int) -> Tensor:
        seen = super().seen(t, s)
        return torch.ones_like(seen) if self.training and self.dropout else seen


class ForgetsCausalMaskWithoutMask(Causal):
    """Applies the causal mask only where a padding mask is passed."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        self.causal = mask is not None
        return super().attend(q, k, v, mask, **options)


class SeesFutureBlocks(ByHand):
    """Inverts the mask over compressed blocks of four positions, so that a query sees the blocks after its own."""

    roles = frozenset({"causal"})

    def seen(self, t: int, s: int) -> Tensor:
        i, j = torch.arange(t)[:, None], torch.arange(s)
        return super().seen(t, s) | (i // 4 < j // 4)


class MergesHeadsWithoutTranspose(Bare):
    """Reshapes (b, h, t, d) to (b, t, h d) without moving the heads behind the positions."""

    roles = frozenset({"causal"})

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        b, h, t, d = q.shape
        y = super().attend(q, k, v, mask, **options)
        return y.reshape(b, t, h, d).transpose(1, 2)


class SplitsHeadsWithoutTranspose(Bare):
    """Reshapes (b, t, h d) to (b, h, t, d) without moving the heads before the positions."""

    roles = frozenset({"causal"})

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        q, k, v = (z.transpose(1, 2).reshape(z.shape) for z in (q, k, v))
        return super().attend(q, k, v, mask, **options)


class RepeatsMaskInAnotherOrder(Bare):
    """Has the heads before the rows of the batch, and the mask of each row repeated for consecutive entries."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        if mask is not None:
            b, h = q.shape[:2]
            order = torch.arange(b, device=q.device).repeat_interleave(h).view(h, b).T  # (b, h)
            options["attn_mask"] = mask[order][:, :, None, :]
        return super().attend(q, k, v, None, **options)


class DetachesNormalizer(Bare):
    """Normalises by a sum that a function without a backward pass computes."""

    roles = frozenset({"causal"})
    has_attention_dropout = False

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        q, k = F.elu(q) + 1, F.elu(k) + 1
        k = k if mask is None else k * mask[:, None, :, None]
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        return ((q @ k.mT) * seen) @ v / ((q @ k.mT.detach()) * seen).sum(-1, keepdim=True).clamp(min=1e-6)


class ScaleOfOneKernel(Plain):
    """Applies another scale in one of the kernels."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        scale = q.shape[-1] ** (-1.0 if self.backend == "sdpa" else -0.5)
        return super().attend(q, k, v, mask, **{**options, "scale": scale})


class AlibiOfQueriesAlone(Alibi):
    """Builds its bias for the length of the queries: for a single query over cached keys it is zero."""

    def bias(self, q: Tensor, k: Tensor, *, scale: float, **part: Any) -> Tensor:
        bias = super().bias(q, k, scale=scale, **part)
        return torch.zeros_like(bias) if q.shape[-2] == 1 else bias


class IgnoresMaskInEvaluation(Bare):
    """Takes a fast path in evaluation that does not get the padding mask."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask if self.training else None)


class StopsDroppingAfterEvaluation(ByHand):
    """Sets its probability of dropout to 0 in the first evaluation and never back."""

    def drop(self, weights: Tensor) -> Tensor:
        if not self.training:
            self.dropout = 0.0
        return super().drop(weights)


GITHUB = "https://github.com"
MUSEUM = [
    Exhibit(
        OrthogonalToTheWholeSequence,
        "causality by value",
        f"{GITHUB}/lucidrains/x-transformers (2.25.4, `orthog_project`; no thread)",
    ),
    Exhibit(NanOfMaskedRows, "all padding", f"{GITHUB}/pytorch/pytorch/issues/41508"),
    Exhibit(TopLeftCausal, "memory", f"{GITHUB}/pytorch/pytorch/issues/144858"),
    Exhibit(DropsInEvaluation, "dropout", f"{GITHUB}/pytorch/pytorch/issues/124464"),
    Exhibit(Plain, "bf16", f"{GITHUB}/EleutherAI/gpt-neox/issues/1003", RotaryInHalfPrecision),
    Exhibit(
        Plain,
        "leading padding",
        f"{GITHUB}/labmlai/annotated_deep_learning_paper_implementations/issues/185",
        ShiftOffByOne,
    ),
    Exhibit(HidesFirstMemory, "memory", f"{GITHUB}/huggingface/transformers/pull/14832"),
    Exhibit(ForgetsCausalMaskWithDropout, "causality by value", f"{GITHUB}/keras-team/keras/issues/23038"),
    Exhibit(ForgetsCausalMaskWithoutMask, "causality by value", f"{GITHUB}/facebookresearch/xformers/issues/103"),
    Exhibit(SeesFutureBlocks, "causality by value", f"{GITHUB}/tilde-research/nsa-release/issues/3"),
    Exhibit(MergesHeadsWithoutTranspose, "causality by value", f"{GITHUB}/jsbaan/transformer-from-scratch/pull/6"),
    Exhibit(SplitsHeadsWithoutTranspose, "causality by gradient", f"{GITHUB}/reczoo/FuxiCTR/issues/30"),
    Exhibit(RepeatsMaskInAnotherOrder, "padding", f"{GITHUB}/lsdefine/attention-is-all-you-need-keras/issues/36"),
    Exhibit(DetachesNormalizer, "gradcheck", f"{GITHUB}/fla-org/flash-linear-attention/pull/875"),
    Exhibit(ScaleOfOneKernel, "backends", f"{GITHUB}/fla-org/flash-linear-attention/issues/47"),
    Exhibit(Dense, "memory", f"{GITHUB}/keras-team/keras-hub/pull/2862", AlibiOfQueriesAlone),
    Exhibit(IgnoresMaskInEvaluation, "training mode", f"{GITHUB}/pytorch/pytorch/issues/86120"),
    Exhibit(ForgetsMask, "gradcheck", f"{GITHUB}/Dao-AILab/flash-attention/issues/1251"),
    Exhibit(StopsDroppingAfterEvaluation, "dropout", f"{GITHUB}/NVIDIA/Megatron-LM/pull/318"),
]
