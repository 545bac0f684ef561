"""`attnlab bundle`: write the record of a study to one file."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attnlab._util.text import count
from attnlab.cli._arguments import Parser
from attnlab.cli._printing import print_text

HELP = "write a study's runs and code to one file"
DESCRIPTION = (
    "Write the record of a study to one file: its runs with their configurations, scores and curves, and the code of your "
    "classes or your program. `attnlab merge` reads it on another machine. The printed digest changes with any part of the "
    "content; you should publish it with the file."
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY", help="a study's name")
    parser.add_argument("--weights", action="store_true", help="pack the trained models, too")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the bundle (default STUDY.zip)")
    parser.add_argument("--data", action="store_true", help="pack all files of a program that count, not only its code")


def main(arguments: Namespace) -> int:
    from attnlab.extras.sharing.bundle import write_bundle

    options = {"data": arguments.data, "with_weights": arguments.weights}
    bundle = write_bundle(arguments.study, arguments.out, **options, announce=_print_names)
    running = f"; {count(bundle.record.running, 'run')} that have not ended are left out" if bundle.record.running else ""
    print(f"{bundle.path}: {count(len(bundle.record.runs), 'run')} of {bundle.record.name}{running}")
    print(f"SHA-256 {bundle.digest}")
    return 0


def _print_names(names: Sequence[str]) -> None:
    """Print the names of the files of a bundle, those of its runs by their kinds."""
    kinds = Counter(name.split("/", 2)[2] for name in names if name.startswith("runs/"))
    shown = [name for name in names if not name.startswith("runs/")]
    for name in (*shown, *(f"{number} x runs/.../{kind}" for kind, number in kinds.items())):
        print_text(f"  {name}")
