"""What this machine's processor can do in bf16, found by trying it: recurrent layers, and the rate of matrix products.

A processor without AVX-512 runs bf16 products in software, far slower than fp32, and oneDNN has no bf16 LSTM for it.
"""

from functools import cache
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIZES = (32, 64, 128, 256, 512)  # of the square products that are timed
LONGEST = 0.02  # seconds: a larger product is timed only where it is expected to take less
REPEATS = 5
WIDTH = 8  # of the recurrent layer that is tried

RecurrentLayer = type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]


@cache
def runs_in_bf16(layer: RecurrentLayer) -> bool:
    """Whether a recurrent layer runs forward and backward under bf16 autocast on this CPU; tried once per process.

    Args:
        layer: ``nn.LSTM``, ``nn.GRU``, ``nn.RNN``, or a subclass with the same constructor.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        made, x = layer(WIDTH, WIDTH, batch_first=True), torch.ones(2, 3, WIDTH)
        try:
            with torch.autocast("cpu", torch.bfloat16):
                made(x)[0].float().sum().backward()
        except RuntimeError:  # oneDNN: "could not create a primitive descriptor"
            return False
    return True


@cache
def bf16_speedup(matmul_precision: str = "highest") -> float:
    """How many times as fast as fp32 products bf16 products run on this CPU; below 1, they are slower.

    Measured once per process, in at most about 0.2 seconds, on one thread: several wait for each other where the machine is
    busy, which would hide the difference.

    Args:
        matmul_precision: that of ``torch.set_float32_matmul_precision``, which some processors run fp32 products faster with.
    """
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    torch.set_float32_matmul_precision(matmul_precision)
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            return _ratio_at_largest_size()
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)


def _ratio_at_largest_size() -> float:
    """Seconds of an fp32 product over those of a bf16 product, of the largest size whose products stay short."""
    fp32 = bf16 = 1.0
    for size in SIZES:
        fp32, bf16 = _seconds(size)
        if 8 * max(fp32, bf16) > LONGEST:  # twice the size is eight times the work
            break
    return fp32 / bf16


def _seconds(size: int) -> tuple[float, float]:
    """The least time of a product in fp32 and in bf16; the two take turns, so that a busy machine slows both."""
    factors = [torch.ones(size, size, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)]
    for each in factors:
        _once(each)  # the first call also sets the kernel up
    times = [[_once(each) for each in factors] for _ in range(REPEATS)]
    fp32, bf16 = (min(column) for column in zip(*times, strict=True))
    return fp32, bf16


def _once(factor: Tensor) -> float:
    began = perf_counter()
    F.linear(factor, factor)
    return perf_counter() - began
