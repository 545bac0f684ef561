"""A learned sink: weight that goes to no key.

Xiao et al. 2024, arXiv:2309.17453, "Efficient Streaming Language Models with Attention Sinks" (a sink token); as a bias
without a value, OpenAI 2025, arXiv:2508.10925, "gpt-oss".

    w_ij = exp(s_ij) / (exp(b_h) + sum_j' exp(s_ij'))

A head can ignore its keys and give its weight to the sink, instead of to the first token.

Departures from the paper: none from gpt-oss.
Cost: O(h t); h parameters, 0 at first.
Glossary: ``bias`` b_h.
"""

import torch
from torch import Tensor, nn

from attnlab.components.base import Component, ComponentConfig


class Sink(Component):
    """Softmax over the keys and one learned logit for each head, which has no value."""

    paper = "OpenAI 2025"

    def __init__(self, config: ComponentConfig) -> None:
        super().__init__(config)
        self.bias = nn.Parameter(torch.zeros(config.heads, 1, 1))

    def weights(self, logits: Tensor, visible: Tensor) -> Tensor:
        sink = self.bias.to(logits.dtype).expand(*logits.shape[:-1], 1)
        return torch.cat([sink, logits], dim=-1).softmax(-1)[..., 1:]
