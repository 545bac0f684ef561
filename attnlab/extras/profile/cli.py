"""`attnlab profile`: find out what a variant can and cannot do, on diagnostics of increasing difficulty."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.cli._arguments import Parser, comma_separated, positive_int
from attnlab.cli._printing import print_table, print_text, relative
from attnlab.cli._study import add_components_argument, add_workers_argument, parse_sets
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.extras.profile.results import Profile

HELP = "find out what a variant can and cannot do, next to baselines: attnlab profile my_lab/cosine.py:Cosine"
DESCRIPTION = (
    "Train a variant on small diagnostics of increasing difficulty until it fails at three learning rates, next to dense, "
    "lstm, delta and linear, and write a page. Rerun to resume. The baselines are trained once for all profiles in a runs "
    "folder."
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("variant", nargs="?", metavar="NAME|PATH", help="a name, file.py:Class or package.module:Class")
    parser.add_argument("--all", action="store_true", help="instead of a name: every built-in variant, a page for each")
    add_components_argument(parser)
    parser.add_argument(
        "--position", metavar="NAME", help="position scheme (default: rotary instead of learned positions, when supported)"
    )
    parser.add_repeatable("--options", metavar="KEY=VALUE", help="option of the variant, for example stride=4 (repeatable)")
    parser.add_argument(
        "--quick", action="store_true", help="two diagnostics at two levels, in about three minutes on two cores"
    )
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
    parser.add_argument("--out", metavar="FOLDER", help="output folder (default reports/profile/NAME)")


def main(arguments: Namespace) -> int:
    """Train what is missing, print the profile, and write its page.

    Returns:
        1 if a run of the profile has no result, else 0.
    """
    if (arguments.variant is None) != arguments.all:
        raise UserError("expected either a variant or --all")
    return _profile_all(arguments) if arguments.all else _profile_one(arguments)


def _profile_one(arguments: Namespace) -> int:
    from attnlab.extras.profile.make import FOLDER, profile

    made = profile(
        arguments.variant,
        components=arguments.components,
        options=parse_sets(arguments.options),
        position=arguments.position,
        tasks=arguments.tasks,
        quick=arguments.quick,
        seeds=arguments.seeds,
        out=arguments.out,
        imports=arguments.imports,
        workers=arguments.workers,
        storage=arguments.storage,
        check=not arguments.no_check,
    )
    _print_profile(made)
    print(f"report: {relative(Path(arguments.out or FOLDER / made.name) / 'index.html')}")
    return 0 if made.is_complete else 1


def _profile_all(arguments: Namespace) -> int:
    from attnlab.extras.profile.make import FOLDER, ProfileOptions, profile_built_in
    from attnlab.extras.profile.run import select_abilities

    for name in ("components", "options", "position", "imports"):
        if getattr(arguments, name):
            flag = "with" if name == "components" else name
            raise UserError(f"--{flag} is an option of one variant, got it with --all")
    options = ProfileOptions(
        abilities=select_abilities(arguments.tasks, quick=arguments.quick),
        seeds=arguments.seeds,
        workers=arguments.workers,
        storage=arguments.storage,
        command=shlex.join(["attnlab", *arguments.argv]),
    )
    folder = Path(arguments.out or FOLDER)
    profiles = profile_built_in(options, folder=folder)
    print(f"report: {relative(folder / 'index.html')}")
    return 0 if all(made.is_complete for made in profiles) else 1


def _print_profile(profile: Profile) -> None:
    """Print what the variant can and cannot do, the levels that each variant solves, and the costs."""
    from attnlab.extras.profile.page import cost_table, describe_ability, overview_table

    for ability in profile.abilities:
        print_text(f"{ability.task}: {profile.variant} {''.join(describe_ability(ability, profile.variant))}.")
    print()
    costs, note = cost_table(profile)
    for table in (overview_table(profile), costs):
        headings = [column.heading for column in table.columns]
        print_table(headings, [list(row.cells) for row in table.rows], wrap=tuple(profile.positions))
        print()
    print_text(note)
