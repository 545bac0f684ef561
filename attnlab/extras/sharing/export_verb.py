"""`attnlab export`: write the runs of a study in the format of another tool."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from attnlab.cli._arguments import Parser

HELP = "write a study's runs for TensorBoard or Weights & Biases"
DESCRIPTION = (
    "Write the configurations, curves and scores of the runs that a study reports as event files of TensorBoard or as offline "
    "runs of Weights & Biases. Needs pip install 'attnlab[export]'."
)
TOOLS = ("tensorboard", "wandb")
NEXT = {"tensorboard": "tensorboard --logdir {folder}", "wandb": "wandb sync {folder}/wandb/offline-run-*"}


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY", help="a study's name")
    parser.add_argument("--to", choices=TOOLS, required=True, help="the tool")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="a new or empty folder (default STUDY-TOOL)")


def main(arguments: Namespace) -> int:
    from attnlab.extras.sharing.export import export

    folder = export(arguments.study, arguments.to, arguments.out)
    print(f"To look at {folder}: {NEXT[arguments.to].format(folder=folder)}")
    return 0
