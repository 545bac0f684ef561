"""What the search of each cell came to: its trials, the best of them, and whether the space was wide enough."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab.config.paths import check_value
from attnlab.config.search import written
from attnlab.errors import UserError
from attnlab.stats.compare import Question, cell_of

if TYPE_CHECKING:
    from attnlab.config.search import Dimension, SearchConfig


NOT_CONFIRMED = "not confirmed"  # the state of a cell that was searched, and of which no run is reported


EDGE = 0.05  # of a dimension, on the scale it is sampled on


Record = Mapping[str, Any]


@dataclass(frozen=True)
class Searched:
    """The search of one cell.

    `states` counts trials by state. `value` is the best of the completed ones on `valid`, `trial` its number and
    `params` what it chose (None and empty where none completed). `edges` are sentences on chosen values that lie at
    an end of their range.
    """

    cell: str
    states: Mapping[str, int]
    value: float | None = None
    trial: int | None = None
    params: Mapping[str, Any] | None = None
    edges: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """ "18 completed, 5 pruned, 1 failed"."""
        first = ("completed", "pruned", "failed")
        order = [*first, *(state for state in self.states if state not in first)]
        return ", ".join(f"{self.states[state]} {state}" for state in order if self.states.get(state))


def reported(records: Sequence[Record]) -> list[Record]:
    """The runs that are compared: all but those of a search."""
    return [record for record in records if record.get("phase") != "search"]


def searched(records: Sequence[Record], question: Question, search: SearchConfig) -> list[Searched]:
    """A summary for each cell that was searched, in the order in which cells first appear."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.get("phase") == "search":
            groups.setdefault(cell_of(record, question), []).append(record)
    return [_searched(cell, trials, question, search) for cell, trials in groups.items()]


def _searched(cell: str, trials: Sequence[Record], question: Question, search: SearchConfig) -> Searched:
    states = Counter(str(trial["state"]) for trial in trials)
    name = f"valid_{question.metric}"
    done = [trial for trial in trials if trial["state"] == "completed" and math.isfinite(trial.get(name, math.nan))]
    if not done:
        return Searched(cell, states)
    sign = 1 if question.direction == "min" else -1
    best = min(done, key=lambda trial: (sign * trial[name], trial["trial"]))
    edges = tuple(_edges(best["params"], search))
    return Searched(cell, states, best[name], int(best["trial"]), best["params"], edges)


def unconfirmed(records: Sequence[Record], question: Question, found: Sequence[Searched]) -> list[Record]:
    """A stand-in for each cell that was searched and has no run to report: it stands in the table, too."""
    there = {cell_of(record, question) for record in reported(records)}
    stand_ins: list[Record] = []
    for each in found:
        if each.cell not in there:
            first = next(record for record in records if cell_of(record, question) == each.cell)
            why = f"no trial of its search completed: {each.outcome}"
            reason = why if each.value is None else "what its search chose has not been trained anew yet"
            axes = {axis: first.get(axis) for axis in question.axes}
            stand_ins.append({**axes, "cell": each.cell, "seed": first["seed"], "state": NOT_CONFIRMED, "reason": reason})
    return stand_ins


def _edges(params: Mapping[str, Any], search: SearchConfig) -> Iterator[str]:
    for path, value in params.items():
        dimension = search.space.get(path)
        if dimension is None or dimension.low is None or dimension.high is None:
            continue
        scale, back = (math.log, math.exp) if dimension.log else (float, float)
        low, high = scale(dimension.low), scale(dimension.high)
        at = (scale(value) - low) / (high - low)
        for end, near, beyond in (
            ("low", at <= EDGE, back(low - EDGE * (high - low))),
            ("high", at >= 1 - EDGE, back(high + EDGE * (high - low))),
        ):
            if near and _is_possible(path, beyond, dimension):
                space = f"the {end} end of its space ({dimension.label})"
                yield f"{path} {shown(value)} lies at {space}: widen it, and search again"


def _is_possible(path: str, beyond: float, dimension: Dimension) -> bool:
    """Whether the field takes a value beyond an end of its range: there is no dropout below 0."""
    rounded = math.floor if dimension.low is not None and beyond < dimension.low else math.ceil
    try:
        check_value(path, rounded(beyond) if dimension.whole else beyond, where=lambda loc, key=False: "")
    except UserError:
        return False
    return True


def shown(value: Any) -> str:
    """A chosen value, as short as it can be told apart from its neighbours."""
    return f"{value:.4g}" if isinstance(value, float) else written(value)
