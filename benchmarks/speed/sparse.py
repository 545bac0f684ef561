"""Section ``sparse``: time and memory of the sparse variants and dense SDPA, at 512 to 16,384 positions (65,536 on CUDA).

Attention alone, without projections, whose cost does not depend on the pattern: queries, keys and values as one tensor, forward
and backward. The stride is that of ``Variant.recommended_options``, near the square root of the length. On a CPU, the sparse
variants run in fp32 by ``blocked``. On CUDA they run in bf16 by ``xformers``, dense SDPA is held to FlashAttention (torch would
choose cuDNN's kernel on some devices), and the peak memory is reported in addition to the time.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnlab.config.run import MachineConfig
from attnlab.nn.layers import split_heads
from attnlab.registry import VARIANTS
from attnlab.training import costs
from attnlab.training import device as machine
from attnlab.variants import AttentionConfig, Variant
from benchmarks.speed.case import EQUAL, SETTINGS, SHIPPED, Case, Row, Size

DENSE = "dense"
SPARSE = ("strided_sparse", "fixed_sparse")
LENGTHS = {"cpu": (512, 1_024, 2_048, 4_096, 8_192, 16_384), "cuda": (4_096, 8_192, 16_384, 32_768, 65_536)}
PRECISION = {"cpu": "fp32", "cuda": "bf16"}
BACKEND = {"cpu": "blocked", "cuda": "xformers"}
LONG = 4_096  # beyond, fewer steps are taken
SIZE = Size(dim=256, heads=8, batch=2, warm=1, steps=5)


def cases(device: str) -> Iterator[Case]:
    """Yield dense and each sparse variant at each length, dense with and without attnlab's settings."""
    for length in LENGTHS[device]:
        for settings in (SHIPPED, EQUAL):
            yield from (Case("sparse", name, str(length), PRECISION[device], settings, device) for name in (DENSE, *SPARSE))


def measure(case: Case, size: Size = SIZE) -> list[Row]:
    """Measure the milliseconds of forward and backward, and the MiB saved in between."""
    as_is = case.name == DENSE and case.settings == SHIPPED
    device = machine.set_up(MachineConfig(device=case.device, **({} if as_is else SETTINGS)))
    length = int(case.part)
    variant = core(case.name, length, size=size, backend=BACKEND[device.type]).to(device)
    kind = torch.float32 if case.precision == "fp32" else torch.bfloat16
    x = torch.randn(size.batch, length, 3 * size.dim, device=device, dtype=kind, requires_grad=True)
    steps = size.steps if length <= LONG else max(1, size.steps // 2)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if device.type == "cuda" and case.name == DENSE else nullcontext():
        saved = costs.saved_bytes(lambda: variant(x), variant)[1]
        seconds = [_step(variant, x) for _ in range(size.warm)]
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)  # exclude the tensors that were saved for counting
        seconds += [_step(variant, x) for _ in range(steps)]
    rows = [Row("saved_mib", "", saved / costs.MIB)]
    rows += [Row("ms", str(i), 1e3 * seconds[i]) for i in range(size.warm, len(seconds))]
    if device.type == "cuda":
        rows.append(Row("peak_mib", "", costs.peaks(device)["gpu_peak_mib"]))
    return rows


def _step(variant: Variant, x: Tensor) -> float:
    """Return the seconds of forward and backward."""
    x.grad = None
    machine.synchronise(x.device)
    began = perf_counter()
    y = variant(x)
    y.backward(y.detach())
    machine.synchronise(x.device)
    return perf_counter() - began


def core(name: str, length: int, *, size: Size, backend: str) -> Variant:
    """Return a variant without projections, ``[q, k, v]`` (b, t, 3 dim) -> (b, t, dim); ``backend``: of sparse variants."""
    cls: type[Variant] = VARIANTS.get(name)
    setting = AttentionConfig(size.dim, size.heads, "causal", "sdpa" if name == DENSE else backend, 0.0, None)
    variant = cls(setting, **cls.recommended_options(length))
    variant.project, variant.out = _Given(size.heads), nn.Identity()
    return variant


class _Given(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: Tensor, context: None) -> list[Tensor]:
        return [split_heads(z, self.heads) for z in x.chunk(3, dim=-1)]
