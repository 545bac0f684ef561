"""A study's scores at lengths that its models were not trained on: one line a cell over length, and a table.

The scores are the summary metrics ``bits_per_byte_at/512`` of the runs, the reasons for those that there cannot be the
columns ``length.512`` of ``attnlab.load_runs``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnlab._util.metrics import at_length, length_of
from attnlab.config.grid import cell_name
from attnlab.report.plots import svg
from attnlab.report.plots.by_length import Reach, by_length
from attnlab.report.plots.curves import DASHES
from attnlab.report.table import Column, Line, Table
from attnlab.stats import paired
from attnlab.stats.compare import Question, Row, cell_of, plus_minus

TITLE = "At other lengths"
REASON = "length."  # how the columns begin that say why there is no score
CROWD = 9  # cells in one plot; above that, one plot for each value of the axes other than the variant


@dataclass(frozen=True)
class Lengths:
    """The section: plots as (file, title, SVG), the table below them, and what a reader must know."""

    title: str
    plots: Sequence[tuple[str, str, str]]
    table: Table
    notes: Sequence[str]


def lengths_section(
    table: Sequence[Row], records: Iterable[Mapping[str, Any]], *, question: Question, colors: Mapping[str, str]
) -> Lengths | None:
    """The section on `evaluate.lengths`; None where no run was evaluated at another length.

    Args:
        table: the cells, in the report's order.
        records: the runs that are reported, as `attnlab.load_runs` has them.
        question: which metric, in which direction.
        colors: cell -> colour.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {row.name: [] for row in table}
    for record in records:
        if record["state"] == "completed":
            groups[cell_of(record, question)].append(record)
    kinds = {row.name: cell_name({axis: v for axis, v in row.axes.items() if axis != "variant"}) for row in table}
    order = list(dict.fromkeys(kinds.values()))
    dashes = {kind: DASHES[i % len(DASHES)] for i, kind in enumerate(order)} if len(set(colors.values())) < len(table) else {}
    found = [_reach(n, g, question, color=colors[n], dash=dashes.get(kinds[n], "")) for n, g in groups.items() if g]
    if not any(reach.values.keys() - {reach.trained} or reach.reasons for reach in found):
        return None
    shown = [reach for reach in found if reach.values]
    faceted = len(shown) > CROWD and 1 < len(order) < len(table)
    panels = {kind: [reach for reach in shown if kinds[reach.name] == kind] for kind in order} if faceted else {"": shown}
    return Lengths(TITLE, _plots(panels, question), _table(found, question), list(_notes(found, question)))


def _reach(name: str, runs: Sequence[Mapping[str, Any]], question: Question, *, color: str, dash: str) -> Reach:
    """A cell from its completed runs."""
    values: dict[int, list[float]] = {}
    reasons: dict[int, str] = {}
    trained = next((int(run["length"]) for run in runs if _given(run.get("length"))), None)
    for run in runs:
        given = {key: value for key, value in run.items() if _given(value)}
        scores = {n: v for key, v in given.items() if (n := length_of(key)) and key == at_length(question.metric, n)}
        if trained is not None and question.metric in given:
            scores[trained] = given[question.metric]
        for length, score in scores.items():
            if not math.isfinite(score):
                reasons[length] = f"{question.metric} is {score:g}"
                continue
            values.setdefault(length, []).append(float(score))
        reasons |= {int(key.removeprefix(REASON)): str(said) for key, said in given.items() if key.startswith(REASON)}
    return Reach(name, color, dash, trained, dict(sorted(values.items())), dict(sorted(reasons.items())), len(runs))


def _given(value: Any) -> bool:
    return value is not None and value == value


def _plots(panels: Mapping[str, Sequence[Reach]], question: Question) -> list[tuple[str, str, str]]:
    """A plot for each panel that has cells, on one vertical scale."""
    every = [value for lines in panels.values() for reach in lines for values in reach.values.values() for value in values]
    better = "lower is better" if question.direction == "min" else "higher is better"
    note = f"test split; {better}; ringed: trained; band: all seeds"
    found = []
    for i, (kind, lines) in enumerate(panels.items()):
        if lines:
            title = f"{question.metric} by length{f', {kind}' if kind else ''}"
            file = f"lengths{f'-{i}' if len(panels) > 1 else ''}.svg"
            found.append((file, title, by_length(lines, title=title, note=note, span=svg.padded(every))))
    return found


def _table(found: Sequence[Reach], question: Question) -> Table:
    """A line a cell: the trained length, and mean and interval at each; "cannot" where no seed has a score, with a reason."""
    lengths = sorted({length for reach in found for length in (*reach.values, *reach.reasons)})
    columns = [Column("cell", words=True), Column("trained at"), *(Column(f"at {n}") for n in lengths)]
    lines = []
    for reach in found:
        cells = [_score(reach, n, question) or ("cannot" if n in reach.reasons else "") for n in lengths]
        lines.append(Line([reach.name, str(reach.trained or ""), *cells], reach.color))
    return Table(columns, lines)


def _score(reach: Reach, length: int, question: Question) -> str:
    """ "2.5000 ± 0.0100", of how many seeds where some have no score, or "" where none has one."""
    if length not in reach.values:
        return ""
    share = reach.share(length)
    score = plus_minus(paired.interval(list(reach.values[length]), looks=question.looks))
    return f"{score} ({share})" if share else score


def _notes(found: Sequence[Reach], question: Question) -> Iterable[str]:
    items = "bytes" if question.metric == "bits_per_byte" else "texts, cut off there,"
    yield (
        f"{question.metric} on the test split. Each model is tested as it is, with its own memory, at lengths that it "
        f"was not trained on. The same {items} are scored at every length. ± is half of the 95 % interval over seeds"
        f"{', corrected for the looks' if question.looks else ''}."
    )
    cells: dict[tuple[str, str, str], list[str]] = {}
    for reach in found:
        by_reason: dict[tuple[str, str], list[int]] = {}
        for length, reason in reach.reasons.items():
            by_reason.setdefault((reach.share(length), reason), []).append(length)
        for (share, reason), lengths in by_reason.items():
            cells.setdefault((", ".join(map(str, lengths)), share, reason), []).append(reach.name)
    for (lengths, share, reason), names in cells.items():
        what = f"Only {share} seeds could be tested at" if share else "Cannot be tested at"
        yield f"{what} {lengths}: {', '.join(names)} ({reason})."
