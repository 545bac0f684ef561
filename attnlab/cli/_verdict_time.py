"""The part of `attnlab plan` on the time to the verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab._util.text import count
from attnlab.cli._printing import format_duration, print_table, print_text
from attnlab.errors import UserError
from attnlab.stats.predict import MAX_SEEDS, POWER

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.study.verdict_time import Group, Open, Pace, VerdictTime

COST = ("seeds", "runs", "time")  # headings
LISTED = 4  # inconclusive comparisons that are named


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
