"""Check a GPU and write a page: ``python -m benchmarks.gpu_check``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from attnlab.errors import UserError
from benchmarks.gpu_check.page import STEPS, table, write
from benchmarks.gpu_check.runner import run

NAMES = [step.name for step in STEPS]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check", description=sys.modules["benchmarks.gpu_check"].__doc__
    )
    made.add_argument("--minutes", type=float, default=15.0, metavar="N", help="time limit of all steps (default 15)")
    made.add_argument("--only", action="append", choices=NAMES, default=[], help="run this step only (repeatable)")
    made.add_argument("--out", type=Path, metavar="FOLDER", help="results and page (default reports/gpu/CARD)")
    made.add_argument("--rehearse", action="store_true", help="run each step on the CPU, at small sizes")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the steps, print a line for each case and the table of the page; return 1 if a case failed or was not reached."""
    options = parser().parse_args(argv)
    if not options.rehearse and not torch.cuda.is_available():
        raise UserError("expected a CUDA device, and PyTorch sees none; --rehearse runs the steps on the CPU")
    card = "rehearsal" if options.rehearse else torch.cuda.get_device_name()
    folder = options.out or Path("reports/gpu") / re.sub("[^a-z0-9]+", "-", card.lower()).strip("-")
    seconds = 60 * options.minutes
    steps = [step for step in STEPS if not options.only or step.name in options.only]
    if options.rehearse:  # the limits of steps are for a card; a busy processor needs longer
        steps = [replace(step, seconds=seconds) for step in steps]
    results = run(steps, folder=folder, seconds=seconds, rehearse=options.rehearse)
    print(table(results, STEPS))
    print(f"written: {write(results, STEPS)}")
    return 0 if all(row["state"] in ("done", "refused") for row in results.rows.values()) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(str(error))
