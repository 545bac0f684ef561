"""Mutants with a mistake in position schemes, hooks or memory."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnlab.nn.layers import causal_mask
from attnlab.positions.alibi import Alibi
from attnlab.positions.relative import Relative
from attnlab.variants import AttentionConfig, Setting
from attnlab.variants.fixed_sparse import FixedSparse
from attnlab.variants.strided_sparse import StridedSparse
from tests.mutants.base import ByHand, Hooked, Plain


class ShiftOffByOne(Relative):
    """The relative shift reads one entry too early, at the left edge from the row above."""

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:
        by_distance = super().bias(q, torch.zeros_like(k), scale=scale)
        by_content = super().bias(q, k, scale=scale) - by_distance
        return by_distance.flatten(-2).roll(1, -1).unflatten(-1, by_distance.shape[-2:]) + by_content


class CountsFromLeft(Alibi):
    """Scales the bias by the absolute position of the key, but is declared relative."""

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:
        return super().bias(q, k, scale=scale) * torch.arange(k.shape[-2], device=k.device)


class IgnoresAlibi(Plain):
    """Applies every scheme with hook ``bias`` except ALiBi."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        if isinstance(self.position, Alibi):
            self.position = None


class IgnoresRotation(Plain):
    """Declares hook ``rotate`` but does not apply it."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


class WrongHead(Hooked):
    """Head 1 gets the bias of head 0."""

    def placed(self, bias: Tensor) -> Tensor:
        return bias.roll(1, -3)


class Transposed(Hooked):
    """The bias of query i and key j lands on query j and key i."""

    roles = frozenset({"bidirectional"})

    def placed(self, bias: Tensor) -> Tensor:
        return bias.mT


class FirstHeadsTwice(StridedSparse):
    """Requests the bias of the first heads for the later ones."""

    def position_bias(self, q: Tensor, k: Tensor, *, scale: float, **part: Any) -> Tensor | None:
        return super().position_bias(q, k, scale=scale, **{**part, "heads": slice(q.shape[-3])})


class ColumnsOfNeighbours(StridedSparse):
    """Requests the bias of adjacent positions for positions that are a stride apart."""

    def position_bias(self, q: Tensor, k: Tensor, *, scale: float, **part: Any) -> Tensor | None:
        return super().position_bias(q, k, scale=scale, **{**part, "step": 1})


class SummariesOffByOne(FixedSparse):
    """A summary gets the bias of the summary one block before."""

    def position_bias(self, q: Tensor, k: Tensor, *, scale: float, **part: Any) -> Tensor | None:
        bias = super().position_bias(q, k, scale=scale, **part)
        return bias.roll(1, -1) if bias is not None and "offset" in part else bias


class IgnoresHeads(Alibi):
    """Returns the slopes of the first heads for any ``heads``."""

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        return super().bias(q, k, scale=scale, heads=slice(q.shape[-3]), step=step, offset=offset)


class IgnoresStep(Alibi):
    """Ignores ``step``."""

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        return super().bias(q, k, scale=scale, heads=heads, offset=offset)


class TurnsOffset(Relative):
    """Applies the offset with the wrong sign."""

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        return super().bias(q, k, scale=scale, heads=heads, step=step, offset=-offset)


class TurnsQueriesOnly(Plain):
    """Rotates queries but not keys."""

    permutation_equivariant = False  # so that the check "permutation" does not run

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, rotated = super().rotate(q, k)
        return q, k if k.shape == rotated.shape else rotated  # not of a scheme that widens both, where shapes would differ


class ScalesByRotatedWidth(Plain):
    """Takes the scale of the logits from the width after the rotation."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        width = self.rotate(q, k)[0].shape[-1]
        return super().attend(q, k, v, mask, **{**options, "scale": width**-0.5})


class AnyHook(Plain):
    """Declares one hook but does not refuse the others."""

    hooks = frozenset({"embed"})

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        return super().unsupported(replace(setting, hook="none"))


class TopLeft(ByHand):
    """Aligns the causal mask to the first key, as ``is_causal`` of ``scaled_dot_product_attention`` does."""

    supports_memory = True

    def seen(self, t: int, s: int) -> Tensor:
        return causal_mask(t, s) if t == 1 else torch.ones(t, s, dtype=torch.bool).tril()


class TopLeftAlone(ByHand):
    """Aligns the causal mask to the first key if there is a single query."""

    supports_memory = True

    def seen(self, t: int, s: int) -> Tensor:
        return torch.ones(t, s, dtype=torch.bool).tril() if t == 1 else causal_mask(t, s)


class AnyMemory(Plain):
    """Does not declare memory and does not refuse it."""

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        return super().unsupported(replace(setting, memory=False))
