"""Another block, another feed-forward network and another norm, each as a language model.

    parallel     x = x + Attention(Norm_1(x)) + FFN(Norm_2(x))      Black et al. 2022, "GPT-NeoX-20B", arXiv:2204.06745
    geglu        FFN(x) = W_2 (GELU(V x) * W_1 x)                   Shazeer 2020, arXiv:2002.05202, equation 6
    scale_norm   Norm(x) = g x / ||x||                              Nguyen & Salazar 2019, arXiv:1910.05895

g starts at sqrt(dim). The inner width of GEGLU is 2/3 of that of the default, so that its three matrices have as many
parameters as the two of the default. Code to papers: ``gate`` V, ``widen`` W_1, ``narrow`` W_2, ``gain`` g.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import register_model
from attnlab.models import Block, LanguageModel


class ParallelBlock(Block):
    """Attention and feed-forward read the same input, and their results are added to it at once."""

    def __init__(self, attention, *, config):
        super().__init__(attention, config=config)
        if not self.pre:  # the plan refuses the cell, with this reason
            raise ValueError(f"parallel: expected norm: pre, got norm: {config.norm}")

    def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        attended = self.attend(x, memory, mask)  # of the normed input
        return x + self.dropout(attended) + self.dropout(self.feed_forward(self.norm_feed_forward(x)))


class GEGLU(nn.Module):
    """A feed-forward network whose inner features are gated by a GELU."""

    residual_projections = ("narrow",)  # scaled by `initialization: gpt2`

    def __init__(self, dim: int, inner: int) -> None:
        super().__init__()
        self.gate, self.widen = nn.Linear(dim, inner, bias=False), nn.Linear(dim, inner, bias=False)
        self.narrow = nn.Linear(inner, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # (b, t, dim)
        return self.narrow(F.gelu(self.gate(x)) * self.widen(x))


class ScaleNorm(nn.Module):
    """A norm to the length g, which all positions and features share."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(dim**0.5))

    def forward(self, x: Tensor) -> Tensor:  # (..., dim)
        return self.gain * F.normalize(x, dim=-1)


class GEGLUBlock(Block):
    """The default block with another feed-forward network."""

    @staticmethod
    def make_feed_forward(config):
        return GEGLU(config.dim, round(config.dim * config.ff_mult * 2 / 3))


class ScaleNormBlock(Block):
    """The default block with another norm."""

    @staticmethod
    def make_norm(config):
        return ScaleNorm(config.dim)


@register_model("parallel")
class Parallel(LanguageModel):
    """A language model of parallel blocks."""

    block = ParallelBlock


@register_model("geglu")
class GEGLUModel(LanguageModel):
    """A language model with GEGLU."""

    block = GEGLUBlock


@register_model("scale_norm")
class ScaleNormModel(LanguageModel):
    """A language model with ScaleNorm."""

    block = ScaleNormBlock
