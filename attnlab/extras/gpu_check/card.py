"""The card, the driver and the versions; the rates of matrix products and copies that other steps are compared with."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import torch

from attnlab._util.machine import processors
from attnlab._version import __version__
from attnlab.extras.gpu_check.step import Case, Rows, Setting, Summary, Values

PACKAGES = ("torch", "triton", "xformers")
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}


def cases(setting: Setting) -> Iterator[Case]:
    yield Case("versions", partial(versions, setting))
    yield from (Case(f"product {precision}", partial(product, setting, precision)) for precision in DTYPES)
    yield Case("copy", partial(copy, setting))


def summarize(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    seen = rows.get("versions", {})
    versions = [f"{name} {seen[name]}".removeprefix("card ") for name in ("card", "driver", "torch") if name in seen]
    rates = [f"{name.removeprefix('product ')} {row['tflops']:.3g}" for name, row in rows.items() if "tflops" in row]
    found = [("card", ", ".join(versions))] if versions else []
    found += [("products, TFLOP/s", ", ".join(rates))] if rates else []
    return found + [("copies, TB/s", f"{row['tb_per_s']:.3g}") for row in rows.values() if "tb_per_s" in row]


def versions(setting: Setting) -> Values:
    """Return the card, the driver, and the versions of what computes on it."""
    values = setting.card.describe() | {"python": platform.python_version(), "attnlab": __version__, "processors": processors()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            values[name] = version(name)
    with suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        values["driver"] = subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    return values


def product(setting: Setting, precision: str) -> Values:
    """Return the rate of products of square matrices of random numbers in TFLOP/s."""
    n = setting.size(8192 if precision == "bf16" else 4096, 32)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    a, b = (torch.randn(n, n, device=setting.device, dtype=DTYPES[precision]) for _ in range(2))
    return {"tflops": 2 * n**3 / setting.median_seconds(lambda: a @ b) / 1e12}


def copy(setting: Setting) -> Values:
    """Return the rate of a copy on the device in TB/s, of bytes that are read and written."""
    a = torch.zeros(setting.size(2**30, 2**10), device=setting.device)
    b = torch.empty_like(a)
    return {"tb_per_s": 2 * a.nbytes / setting.median_seconds(lambda: b.copy_(a)) / 1e12}
