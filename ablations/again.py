"""``dense`` under another name, for A/A studies: both compute the same function, so that any difference found is false."""

import torch

from attnlab import register_variant
from attnlab.variants import AttentionConfig
from attnlab.variants.dense import Dense


@register_variant("again")
class Again(Dense):
    """Dense attention whose weights are initialised with other values of the same distribution.

    Args:
        draws: added to the seed of the weights; 0: the same initial weights as ``dense``.
    """

    def __init__(self, config: AttentionConfig, *, draws: int = 0) -> None:
        if draws:
            torch.manual_seed(torch.initial_seed() + draws)
        super().__init__(config)
