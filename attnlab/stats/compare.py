"""From runs to the rows of a table: one row a cell, over its seeds, against its baseline.

Both the table that ends `attnlab run` and the report are made of these rows, so they cannot disagree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

from attnlab._util import cost_metrics
from attnlab.config.grid import cell_name
from attnlab.stats import paired
from attnlab.stats.sequential import Looks

BASELINE = "baseline"  # the verdict of a cell that others are compared with
LOST = ("diverged", "out_of_memory", "failed", "timed_out")  # states of a seed that make a pair of it impossible


@dataclass(frozen=True)
class Question:
    """What a study asks: of which metric, in which direction, against which baseline, with which margin, how often.

    `direction` is "min" or "max". `baseline` maps some of the axes to values: the baseline of a cell is the
    cell whose other axes are its own. `axes` are the names of the grid's axes, in order. `looks` are those of a
    study whose seeds were added until its verdicts were settled.
    """

    study: str
    axes: tuple[str, ...]
    metric: str
    direction: str
    baseline: Mapping[str, Any] = field(default_factory=dict)
    margin: float | None = None
    looks: Looks | None = None


@dataclass(frozen=True)
class Row:
    """One cell: its values by seed, what they come to, and what became of its runs.

    `value` is None where no run completed. `baseline` is the name of the baseline cell, "" where there is
    none; `verdict` is "baseline" for a cell that is one. `states` counts runs by state; `reasons` say why some did not
    complete. `ranges` are the lowest and the highest of each measured cost, where there are two seeds of it.
    """

    name: str
    axes: Mapping[str, str]
    values: Mapping[int, float]
    value: paired.Interval | None
    costs: Mapping[str, paired.Interval]
    states: Mapping[str, int]
    reasons: tuple[str, ...] = ()
    baseline: str = ""
    difference: paired.Difference | None = None
    verdict: str = ""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """It has a baseline, pairs of seeds or hopes of some, and no verdict yet."""
        return bool(self.baseline) and self.difference is not None and not self.difference.finding

    @property
    def outcome(self) -> str:
        """States in words: "completed" where all did, else "2 completed, 1 diverged"."""
        if len(self.states) == 1:
            return next(iter(self.states))
        return ", ".join(f"{count} {state}" for state, count in self.states.items())


def rows(runs: Iterable[Mapping[str, Any]], question: Question) -> list[Row]:
    """Group runs by cell, in the order in which cells first appear, and compare each with its baseline.

    Args:
        runs: one mapping a run, with `state`, `reason`, `seed`, the axes and the summary metrics.
        question: what to compare.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault(cell_of(run, question), []).append(run)
    return _compared([_row(name, group, question) for name, group in groups.items()], question)


def cell_of(run: Mapping[str, Any], question: Question) -> str:
    """Return the name of a run's cell: as it was recorded, else made from its axes."""
    return str(run.get("cell") or cell_name({axis: plain(run.get(axis)) for axis in question.axes}))


def _row(name: str, runs: Sequence[Mapping[str, Any]], question: Question) -> Row:
    done = [run for run in runs if run["state"] == "completed" and _number(run.get(question.metric)) is not None]
    values = {int(run["seed"]): float(run[question.metric]) for run in done}
    costs, ranges = {}, {}
    for metric in cost_metrics.COST_METRICS:
        seen = [number for run in done if (number := _number(run.get(metric.name))) is not None]
        if seen:
            costs[metric.name] = paired.interval(seen)
        if metric.measured and len(seen) > 1:
            ranges[metric.name] = (min(seen), max(seen))
    reasons = dict.fromkeys(_reason(run, question) for run in runs if _state(run, question) != "completed")
    return Row(
        name=name,
        axes={axis: plain(runs[0].get(axis)) for axis in question.axes},
        values=values,
        value=paired.interval(list(values.values()), looks=question.looks) if values else None,
        costs=costs,
        states=Counter(_state(run, question) for run in runs),
        reasons=tuple(reason for reason in reasons if reason),
        ranges=ranges,
    )


