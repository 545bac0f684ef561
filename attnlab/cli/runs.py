"""`attnlab runs`: list the studies, or the runs of one as a table, CSV or JSON."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import Any

from attnlab.cli._arguments import Parser
from attnlab.cli._printing import print_table, print_text
from attnlab.errors import UserError

HELP = "list the studies, or the runs of one"
DESCRIPTION = "Columns as in attnlab.load_runs; the last part of a dotted name is enough when it is unique (for example lr)."


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY", nargs="?", help="a study's name")
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        default="",
        help="an expression of pandas.DataFrame.query, for example \"variant == 'no_wo' and accuracy >= 0.85\"",
    )
    parser.add_argument("--columns", default="", metavar="A,B", help="name,seed,state,accuracy; or all")
    parser.add_argument("--sort", default="", metavar="COLUMN", help="sort ascending; --sort=-COLUMN sorts descending")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="default: table")


def main(arguments: Namespace) -> int:
    if arguments.study is not None:
        return _print_runs(arguments)
    if arguments.where or arguments.columns or arguments.sort or arguments.format != "table":
        raise UserError("--where, --columns, --sort and --format require a study's name")
    _print_studies()
    return 0


def _print_studies() -> None:
    """Print the name of each study, with the day and time (UTC) of its creation and of the start of its latest run."""
    from attnlab.tracking.runs import list_studies

    studies = list_studies()
    if not studies:
        print("no studies yet: attnlab run FILE.yaml runs one")
        return
    times = [[f"{time:%Y-%m-%d %H:%M}" if time else "" for time in (study.created, study.latest_run)] for study in studies]
    rows = [[study.name, *row] for study, row in zip(studies, times, strict=True)]
    print_table(["study", "created (UTC)", "latest run (UTC)"], rows)
    print_text("attnlab runs STUDY lists the runs of a study")


def _print_runs(arguments: Namespace) -> int:
    """Print the runs of a study that meet every condition; only a table on a terminal is fitted to its width."""
    from attnlab.cli import _runs_query as query
    from attnlab.tracking.runs import NoRunsError, load_runs

    frame = load_runs(arguments.study)
    if frame.empty:
        raise NoRunsError(arguments.study)
    frame = query.select(frame, where=arguments.where, columns=arguments.columns, sort=arguments.sort)
    if arguments.format == "csv":
        frame.map(lambda value: json.dumps(value) if isinstance(value, dict | list) else value).to_csv(sys.stdout, index=False)
    elif arguments.format == "json":
        records = frame.to_dict("records")
        print(json.dumps([{name: query.plain(value) for name, value in record.items()} for record in records], indent=1))
    else:
        _print_table(frame, chosen=bool(arguments.columns))
    return 0


def _print_table(frame: Any, *, chosen: bool) -> None:
    """Print a data frame; columns that the user chose are kept even if they are empty."""
    from attnlab.cli._runs_query import format_column

    if not chosen and sys.stdout.isatty():
        frame = frame.assign(run_id=frame["run_id"].str[:8])  # enough for `attnlab generate`
    columns = [format_column(frame[name]) for name in frame]
    print_table(list(map(str, frame.columns)), list(zip(*columns, strict=True)), keep_empty=chosen or frame.empty)
