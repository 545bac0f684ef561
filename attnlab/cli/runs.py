"""`attnlab runs`: list the studies, or the runs of one as a table, CSV or JSON."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import Any

from attnlab.cli._arguments import Parser
from attnlab.cli._printing import print_table
from attnlab.errors import UserError

HELP = "list the studies, or the runs of one"
DESCRIPTION = "Columns are those of attnlab.load_runs; the last part of a dotted name is enough where it is unique (lr)."


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY", nargs="?", help="a study's name")
    parser.add_repeatable(
        "--where",
        metavar="CONDITION",
        help="variant=no_wo,dense, 'seed!=0', 'accuracy>=0.85'; 'trial=': has no value. Repeated: all must hold",
    )
    parser.add_argument("--columns", default="", metavar="A,B", help="name,seed,state,accuracy; or all")
    parser.add_argument("--sort", default="", metavar="COLUMN", help="ascending; --sort=-COLUMN descending")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="default: table")


def main(arguments: Namespace) -> int:
    if arguments.study is not None:
        return _print_runs(arguments)
    if arguments.where or arguments.columns or arguments.sort:
        raise UserError("--where, --columns and --sort require a study's name")
    from attnlab.tracking.client import connect, runs_folder, search_studies

    names = [experiment.name for experiment in search_studies(connect(runs_folder()))]
    print("\n".join(names) or "no studies yet")
    return 0


def _print_runs(arguments: Namespace) -> int:
    """Print the runs of a study that meet every condition; only a table on a terminal is fitted to its width."""
    from attnlab.cli import _runs_query as query
    from attnlab.tracking.runs import load_runs

    frame = load_runs(arguments.study)
    if frame.empty:
        raise UserError(f"the study {arguments.study!r} has no runs yet")
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
