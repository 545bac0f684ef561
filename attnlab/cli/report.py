"""`attnlab report`: write the report of one study, or of several."""

from __future__ import annotations

from argparse import Namespace

from attnlab.cli._arguments import Parser
from attnlab.cli._printing import relative

HELP = "write reports/STUDY/: page, tables, plots"


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "study", metavar="STUDY", nargs="+", help="a study's name; several: one page with one answer above the report of each"
    )
    parser.add_argument("--out", metavar="FOLDER", help="output folder (default reports/STUDY; required for several studies)")
    parser.add_argument("--question", metavar="TEXT", default="", help="shown at the top (default: the study's own question)")


def main(arguments: Namespace) -> int:
    from attnlab.report.write import report

    print(relative(report(arguments.study, out=arguments.out, question=arguments.question) / "index.html"))
    return 0
