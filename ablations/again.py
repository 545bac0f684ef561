"""``dense`` under another name, for A/A studies: both compute the same function, so that any difference found is false."""

import torch

from attnlab import register_variant
from attnlab.variants import AttentionConfig
from attnlab.variants.dense import Dense


@register_variant("again")
class Again(Dense):
    """Dense attention whose weights are initialised with other values of the same distribution.

    Args:
        draws: columns by which the initial weights of ``dense`` are rotated, which changes the function but not the
            distribution: the columns are drawn independently of each other. 0: the same initial weights as ``dense``.
    """

    def __init__(self, config: AttentionConfig, *, draws: int = 0) -> None:
        super().__init__(config)
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(weight.roll(draws, dims=-1))
