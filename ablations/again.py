"""``dense`` under another name, for A/A studies: the same mathematics, so that every difference found is a false one."""

import torch

from attnlab import register_variant
from attnlab.variants import AttentionConfig
from attnlab.variants.dense import Dense


@register_variant("again")
class Again(Dense):
    """Dense attention, whose weights start from other values of the same distribution.

    Args:
        draws: added to the seed of the random stream that its weights are drawn from; 0: the very weights of ``dense``.
    """

    def __init__(self, config: AttentionConfig, *, draws: int = 0) -> None:
        if draws:
            torch.manual_seed(torch.initial_seed() + draws)
        super().__init__(config)
