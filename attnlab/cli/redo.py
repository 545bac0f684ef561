"""`attnlab redo`: train runs of a study again when the study is next run."""

from __future__ import annotations

from argparse import Namespace

from attnlab.cli._arguments import Parser
from attnlab.cli._printing import print_text, relative

HELP = "train finished runs again the next time the study runs; old records are kept"
DESCRIPTION = (
    "Exclude the records of runs, so that rerunning the study trains the runs again from their first step. "
    "The old records stay in MLflow, and the files of the old attempts are kept in separate folders."
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY", help="a study's name")
    parser.add_argument(
        "targets", metavar="RUN|CELL", nargs="+", help="a run's name, the beginning of its MLflow ID, or a cell's name"
    )


def main(arguments: Namespace) -> int:
    from attnlab.study.withdrawal import withdraw

    with withdraw(arguments.study, arguments.targets) as withdrawal:
        folders = withdrawal.redo()
        for run in withdrawal.runs:
            place = f"its files are in {relative(folders[run.name])}"
            if shared := withdrawal.shared_with(run):
                place += f" until then, because the same run belongs to {', '.join(shared)}"
            print_text(f"{withdrawal.describe(run)}: no longer counts; its record is kept, {place}")
        count, command = len(withdrawal.runs), withdrawal.runs[-1].command
    again = f": {command}" if command.startswith("attnlab ") else ""
    print(f"Rerun the study to train {'it' if count == 1 else f'the {count} runs'} again{again}")
    return 0
