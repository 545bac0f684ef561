"""One case in this process: ``python -m benchmarks.speed.worker CASE.json OUT.json``."""

import json
import os
import platform
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.speed.case import Case

PACKAGES = ("torch", "x-transformers", "transformers")


def main(given: Path, out: Path) -> None:
    """Measure, and write down the rows and what they were measured on."""
    case = Case(**json.loads(given.read_text()))
    rows = import_module(f"benchmarks.speed.{case.section}").measure(case)
    out.write_text(json.dumps({"rows": [row._asdict() for row in rows], "about": about(case.device)}))


def about(device: str) -> dict[str, str]:
    """The machine and the versions, as this process has them."""
    import torch

    found = {"machine": f"{cpu()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, {platform.platform()}"}
    if device == "cuda":
        found["GPU"] = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    found["Python"] = platform.python_version()
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def cpu() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
