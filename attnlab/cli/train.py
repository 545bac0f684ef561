"""`attnlab train`: run one cell without a study file."""

from __future__ import annotations

from argparse import Namespace

from attnlab.cli._arguments import Parser
from attnlab.cli._study import add_output_arguments, add_queue_arguments, parse_sets, run_plan
from attnlab.errors import UserError

HELP = "run one cell without a study file: attnlab train task=pydocs variant=no_wo"
DEFAULT_STEPS = 1000
DESCRIPTION = (
    f"Run one cell as part of the study 'train' (study=NAME for another), for {DEFAULT_STEPS} steps unless train.steps or "
    "train.epochs is given."
)
AXES = ("variant", "position", "task", "backend")  # their values name the cell


def add_arguments(parser: Parser) -> None:
    parser.add_argument("assignments", nargs="+", metavar="KEY=VALUE", help="variant=no_wo task=pydocs train.lr=1e-3")
    add_queue_arguments(parser)
    add_output_arguments(parser)


def main(arguments: Namespace) -> int:
    from attnlab.config.study import StudyConfig
    from attnlab.config.yaml import assignment
    from attnlab.planning.plan import plan

    assignments = parse_sets(arguments.assignments)
    study_keys = {key: value for key, value in assignments.items() if key in StudyConfig.model_fields}
    grid = {key: [value] for key, value in assignments.items() if key.partition(".")[0] in AXES}
    sets = {key: value for key, value in assignments.items() if key not in (*study_keys, *grid)}
    base = {} if {"train.steps", "train.epochs"} & sets.keys() else {"train": {"steps": DEFAULT_STEPS}}
    try:
        planned = plan({"study": "train", "base": base, "grid": grid, **study_keys}, sets=sets)
    except UserError as error:  # its place is in a generated grid: name the assignment instead
        typed = {f"grid.{key}": assignment(key, value) for key, value in assignments.items()}
        place = error.where.partition("[")[0]
        raise UserError(error.message.removeprefix("grid."), typed.get(place, error.where)) from error
    return run_plan(planned, arguments, only=grid)  # keep the other cells of the study "train"
