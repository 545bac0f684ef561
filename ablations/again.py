"""``dense`` under another name, for A/A studies: the same mathematics, so that every difference found is a false one."""

import torch

from attnlab import register_variant
from attnlab.variants import Setting
from attnlab.variants.dense import Dense


@register_variant("again")
class Again(Dense):
    """Dense attention, whose weights start from other values of the same distribution.

    Args:
        draws: how often the random stream is drawn anew before it initialises; 0: the very weights of ``dense``.
    """

    def __init__(self, setting: Setting, *, draws: int = 0) -> None:
        for _ in range(draws):
            torch.manual_seed(int(torch.randint(2**62, ())))
        super().__init__(setting)
