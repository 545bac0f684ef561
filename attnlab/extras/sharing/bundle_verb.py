"""`attnlab bundle`: write the record of a study to one file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from attnlab._util.text import count
from attnlab.cli._arguments import Parser

HELP = "write a study's runs and code to one file"
DESCRIPTION = (
    "Write the record of a study to one file: its runs with their configurations, scores and curves, and the code of your "
    "classes. `attnlab merge` reads it on another machine. The printed digest changes with any part of the content; you should "
    "publish it with the file."
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY", help="a study's name")
    parser.add_argument("--weights", action="store_true", help="pack the trained models, too")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the bundle (default STUDY.zip)")


def main(arguments: Namespace) -> int:
    from attnlab.extras.sharing.bundle import write_bundle

    bundle = write_bundle(arguments.study, arguments.out, with_weights=arguments.weights)
    running = f"; {count(bundle.record.running, 'run')} that have not ended are left out" if bundle.record.running else ""
    print(f"{bundle.path}: {count(len(bundle.record.runs), 'run')} of {bundle.record.name}{running}")
    print(f"SHA-256 {bundle.digest}")
    return 0
