"""`attnlab ui`: serve the MLflow UI, or Optuna's dashboard, until Ctrl-C."""

from __future__ import annotations

import argparse
from argparse import Namespace

from attnlab.cli._arguments import Parser
from attnlab.errors import UserError

HELP = "serve the MLflow UI of these runs on 127.0.0.1, or Optuna's dashboard"


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY", nargs="?", help="print the address of this study only")
    parser.add_argument("--search", action="store_true", help="serve Optuna's dashboard of the searches instead")
    parser.add_argument("--port", type=_port, default=5000, metavar="N", help="default 5000")


def main(arguments: Namespace) -> int:
    if arguments.search:
        if arguments.study is not None:
            raise UserError("expected no STUDY: the dashboard lists the searches of all studies", "--search")
        from attnlab.study.trials.dashboard import serve_dashboard

        serve_dashboard(arguments.port)
        return 0
    from attnlab.tracking.ui import serve

    serve(port=arguments.port, study=arguments.study)
    return 0


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"expected a port from 1 to 65535, got {text!r}")
    return int(text)
