"""`attnlab init`: write a folder with a study that runs, to start from."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from attnlab.cli._arguments import Parser
from attnlab.cli._study import DEFAULT_STUDY
from attnlab.errors import UserError

HELP = "write a folder with a study, a variant and a task to start from"
EXAMPLES = (
    "my_lab",
    "quickstart",
    "my_variant",
    "my_component",
    "my_analysis",
    "my_model",
    "my_task",
    "my_reviews",
    "command_nanogpt",
    "command_sklearn",
)
SCHEMA = "study.schema.json"  # the name in the first line of the studies


def add_arguments(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a new or empty folder")
    parser.add_argument("--example", choices=EXAMPLES, default="my_lab", help="the example to copy (default my_lab)")


def main(arguments: Namespace) -> int:
    from attnlab.planning.schema import schema_text

    folder = arguments.folder.expanduser()
    write_example(arguments.example, folder)
    (study,) = folder.glob("*.yaml")
    (folder / SCHEMA).write_text(schema_text(study), encoding="utf-8")
    print(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    print(f"To train and compare: cd {folder} && attnlab run{'' if study.name == DEFAULT_STUDY else f' {study.name}'}")
    return 0


def write_example(name: str, folder: Path) -> None:
    """Copy the files of an example into a folder.

    Raises:
        UserError: the folder holds files, or it cannot be written.
    """
    from importlib.resources import files

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"expected a new or empty folder, got {folder}", "init")
    folder.mkdir(parents=True, exist_ok=True)
    for source in files("attnlab").joinpath("examples", name).iterdir():
        if source.is_file() and source.name != SCHEMA:  # it is written with the names that are known here
            (folder / source.name).write_bytes(source.read_bytes())