def _state(run: Mapping[str, Any], question: Question) -> str:
    """A run's state; one that came to an infinite value has diverged, though its training ended."""
    return "diverged" if _is_infinite(run.get(question.metric)) else str(run["state"])


def _reason(run: Mapping[str, Any], question: Question) -> str:
    value = run.get(question.metric)
    return f"{question.metric} is {value:g}" if _is_infinite(value) else str(run.get("reason") or "")


def _compared(cells: list[Row], question: Question) -> list[Row]:
    """Fill in baselines, differences (corrected over the whole table) and verdicts."""
    if not question.baseline:
        return cells
    by_axes = {tuple(row.axes.values()): row for row in cells}
    found: list[Row] = []
    for row in cells:
        at = tuple(plain(question.baseline.get(axis, row.axes[axis])) for axis in question.axes)
        other = by_axes.get(at)
        if other is row:
            found.append(replace(row, verdict=BASELINE))
            continue
        if other is None or row.value is None:
            found.append(row if other else replace(row, verdict="its baseline is not in the table"))
            continue
        difference = paired.difference(row.values, other.values, margin=question.margin, looks=question.looks)
        found.append(replace(row, baseline=other.name, difference=difference))
    corrected = paired.correct([row.difference for row in found])
    by_name = {row.name: row for row in cells}
    return [
        replace(row, difference=difference, verdict=_verdict(row, difference, by_name[row.baseline], question))
        if row.baseline
        else row
        for row, difference in zip(found, corrected, strict=True)
    ]


def _verdict(row: Row, difference: paired.Difference | None, baseline: Row, question: Question) -> str:
    """The verdict of the pairs that completed, never without those that did not: what diverged may have been the worst."""
    if baseline.value is None:
        return f"its baseline has no {question.metric}: {baseline.outcome}"
    lost = [f"{count} {state}" for state, count in row.states.items() if state in LOST]
    lost += [f"{count} of its baseline {state}" for state, count in baseline.states.items() if state in LOST]
    said = paired.verdict(difference, direction=question.direction)
    if difference is not None and not difference.finding and (alone := len(row.values) - difference.interval.n):
        said += f"; the baseline lacks {alone} of its {len(row.values)} seeds"
    return f"{said}{' where both completed' if difference else ''} ({', '.join(lost)})" if lost else said


def plain(value: Any) -> str:
    """Make axis values comparable: MLflow hands params back as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: Any) -> float | None:
    """Return a float, or None for what is absent (a table of runs pads with NaN) or infinite: no mean has it."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value) if math.isfinite(value) else None


def _is_infinite(value: Any) -> bool:
    return isinstance(value, Real) and math.isinf(value)


def fixed(value: float, digits: int = 4) -> str:
    """Format a metric, so that the figures of a column end at the same place; a tiny one keeps its size."""
    return f"{value:.1e}" if value and abs(value) < 0.5 * 10**-digits else f"{value:.{digits}f}"


def plus_minus(value: paired.Interval | None, *, sign: bool = False) -> str:
    """Write "2.1130 ± 0.0200", or the mean alone where there is no interval, or "" for None."""
    if value is None:
        return ""
    mean = ("+" if sign and value.mean > 0 else "") + fixed(value.mean)
    return mean if value.half is None else f"{mean} ± {fixed(value.half)}"


def gap(row: Row) -> str:
    """Write a row's difference: "+0.0100 ± 0.0020", with " (3 of 8 seeds)" where not all of its seeds have a pair."""
    if row.difference is None:
        return ""
    seen, n = row.difference.interval, len(row.values)
    return plus_minus(seen, sign=True) + (f" ({seen.n} of {n} seeds)" if seen.n < n else "")


def p_value(p: float | None, *, equals: bool = False) -> str:
    """Write a p-value: "0.004", "< 0.001", "" for None; with `equals` "= 0.004"."""
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{'= ' if equals else ''}{p:.3f}"
