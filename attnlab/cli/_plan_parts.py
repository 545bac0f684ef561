"""Parts of `attnlab plan`: the files that count, and the commands of a study of a program."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from attnlab._util.files import real_path
from attnlab._util.text import count
from attnlab.cli._printing import constant_columns, print_table, print_text
from attnlab.config.axes import text
from attnlab.config.command import CommandConfig
from attnlab.planning.command_files import command_files, counted_files, unfollowed_imports

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
    print_text(f"{count(plan.total, 'run')} ({count(len(plan.seeds), 'seed')} per cell), in {real_path(plan.folder)}.")
    first = plan.runs[0].settings
    assert isinstance(first, CommandConfig)
    print_text(f"First command: {shlex.join(first.arguments)}")
    named = "listed under 'files'" if plan.study.files is not None else "that count"
    print_files(plan, each=each, named=named, consequence="A run is repeated when its command or files change.")
    if plan.study.files is not None:
        folder, found = real_path(plan.folder), command_files(real_path(plan.folder), first.arguments, first.env)
        listed = {folder / name for name in counted_files(folder, first.files)}
        code = [name for name in counted_files(folder, found) if name.endswith((".py", ".sh")) and folder / name not in listed]
        if code:
            print_text(f"note: not listed under 'files', so runs are not repeated when they change: {', '.join(code)}")
    elif computed := unfollowed_imports(real_path(plan.folder), first.files):
        print_text(
            f"note: imports with computed names cannot be followed ({', '.join(computed[:SHOWN])}): when such a module "
            "changes, runs are not repeated; you should list it under 'files'"
        )


def print_files(plan: Plan, *, each: bool, named: str = "with your classes", consequence: str | None = None) -> None:
    """Print the number and the names of the files that the results depend on: of a program, or of the user's classes.

    Args:
        each: print all names instead of the first ones.
        named, consequence: words for it.
    """
    settings = [cell.settings for cell in (*plan.stages, *plan.cells) if cell.refusal is None]
    names = {name for one in settings for name in (one.files if isinstance(one, CommandConfig) else one.sources)}
    files = counted_files(real_path(plan.folder), names)
    if not files and consequence is None:
        return
    shown = files if each or len(files) <= SHOWN + 1 else files[:SHOWN]
    more = f" and {len(files) - len(shown)} more (--all lists them)" if len(shown) < len(files) else ""
    end = consequence or "A run is repeated when its code changes."
    print_text(f"Files {named} ({len(files)}): {', '.join(shown) or 'none'}{more}. {end}")
