"""`attnlab run`: run a study, print its table, and write its report."""

from __future__ import annotations

from argparse import Namespace

from attnlab.cli._arguments import Parser
from attnlab.cli._json import add_verdict_arguments
from attnlab.cli._study import (
    adaptive_options,
    add_output_arguments,
    add_queue_arguments,
    add_seed_arguments,
    add_study_arguments,
    parse_only,
    plan_study,
    run_plan,
)

HELP = "run a study; rerun to resume"


def add_arguments(parser: Parser) -> None:
    add_study_arguments(parser)
    add_seed_arguments(parser)
    add_queue_arguments(parser)
    add_output_arguments(parser)
    add_verdict_arguments(parser)


def main(arguments: Namespace) -> int:
    adaptive = adaptive_options(arguments)
    return run_plan(plan_study(arguments), arguments, only=parse_only(arguments.only), adaptive=adaptive)
