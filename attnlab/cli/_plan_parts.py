"""Parts of `attnlab plan`: the files that count, and the commands of a study of a program."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.code_digest import code_files
from attnlab._util.files import real_path
from attnlab._util.text import count
from attnlab.cli._printing import constant_columns, print_table, print_text
from attnlab.config.command import CommandConfig
from attnlab.config.types import text
from attnlab.planning.command_files import new_files

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan

SHOWN = 8  # files that a plan names


def print_commands(plan: Plan, *, each: bool = False) -> None:
    """Print the values of each cell, the command line of the first run, and the files that the results depend on."""
    commands = {cell.name: cell.settings for cell in plan.cells if isinstance(cell.settings, CommandConfig)}
    names = list(dict.fromkeys(name for command in commands.values() for name in command.values))
    texts = {name: [text(command.values.get(key, "")) for key in names] for name, command in commands.items()}
    headings, rows = ["cell", *names], [[name, *values] for name, values in texts.items()]
    common = constant_columns(headings, rows, among=names)
    kept = [i for i, heading in enumerate(headings) if heading not in common]
    print_table([headings[i] for i in kept], [[row[i] for i in kept] for row in rows], wrap=("cell",))
    print()
    if common:
        print_text(f"All cells: {'; '.join(f'{name} {value}' for name, value in common.items())}.")
    print_text(f"{count(plan.total, 'run')} ({count(len(plan.seeds), 'seed')} per cell), in {real_path(plan.study.folder)}.")
    first = plan.runs[0].settings
    assert isinstance(first, CommandConfig)
    print_text(f"First command: {shlex.join(first.arguments)}")
    _print_files(sorted(first.listing), each=each, kind="that count", verb="its command or files change")


def print_new_files(plan: Plan) -> None:
    """Print a note on files that count from now on: results of a program would make its next runs others."""
    first = plan.runs[0].settings
    assert isinstance(first, CommandConfig)
    if names := new_files(plan.study, first.listing):
        words = f"{count(len(names), 'file')} that the runs did not have count from now on: {', '.join(names[:SHOWN])}"
        print_text(f"note: {words}. If the program writes them, let git ignore them, or list what it reads under 'files'.")


def print_class_files(plan: Plan, *, each: bool) -> None:
    """Print the number and the names of the files with the user's classes, and of those that they import.

    Args:
        each: print all names instead of the first ones.
    """
    sources = {Path(name) for cell in (*plan.stages, *plan.cells) if cell.refusal is None for name in cell.config.sources}
    folder = real_path(plan.study.folder)
    files = {file for path in sources for file in code_files(path)}
    if files:
        names = sorted(os.path.relpath(file, folder) if file.is_relative_to(folder.parent) else str(file) for file in files)
        _print_files(names, each=each, kind="with your classes", verb="its code changes")


def _print_files(names: Sequence[str], *, each: bool, kind: str, verb: str) -> None:
    shown = names if each or len(names) <= SHOWN + 1 else names[:SHOWN]
    more = f" and {len(names) - len(shown)} more (--all lists them)" if len(shown) < len(names) else ""
    print_text(f"Files {kind} ({len(names)}): {', '.join(shown) or 'none'}{more}. A run is repeated when {verb}.")
