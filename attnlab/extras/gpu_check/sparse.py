"""Forward and backward passes of sparse attention in bf16, beside dense scaled dot-product attention, by length."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from attnlab.errors import UserError
from attnlab.extras.gpu_check.step import MIB, Case, Setting, Values
from attnlab.testing.benchmark.layer import ForwardBackward, LayerConfig, unsupported

LENGTHS = (4096, 8192, 16384, 32768, 65536)
BACKENDS = {"dense": "sdpa", "strided_sparse": "xformers", "fixed_sparse": "xformers"}
REHEARSED = {"dense": "sdpa", "strided_sparse": "blocked", "fixed_sparse": "blocked"}


def cases(setting: Setting) -> Iterator[Case]:
    for length in setting.size(LENGTHS, (64,)):
        for variant, backend in setting.size(BACKENDS, REHEARSED).items():
            yield Case(f"{variant}, {backend}, {length}", partial(measure, setting, variant, backend, length))


def measure(setting: Setting, variant: str, backend: str, length: int) -> Values:
    """Return the milliseconds of a forward and backward pass of one layer, and its peak memory in MiB."""
    size = {"batch": 2, "dim": 256, "heads": 8, "precision": "bf16", "options": {}}
    layer = LayerConfig(variant=variant, backend=backend, length=length, role="causal", position="none", **size)
    if reason := unsupported(layer, setting.device):
        raise UserError(reason)
    passes = ForwardBackward(layer, setting.device)
    before = setting.card.allocated()
    seconds = setting.median_seconds(lambda: passes.seconds(1), rounds=5)
    return {"ms": 1e3 * seconds, "peak_mib": (setting.card.peak() - before) / MIB}
