"""Forward and backward passes of sparse attention in bf16, beside dense scaled dot-product attention, by length."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from attnlab.errors import UserError
from attnlab.extras.bench.layer import ForwardBackward, LayerConfig, unsupported
from attnlab.extras.gpu_check.step import MIB, Case, Rows, Setting, Summary, Values

LENGTHS = (4096, 8192, 16384, 32768, 65536)
VARIANTS = ("strided_sparse", "fixed_sparse")


def cases(setting: Setting) -> Iterator[Case]:
    backend = setting.size("xformers", "blocked")
    for length in setting.size(LENGTHS, (64,)):
        for variant in VARIANTS:
            yield Case(f"{variant}, {backend}, {length}", partial(compare, setting, variant, backend, length))


def summarize(rows: Rows) -> Summary:
    """Return each variant at its longest length."""
    longest: dict[str, tuple[str, str]] = {}
    for case, row in rows.items():
        name, _, length = case.rpartition(", ")
        memory = row["peak_mib"] / max(row["dense_peak_mib"], 1e-9)
        longest[name] = (f"{name}, {int(length):,}", f"{row['times_as_fast']:.2f} x dense, {memory:.2f} of its memory")
    return list(longest.values())


def compare(setting: Setting, variant: str, backend: str, length: int) -> Values:
    """Return the milliseconds of a forward and backward pass of a layer and of a dense one, and their peak memory in MiB."""
    sparse, dense = (_passes(setting, *names, length) for names in ((variant, backend), ("dense", "sdpa")))
    peaks = []
    for passes in (sparse, dense):
        passes.seconds(1)  # the first pass allocates workspaces
        before = setting.card.allocated()
        passes.seconds(1)
        peaks.append((setting.card.peak() - before) / MIB)
    ours, theirs = setting.interleaved([partial(passes.seconds, 1) for passes in (sparse, dense)], rounds=5)
    return {
        "ms": 1e3 * ours,
        "dense_ms": 1e3 * theirs,
        "times_as_fast": theirs / ours,
        "peak_mib": peaks[0],
        "dense_peak_mib": peaks[1],
    }


def _passes(setting: Setting, variant: str, backend: str, length: int) -> ForwardBackward:
    size = {"batch": 2, "dim": 256, "heads": 8, "precision": "bf16", "options": {}}
    layer = LayerConfig(variant=variant, backend=backend, length=length, role="causal", position="none", **size)
    if reason := unsupported(layer, setting.device):
        raise UserError(reason)
    return ForwardBackward(layer, setting.device)
