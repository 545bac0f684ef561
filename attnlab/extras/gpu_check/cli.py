"""`attnlab gpu-check`: does attnlab work on this GPU, how fast is it, and is its memory estimate right?"""

from __future__ import annotations

import re
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from attnlab.cli._arguments import Parser, number
from attnlab.cli._printing import print_text, relative
from attnlab.errors import UserError, nearest

HELP = "check this GPU (values, memory, speed, several runs at a time, resuming) and write a page"
DESCRIPTION = (
    "Run the steps in order, each with a time limit. Results are written as they come; a second call continues, and runs "
    "failed cases again. Exit codes: 0: every case passed or is not supported here; 1: one failed or was not reached."
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--minutes", type=number, default=15.0, metavar="N", help="time limit of all steps together (default 15)"
    )
    parser.add_repeatable("--only", metavar="STEP", help="run this step only, for example agreement (repeatable)")
    parser.add_argument("--out", metavar="FOLDER", help="results and page (default reports/gpu/CARD)")
    parser.add_argument("--rehearse", action="store_true", help="run each step on the CPU, at small sizes")


def main(arguments: Namespace) -> int:
    """Run the steps, print a line for each case and the table of the page; return 1 if a case failed or was not reached.

    Raises:
        UserError: a step is unknown, or there is no CUDA device.
    """
    import torch

    from attnlab.extras.gpu_check.page import STEPS, table, write
    from attnlab.extras.gpu_check.runner import run

    if not arguments.minutes > 0:
        raise UserError(f"expected a number of minutes above 0, got {arguments.minutes:g}", "--minutes")
    names = [step.name for step in STEPS]
    for name in arguments.only:
        if name not in names:
            raise UserError(f"expected a step, got {name!r}{nearest(name, names)}; steps: {', '.join(names)}", "--only")
    if not arguments.rehearse and not torch.cuda.is_available():
        raise UserError("expected a CUDA device, and PyTorch sees none; --rehearse runs the steps on the CPU")
    card = "rehearsal" if arguments.rehearse else torch.cuda.get_device_name()
    folder = Path(arguments.out or f"reports/gpu/{re.sub('[^a-z0-9]+', '-', card.lower()).strip('-')}")
    steps, seconds = [step for step in STEPS if not arguments.only or step.name in arguments.only], 60 * arguments.minutes
    if arguments.rehearse:  # the limits of steps are for a card; a busy processor needs longer
        steps = [replace(step, seconds=seconds) for step in steps]
    results = run(steps, folder=folder, seconds=seconds, rehearse=arguments.rehearse, notice=print_text)
    print(table(results, STEPS))
    print_text(f"written: {relative(write(results, STEPS))}")
    return 0 if all(row["state"] in ("done", "refused") for row in results.rows.values()) else 1
