"""Steps on the numbers that a card computes.

- Does a layer compute on CUDA what ``reference`` computes in float64 on the CPU, and does it pass the contract there?
- A run that was killed and resumed, beside the same run without an interruption, twice: CUDA may add in another order.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attnlab._util.process import fork
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.nn import attention
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.testing import check_variant
from attnlab.testing.checks.backends import outputs, relative_gaps, tolerance
from attnlab.testing.checks.target import CUDA_BACKENDS, CUDA_HEAD_SHAPES, CheckTarget
from attnlab.training import checkpoint, weights
from attnlab.training.train import train
from benchmarks.gpu_check.runner import PRELOAD, Case, Rows, Setting, Summary, Values

VARIANTS_CHECKED = ("dense", "no_wo", "strided_sparse", "fixed_sparse", "transformer_xl", "delta")
POSITIONS_CHECKED = ("none", "rotary", "relative")
BACKENDS_CHECKED = ("reference", "sdpa", "xformers", "flex")
COMPONENTS_CHECKED: tuple[str | dict[str, Any], ...] = (  # one of each place
    "token_shift",
    "narrow",
    "qk_norm",
    "temperature",
    "value_residual",
    "softcap",
    {"name": "window", "size": 5},
    "sink",
    "gate",
    "no_wo",
)
QUICK = (
    "shapes",
    "causality by gradient",
    "padding",
    "memory",
    "key-value cache",
    "gradient coverage",
    "dropout",
    "bf16",
    "precisions and modes",
)
DTYPES = (torch.float64, torch.float32, torch.bfloat16)
HEADS, WIDTH = CUDA_HEAD_SHAPES[0]


def cases(setting: Setting) -> Iterator[Case]:
    """Yield the cases that end soonest first: flex compiles a kernel for each."""
    combinations = [
        (variant, position, backend)
        for backend in BACKENDS_CHECKED
        for variant in setting.size(VARIANTS_CHECKED, ("strided_sparse",))
        for position in setting.size(POSITIONS_CHECKED, ("none", "rotary"))
        if backend in VARIANTS.get(variant).backends and POSITIONS.get(position).hook in (*VARIANTS.get(variant).hooks, "none")
    ]
    for variant, position, backend in combinations:
        yield Case(f"{variant}, {position}, {backend}: values", partial(values, setting, variant, position, backend))
    for variant, position, backend in combinations:
        if backend == VARIANTS.get(variant).backends[0]:  # the cases above compare the others
            yield Case(f"{variant}, {position}: contract", partial(contract, setting, variant, position, backend))
    for component in setting.size(COMPONENTS_CHECKED, ("gate",)):
        name = component if isinstance(component, str) else component["name"]
        yield Case(f"dense with {name}: contract", partial(with_component, setting, component))


def summarize(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    found = []
    for dtype in ("float64", "float32", "bfloat16"):
        if errors := [row[dtype] for row in rows.values() if dtype in row]:
            found.append((f"largest relative error in {dtype}", f"{max(errors):.2g}"))
    return found


def values(setting: Setting, variant: str, position: str, backend: str) -> Values:
    """Return the largest error of the output and all gradients by type, relative to the largest value of each tensor."""
    cls = VARIANTS.get(variant)
    scheme = POSITIONS.get(position)
    there = CheckTarget(cls, {}, scheme, backend, str(setting.device), ("causal",), HEADS, HEADS * WIDTH)
    if reason := there.unsupported("causal") or attention.unsupported(backend, device=setting.device.type):
        raise UserError(reason)
    here = replace(there, device="cpu", backend="reference")
    errors = {}
    for dtype in DTYPES if backend not in CUDA_BACKENDS else DTYPES[1:]:
        errors[str(dtype).removeprefix("torch.")] = error = _error(here, there, dtype)
        allowed = tolerance(dtype, _error(here, here, dtype) if dtype == torch.bfloat16 else 0.0)
        if not error <= allowed:
            raise AssertionError(f"relative error {error:.2g} in {dtype}, expected at most {allowed:.2g}")
    return errors


def _error(here: CheckTarget, there: CheckTarget, dtype: torch.dtype) -> float:
    """Return the largest relative error of a layer on the device in ``dtype``, over inputs with and without padding."""
    exact, other = here.build("causal", dtype=torch.float64), there.build("causal", dtype=dtype)
    rounded = {name: p.to(dtype) for name, p in exact.state_dict().items()}
    exact.load_state_dict({name: p.double() for name, p in rounded.items()})
    other.load_state_dict(rounded)
    worst = 0.0
    for kind in ("plain", "masked"):
        expected = outputs(here, exact, "causal", kind, torch.float64)
        actual = outputs(there, other, "causal", kind, dtype)
        worst = max(worst, *relative_gaps(actual, expected).values())
    return worst


def contract(setting: Setting, variant: str, position: str, backend: str) -> Values:
    """Return the number of checks that passed; raise if one failed."""
    return _counts(check_variant(variant, position=position, backend=backend, device=setting.device.type, only=QUICK))


def with_component(setting: Setting, component: str | dict[str, Any]) -> Values:
    """Check ``dense`` with a component, with every backend that the component allows."""
    names = (*QUICK, "backends", "components take effect")
    return _counts(check_variant("dense", components=[component], device=setting.device.type, roles=["causal"], only=names))


def _counts(results: list) -> Values:
    failed = [f"{result.check}: {result.detail}" for result in results if result.status == "failed"]
    if failed:
        raise AssertionError("; ".join(failed))
    passed = [result for result in results if result.status == "passed"]
    if not passed:
        raise UserError("; ".join(result.detail for result in results))
    return {"passed": len(passed), **{r.check: r.detail for r in passed if r.check == "backends"}}


def resume_cases(setting: Setting) -> Iterator[Case]:
    for precision in setting.size(("fp32", "bf16", "fp16"), ("fp32",)):
        yield Case(f"killed, {precision}", partial(compare_resumed, setting, precision))


def summarize_resumed(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    found = []
    for case, row in rows.items():
        again = f"; of two whole runs by {row['difference_of_whole']:.2g}" if "difference_of_whole" in row else ""
        differs = f"bits per byte differ by {row['difference']:.2g}{again}"
        found.append((case, "the same bits" if row["same_bits"] else differs))
    return found


def compare_resumed(setting: Setting, precision: str) -> Values:
    """Kill a run after its first checkpoint, resume it, and return how far it and whole runs differ."""
    base: dict[str, Any] = {
        "task": {"name": "pydocs", "length": setting.size(256, 16)},
        "position": "rotary",
        "model": {"dim": setting.size(256, 16), "depth": setting.size(6, 1), "heads": 2, "dropout": 0.1},
        "train": {
            "steps": setting.size(300, 12),
            "batch_size": setting.size(64, 2),
            "precision": precision,
            "checkpoint_every": setting.size(50, 4),
            "log_every": setting.size(50, 4),
        },
        "evaluate": {"valid_limit": 20_000, "test_limit": 20_000},
    }
    config = setting.resolved(base)
    folder = setting.folder / "resume" / precision
    shutil.rmtree(folder, ignore_errors=True)
    process = fork(_train_slowly, (config, folder / "killed"), name="attnlab-killed", preload=PRELOAD)
    newest = folder / "killed" / checkpoint.NEWEST
    while not newest.exists() and process.is_alive():
        time.sleep(0.01)
    if not process.is_alive():
        raise UserError("expected a run that is killed while it trains, but it ended by itself")
    process.kill()
    process.join()
    began_at = checkpoint.load(newest)["step"]
    resumed, whole, again = (train(config, folder=folder / kind) for kind in ("killed", "whole", "again"))
    tensors = [weights.load(folder / kind)[1] for kind in ("killed", "whole")]
    metric = "bits_per_byte"
    values = {
        "resumed_at_step": began_at,
        "bits_per_byte": whole.summary[metric],
        "difference": resumed.summary[metric] - whole.summary[metric],
        "difference_of_whole": again.summary[metric] - whole.summary[metric],
        "same_bits": all(torch.equal(tensor, tensors[1][name]) for name, tensor in tensors[0].items()),
    }
    shutil.rmtree(folder)
    return values


def _train_slowly(config: RunConfig, folder: Path) -> None:
    """Train, and wait after the first checkpoint, so that the run is killed before its end."""

    def report(step: int, metrics: dict[str, float]) -> bool:
        if (folder / checkpoint.NEWEST).exists():
            time.sleep(60)
        return False

    train(config, folder=folder, report=report)
