"""`attnlab delete`: delete runs of a study, with their folders."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from attnlab._util.text import count
from attnlab.cli._arguments import Parser
from attnlab.cli._printing import print_text, relative
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.study.withdrawal import Withdrawal
    from attnlab.tracking.record import RunRecord

HELP = "delete runs: their records, folders and places in the queue"
DESCRIPTION = (
    "Delete the records of runs in MLflow, and their folders with checkpoints, results and models. Rerunning the study "
    "trains them again, if its plan still contains them. MLflow keeps deleted records until `mlflow gc`."
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY", help="a study's name")
    parser.add_argument(
        "targets", metavar="RUN|CELL", nargs="+", help="a run's name, the beginning of its MLflow ID, or a cell's name"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def main(arguments: Namespace) -> int:
    from attnlab.study.withdrawal import withdraw

    with withdraw(arguments.study, arguments.targets) as withdrawal:
        runs = count(len(withdrawal.runs), "run")
        for run in withdrawal.runs:
            print_text(f"{withdrawal.describe(run)}: {_describe_files(withdrawal, run)}")
        if not arguments.yes:
            _confirm(runs)
        withdrawal.delete()
    print(f"deleted {runs} of {arguments.study}; an earlier report still shows them")
    return 0


def _describe_files(withdrawal: Withdrawal, run: RunRecord) -> str:
    if shared := withdrawal.shared_with(run):
        return f"its record; its folder stays, because the same run belongs to {', '.join(shared)}"
    folder = withdrawal.folder(run)
    return f"its record and {relative(folder)}" if folder.exists() else "its record; it has no folder here"


def _confirm(runs: str) -> None:
    """Ask whether to delete ``runs``, for example "5 runs".

    Raises:
        UserError: standard input is not a terminal.
        KeyboardInterrupt: the answer is not yes.
    """
    if not sys.stdin.isatty():
        raise UserError("expected --yes, because standard input is not a terminal")
    try:
        answer = input(f"delete {runs}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise KeyboardInterrupt("nothing was deleted")
