"""`attnlab data`: list, fetch or verify the data sets in the cache."""

from __future__ import annotations

import sys
from argparse import Namespace

from attnlab.cli._arguments import Parser
from attnlab.cli._printing import print_table
from attnlab.errors import UserError

HELP = "list, fetch or verify the data sets in the cache"


def add_arguments(parser: Parser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "fetch", "verify"), default="list", help="default: list")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")


def main(arguments: Namespace) -> int:
    from attnlab.tasks import datasets

    status = datasets.status()
    names = arguments.names or [entry.source.name for entry in status]
    sources = [source for name in names for source in datasets.find_all(name)]
    if arguments.action == "list":
        rows = [
            [
                entry.source.name,
                "missing" if entry.size is None else "present",
                f"{entry.source.size / 1e6:.3g} MB",
                "yes" if entry.prepared else "no",
                str(entry.path),
                entry.source.url,
            ]
            for entry in status
            if entry.source in sources
        ]
        print_table(["name", "archive", "size", "prepared", "file", "source"], rows)
        return 0
    failed = False
    for source in sources:
        try:
            outcome = datasets.verify(source) if arguments.action == "verify" else datasets.fetch(source)
            print(f"{source.name}: {outcome}")
        except UserError as error:  # report every data set before exiting
            print(f"attnlab: {error}", file=sys.stderr)
            failed = True
    return 2 if failed else 0
