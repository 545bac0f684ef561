"""The part of `attnlab plan` on a study of a program: its command lines, and the files that its results depend on."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from attnlab._util.plural import count
from attnlab.cli._printing import constant_columns, format_duration, print_table, print_text
from attnlab.config.axes import text
from attnlab.config.command import CommandConfig
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan


def print_commands(plan: Plan) -> None:
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
    print_text(f"{count(plan.total, 'run')} ({count(len(plan.seeds), 'seed')} per cell), in {plan.folder.resolve()}.")
    first = plan.runs[0].settings
    assert isinstance(first, CommandConfig)
    print_text(f"First command: {shlex.join(first.arguments)}")
    files = sorted({name for command in commands.values() for name in command.files})
    named = "listed under 'files'" if plan.study.files is not None else "that the command names"
    print_text(f"Files {named}: {', '.join(files) or 'none'}. A run whose command or files change is repeated.")


def print_command_time(plan: Plan) -> None:
    """Print the time of the runs that are left, if finished ones show how long a run takes."""
    from attnlab.study.record import finished_records
    from attnlab.tracking.summary import final_metrics

    try:
        finished = finished_records(plan)
    except UserError:  # the number of finished runs states the same problem
        return
    seconds = [seconds for record in finished.values() if (seconds := final_metrics(record).get("wall_seconds")) is not None]
    left = plan.total - len(finished)
    if seconds and left > 0:
        mean = sum(seconds) / len(seconds)
        print_text(
            f"Time: {format_duration(left * mean)} for the {count(left, 'run')} left, one at a time, at "
            f"{format_duration(mean)} a run, the mean of the finished ones."
        )
