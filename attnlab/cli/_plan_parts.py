"""Two parts of `attnlab plan`: the time to the verdicts, and a study of a program, with its commands and their files."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from attnlab._util.files import real_path
from attnlab._util.text import count
from attnlab.cli._printing import constant_columns, format_duration, print_table, print_text
from attnlab.config.axes import text
from attnlab.config.command import CommandConfig
from attnlab.errors import UserError
from attnlab.planning.command_files import command_files, counted_files, unfollowed_imports
from attnlab.stats.predict import MAX_SEEDS, POWER

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.study.verdict_time import Group, Open, Pace, VerdictTime

SHOWN = 8  # files that a plan names
COST = ("seeds", "runs", "time")  # headings
LISTED = 4  # inconclusive comparisons that are named


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


def print_command_time(plan: Plan) -> None:
    """Print the time of the runs that are left, if finished ones show how long a run takes."""
    from attnlab.study.plan import finished_records
    from attnlab.tracking.attempts import final_metrics

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


def print_verdict_time(plan: Plan, pace: Pace) -> None:
    """Print the expected time to the verdicts of a study.

    Args:
        plan: The study.
        pace: The rate of training.
    """
    from attnlab.study.verdict_time import verdict_time

    if not plan.total:
        return
    try:
        time = verdict_time(plan, pace)
    except UserError:  # a plan needs no record, and the number of finished runs states the problem
        return
    if time.comparisons:
        _print_seeds(time)


def _print_seeds(time: VerdictTime) -> None:
    """Print the number of seeds that the verdicts take, as far as it is known, and the time of their runs."""
    if time.is_conclusive:
        print_text(f"Time to a verdict: none: {_of_comparisons(time.judged)} {'is' if time.judged == 1 else 'are'} conclusive.")
        return
    for group in time.groups:
        if group.spread is not None:
            _print_spread(group, time)
    if time.needed is not None:
        _print_time(time, time.needed)
    elif time.groups and all(group.spread and group.design for group in time.groups):
        print_text(f"Time to a verdict: out of reach: it takes more than {MAX_SEEDS:,} seeds.")
    else:
        _print_unknown(time)
    if time.open:
        _print_open(time)


def _print_time(time: VerdictTime, seeds: int) -> None:
    """Print the time of the runs with a number of seeds."""
    runs, more = time.runs(seeds), " more" if time.finished else ""
    conclusive = (
        f"; the inconclusive comparisons are then conclusive with a probability of {100 * POWER:.0f} % each"
        if any(comparison.is_predicted for comparison in time.open)
        else ""
    )
    print_text(
        f"Time to a verdict: {format_duration(time.pace.seconds(runs))}, for {len(runs):,}{more} "
        f"{'run' if len(runs) == 1 else 'runs'} with {count(seeds, 'seed')} per cell{conclusive}."
    )


def _of_comparisons(number: int) -> str:
    return "the comparison" if number == 1 else f"all {number} comparisons"


def _print_spread(group: Group, time: VerdictTime) -> None:
    """Print the estimate of the spread, and what the planned seeds achieve."""
    assert group.spread is not None
    label = f" of {group.label}" if group.label else ""
    of = f"standard deviation {group.spread.sd:.2g}, from {count(len(group.comparisons), 'comparison')}"
    print_text(f"Spread of the paired differences{label}: {of}.")
    rows = [[*_cost(time, seeds), f"{difference:.2g}"] for seeds, difference in time.settled(group)]
    if rows:
        print_text(
            f"  Differences that are found{label}, and within which cells without one are called equivalent, each with a "
            f"probability of {100 * POWER:.0f} %:"
        )
        print_table([*COST, "difference"], rows)
    probability = group.probability(time.planned)
    if group.design is None or probability is None or group.seeds is None or not time.rests_on_groups:
        return
    print_text(
        f"  {count(group.seeds, 'seed')} find a difference of ±{group.design.margin:.2g}, and call cells without one "
        f"equivalent, each with a probability of at least {100 * POWER:.0f} %; {count(time.planned, 'seed')} with "
        f"{100 * probability:.0f} %. Larger differences take fewer."
    )


def _print_unknown(time: VerdictTime) -> None:
    """Print the seeds and the time for several spreads, or why there is nothing to say."""
    reason = (
        "too few runs of this study are finished to estimate the spread of its paired differences"
        if time.finished
        else "no finished run of this study shows the spread of its paired differences"
    )
    print_text(f"Time to a verdict: unknown: {reason}.")
    for group in time.groups:
        if group.design is None or group.spread is not None:
            continue
        rows = [[*_cost(time, seeds), f"{sd:.2g}"] for seeds, sd in time.examples(group)]
        label = f" of {group.label}" if group.label else ""
        print_text(
            f"  To find a difference of ±{group.design.margin:.2g}{label}, and to call cells without one equivalent, each with "
            f"a probability of {100 * POWER:.0f} %, the standard deviation of paired differences may be at most:"
        )
        print_table([*COST, "standard deviation"], rows)


def _cost(time: VerdictTime, seeds: int) -> list[str]:
    """Return a number of seeds, the runs that are left with it, and their time."""
    runs = time.runs(seeds)
    return [str(seeds), str(len(runs)), format_duration(time.pace.seconds(runs))]


def _print_open(time: VerdictTime) -> None:
    """Print the inconclusive comparisons, each with the number of seeds that is conclusive."""
    named = [
        f"{comparison.name}{_predicted(comparison)}"
        for comparison in sorted(time.open, key=lambda comparison: comparison.seeds or MAX_SEEDS)
    ]
    rest = [f"{len(named) - LISTED} more"] if len(named) > LISTED else []
    conclusive = time.judged - len(time.open)
    print_text(f"Verdicts so far: {conclusive} of {time.comparisons}. Inconclusive: {', '.join(named[:LISTED] + rest)}.")


def _predicted(comparison: Open) -> str:
    if not comparison.is_predicted:
        return ""
    return f" ({count(comparison.seeds, 'seed')})" if comparison.seeds else f" (more than {MAX_SEEDS:,} seeds)"
