"""`attnlab profile`: find out what a variant can and cannot do, on diagnostics of increasing difficulty."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path

from attnlab.cli._arguments import Parser, comma_separated, positive_int
from attnlab.cli._printing import print_table, relative
from attnlab.cli._study import add_components_argument, add_workers_argument, parse_sets
from attnlab.errors import UserError

HELP = "find out what a variant can and cannot do, next to baselines: attnlab profile my_lab/cosine.py:Cosine"
DESCRIPTION = (
    "Train a variant on small diagnostics of increasing difficulty until it fails at three learning rates, next to dense, "
    "lstm, delta and linear, and write a page. Rerun to resume. The baselines are trained once for all profiles in a runs "
    "folder."
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("variant", nargs="?", metavar="NAME|PATH", help="a name, file.py:Class or package.module:Class")
    parser.add_argument("--all", action="store_true", help="instead of a name: every built-in variant, on one page")
    add_components_argument(parser)
    parser.add_argument(
        "--position", metavar="NAME", help="position scheme (default: rotary instead of learned positions, when supported)"
    )
    parser.add_repeatable("--options", metavar="KEY=VALUE", help="option of the variant, for example stride=4 (repeatable)")
    parser.add_argument("--tasks", type=comma_separated, metavar="NAME,NAME", help="diagnostics (default: all of the profile)")
    parser.add_argument(
        "--seeds", type=positive_int, default=3, metavar="N", help="seeds of each level (default 3, the minimum)"
    )
    add_workers_argument(parser)
    parser.add_argument(
        "--storage", metavar="URL", help="postgresql://..., a queue that several machines share (default: ATTNLAB_STORAGE)"
    )
    parser.add_repeatable("--imports", metavar="FILE", help="Python file to import first (repeatable)")
    parser.add_argument("--no-check", action="store_true", help="skip the quick check of your variant before the runs")
    parser.add_argument("--out", metavar="FOLDER", help="output folder (default runs/reports/profile/NAME)")


def main(arguments: Namespace) -> int:
    """Train what is missing, print the profile, and write its page.

    Returns:
        1 if a run of the profile has no result, else 0.
    """
    if (arguments.variant is None) != arguments.all:
        raise UserError("expected either a variant or --all")
    from attnlab.extras.profile.page import overview_table
    from attnlab.extras.profile.run import FOLDER, profile

    named = ("components", "position", "tasks", "seeds", "out", "imports", "workers", "storage")
    made = profile(
        arguments.variant,
        options=parse_sets(arguments.options),
        check=not arguments.no_check,
        command=shlex.join(["attnlab", *arguments.argv]),
        **{name: getattr(arguments, name) for name in named},
    )
    table = overview_table(made)
    print_table([column.heading for column in table.columns], [list(row.cells) for row in table.rows])
    print(f"report: {relative(Path(arguments.out or FOLDER / made.name) / 'index.html')}")
    return 0 if made.is_complete else 1
