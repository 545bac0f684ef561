"""`attnlab schema`: print the JSON schema of a study file."""

from __future__ import annotations

from argparse import Namespace

from attnlab.cli._arguments import Parser

HELP = "print the JSON schema of study files, for completion and checks in an editor"
DESCRIPTION = (
    "Print the JSON schema of study files, with the names of all variants, components, positions, tasks, optimizers, "
    "samplers and pruners, and their options. An editor with a YAML language server reads it from the first line of a study, "
    "# yaml-language-server: $schema=study.schema.json"
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY.yaml", nargs="?", help="include the classes that this study imports")


def main(arguments: Namespace) -> int:
    from attnlab.planning.schema import schema_text

    print(schema_text(arguments.study), end="")
    return 0
