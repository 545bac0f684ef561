"""Measured capabilities of this machine's CPU in bf16 and fp16: support of recurrent layers, and speed of matrix products.

A CPU without AVX-512 computes bf16 products in software, far slower than fp32, and oneDNN has no bf16 LSTM for it.
"""

from functools import cache
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIZES = (32, 64, 128, 256)  # of the square matrices whose product is timed: short enough to run between two interruptions
MAX_SECONDS = 0.02  # a larger product is timed only if it is expected to take less
REPEATS = 20
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


@cache
def half_speedup(matmul_precision: str = "highest", precision: str = "bf16") -> float:
    """Return the speedup of matrix products in half precision over fp32 products on this CPU; below 1, they are slower.

    Measured once per process and argument, in about a quarter of a second, on one thread: on a busy machine, several threads
    wait for each other, which would hide the difference.

    Args:
        matmul_precision: argument of ``torch.set_float32_matmul_precision``, with which some CPUs compute fp32 products faster.
        precision: ``bf16`` or ``fp16``.
    """
    before, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    torch.set_float32_matmul_precision(matmul_precision)
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            return _ratio_at_largest_size(DTYPES[precision])
    finally:
        torch.set_float32_matmul_precision(before)
        torch.set_num_threads(threads)


def _ratio_at_largest_size(dtype: torch.dtype) -> float:
    """Return the ratio of fp32 to ``dtype`` seconds, for the largest size with short products."""
    fp32 = half = 1.0
    for size in SIZES:
        fp32, half = _seconds(size, dtype)
        if 8 * max(fp32, half) > MAX_SECONDS:  # twice the size is eight times the work
            break
    return fp32 / half


def _seconds(size: int, dtype: torch.dtype) -> tuple[float, float]:
    """Return the shortest time of a product in fp32 and in ``dtype``; the two alternate, so that a busy machine slows both."""
    matrices = [torch.ones(size, size, dtype=dtype) for dtype in (torch.float32, dtype)]
    for matrix in matrices:
        _time_product(matrix)  # the first call also initializes the kernel
    times = [[_time_product(matrix) for matrix in matrices] for _ in range(REPEATS)]
    fp32, half = (min(column) for column in zip(*times, strict=True))
    return fp32, half


def _time_product(matrix: Tensor) -> float:
    start = perf_counter()
    F.linear(matrix, matrix)
    return perf_counter() - start
