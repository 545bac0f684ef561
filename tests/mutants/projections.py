"""Mutants that declare biases or residual projections and compute something else."""

from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.variants import AttentionConfig, merge_heads, split_heads
from tests.mutants.base import Plain


class IgnoresBias(Plain):
    """Constructs its projections without biases."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(replace(config, bias=False))


class IdleBias(Plain):
    """Has biases, and multiplies by the weights alone."""

    supports_attention_bias = True

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        w_q, w_k, w_v = self.project.weight.chunk(3)
        context = x if context is None else context
        q, k, v = (split_heads(F.linear(z, w), self.heads) for z, w in ((x, w_q), (context, w_k), (context, w_v)))
        return F.linear(merge_heads(self.attend(q, k, v, mask)), self.out.weight)


class AddsInput(Plain):
    """Has a residual connection of its own, which the scale of ``out`` does not reach."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return x + super().forward(x, context=context, mask=mask)


class NamesTheGate(Plain):
    """Names the layer of a gate, of which the output is no linear function."""

    residual_projections = ("gate",)

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.gate = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask) * self.gate(x).sigmoid()
