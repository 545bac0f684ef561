"""Measure one case in this process: ``python -m benchmarks.speed.worker CASE.json OUT.json``."""

import json
import platform
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks import processor
from benchmarks.speed.case import Case

PACKAGES = ("torch", "x-transformers", "transformers")


def main(source: Path, out: Path) -> None:
    """Measure a case; write its rows and the description of the machine to ``out``."""
    case = Case(**json.loads(source.read_text(encoding="utf-8")))
    rows = import_module(f"benchmarks.speed.{case.section}").measure(case)
    out.write_text(json.dumps({"rows": [row._asdict() for row in rows], "about": about(case.device)}), encoding="utf-8")


def about(device: str) -> dict[str, str]:
    """Return the machine and the versions of packages in this process."""
    import torch

    notes = {"processor": processor.machine(), "instruction sets": processor.instruction_sets()}
    notes["machine"] = f"{torch.get_num_threads()} threads, {platform.platform()}"
    if device == "cuda":
        notes["GPU"] = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    notes["Python"] = platform.python_version()
    for package in PACKAGES:
        try:
            notes[package] = version(package)
        except PackageNotFoundError:
            continue
    return notes


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
