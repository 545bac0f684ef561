"""Capabilities of this machine's CPU in bf16 and fp16: its instructions, and support of recurrent layers.

A CPU without AVX-512 computes bf16 products in software, far slower than fp32, and oneDNN has no bf16 LSTM for it.
"""

from functools import cache

import torch
from torch import nn

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}  # half precision, by the values of train.precision
WIDTH = 8  # of the recurrent layer that is tested

RecurrentLayer = type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]


@cache
def runs_in_half(layer: RecurrentLayer, precision: str) -> bool:
    """Return True when a recurrent layer runs forward and backward under autocast on this CPU; tested once per process.

    Args:
        layer: ``nn.LSTM``, ``nn.GRU``, ``nn.RNN``, or a subclass with the same constructor.
        precision: ``bf16`` or ``fp16``.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        module, x = layer(WIDTH, WIDTH, batch_first=True), torch.ones(2, 3, WIDTH)
        try:
            with torch.autocast("cpu", DTYPES[precision]):
                module(x)[0].float().sum().backward()
        except RuntimeError:  # oneDNN: "could not create a primitive descriptor"
            return False
    return True


def has_bf16() -> bool:
    """Return True when this CPU has instructions for products in bf16: AVX-512 bf16, which each CPU with AMX has."""
    return torch.cpu._is_avx512_bf16_supported()  # torch has no public name for it
