"""Does a layer compute on CUDA what ``reference`` computes in float64 on the CPU, and does it pass the contract there?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from attnlab.errors import UserError
from attnlab.extras.gpu_check.step import Case, Rows, Setting, Summary, Values
from attnlab.nn import attention
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.testing import check_variant
from attnlab.testing.checks.backends import outputs, relative_gaps, tolerance
from attnlab.testing.checks.target import CUDA_BACKENDS, CUDA_HEAD_SHAPES, CheckTarget

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
        for variant in setting.size(VARIANTS_CHECKED, ("dense", "strided_sparse"))
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
