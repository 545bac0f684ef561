"""`attnlab report`: write the report of one study, or of several."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module
from pathlib import Path

from attnlab._util.packages import require
from attnlab.cli._arguments import Parser
from attnlab.cli._printing import print_text, relative
from attnlab.errors import UserError

HELP = "write runs/reports/STUDY/: page, tables, plots"


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "study",
        metavar="STUDY",
        nargs="+",
        help="a study's name, or its YAML file; for several: one page with one answer above the report of each",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="output folder (default runs/reports/STUDY; required for several studies)"
    )
    parser.add_argument("--question", metavar="TEXT", default="", help="shown at the top (default: the question of the study)")
    parser.add_repeatable("--imports", metavar="FILE", help="Python file with your analyses (repeatable)")
    parser.add_argument(
        "--label",
        nargs=2,
        metavar=("CELL", "NAME"),
        action="append",
        default=[],
        help="with --paper, another name for a cell, for example 'no_wo steps=1800' 'no Wo' (repeatable)",
    )
    parser.add_argument("--paper", action="store_true", help="also write paper/: tables as LaTeX, plots as PDF and PNG")


def main(arguments: Namespace) -> int:
    from attnlab._util.user_code import load_file
    from attnlab.report.write import REPORTS, write_report

    for file in arguments.imports:
        load_file(Path(file).expanduser())
    if arguments.label and not arguments.paper:
        raise UserError("--label requires --paper")
    if arguments.paper:
        require("a paper", "matplotlib", "typst", where="--paper")  # before the report, which may take a minute
    try:
        folder = write_report(arguments.study, out=arguments.out, question=arguments.question)
    except UserError as error:
        folder = Path(arguments.out or REPORTS / arguments.study[0])
        one = len(arguments.study) == 1 or arguments.out
        if not (arguments.paper and one and _is_report(folder)):
            raise
        print_text(f"{error}; the paper uses the results stored in {relative(folder)}")
    else:
        print(relative(folder / "index.html"))
    if arguments.paper:
        for paper in import_module("attnlab.extras.paper").write_paper(folder, dict(arguments.label)):  # by name
            print(relative(paper))
    return 0


def _is_report(folder: Path) -> bool:
    """Return True for the folder of a report that stores its results."""
    return any((folder / name).exists() for name in ("report.json", "index.json"))
