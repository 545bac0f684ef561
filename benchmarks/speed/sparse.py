"""Section ``sparse``: what the sparse variants save beside dense SDPA, from 512 positions to 16,384.

Attention alone, without projections, which cost the same whatever the pattern: queries, keys and values as one tensor in,
forward and backward. The stride is that of ``Variant.suited``, near the root of the length.
"""

from collections.abc import Iterator
from time import perf_counter

import torch
from torch import Tensor, nn

from attnlab import machine
from attnlab import measure as costs
from attnlab.config import MachineConfig
from attnlab.layers import split_heads
from attnlab.registry import VARIANTS
from attnlab.variants import Setting, Variant
from benchmarks.speed.case import EQUAL, SETTINGS, SHIPPED, Case, Row, Size

DENSE = "dense"
SPARSE = ("strided_sparse", "fixed_sparse")
LENGTHS = (512, 1_024, 2_048, 4_096, 8_192, 16_384)
LONG = 4_096  # beyond, fewer steps are taken
SIZE = Size(dim=256, heads=8, batch=2, warm=1, steps=5)


def cases(device: str) -> Iterator[Case]:
    """Dense and each sparse variant at each length, dense with and without the settings that attnlab's runs have."""
    for length in LENGTHS:
        for settings in (SHIPPED, EQUAL):
            yield from (Case("sparse", name, str(length), "fp32", settings, device) for name in (DENSE, *SPARSE))


def measure(case: Case, size: Size = SIZE) -> list[Row]:
    """Milliseconds of forward and backward, and the MiB that are saved in between."""
    as_is = case.name == DENSE and case.settings == SHIPPED
    device = machine.set_up(MachineConfig(device=case.device, **({} if as_is else SETTINGS)))
    length = int(case.part)
    variant = core(case.name, length, size=size).to(device)
    x = torch.randn(size.batch, length, 3 * size.dim, device=device, requires_grad=True)
    _, saved = costs.saved_bytes(lambda: variant(x), variant)
    found = [Row("saved_mib", "", saved / costs.MIB)]
    steps = size.steps if length <= LONG else max(1, size.steps // 2)
    for i in range(size.warm + steps):
        x.grad = None
        machine.synchronise(device)
        began = perf_counter()
        y = variant(x)
        y.backward(y.detach())
        machine.synchronise(device)
        if i >= size.warm:
            found.append(Row("ms", str(i), 1e3 * (perf_counter() - began)))
    return found


def core(name: str, length: int, *, size: Size) -> Variant:
    """A variant whose projections do nothing: ``[q, k, v]`` (b, t, 3 dim) -> (b, t, dim)."""
    cls: type[Variant] = VARIANTS.get(name)
    backend = "sdpa" if name == DENSE else "blocked"
    variant = cls(Setting(size.dim, size.heads, "causal", backend, 0.0, None), **cls.suited(length))
    variant.project, variant.out = _Given(size.heads), nn.Identity()
    return variant


class _Given(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: Tensor, source: None) -> list[Tensor]:
        return [split_heads(z, self.heads) for z in x.chunk(3, dim=-1)]
