"""A study's runs on the command line: which of them, which columns, in which order, as a table, CSV or JSON.

The columns are those of ``attnlab.load_runs``; of a dotted one its last part will do where no other ends alike (``lr``).
"""

from __future__ import annotations

import json
import operator
import re
import sys
from collections.abc import Sequence
from typing import Any

from attnlab._util.cost_metrics import shown_in
from attnlab.cli.printing import show
from attnlab.config.axes import text
from attnlab.errors import UserError, nearest, one_line

Frame = Series = Any  # of pandas, whose own types leave open what an index returns
ALL = "all"
SCORES = ("bits_per_byte", "accuracy")
SHOWN = 12  # values of a column that a message names
OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CONDITION = re.compile(r"\s*([^=!<>]+?)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*")  # the first operator is meant: a value may hold more


def print_studies() -> None:
    """Print the names of the studies there are."""
    from attnlab.tracking import client as track

    client = track.connect(track.runs_folder())
    names = [each.name for each in client.search_experiments() if each.name != "Default"]
    print("\n".join(sorted(names)) or "no studies yet")


def print_runs(study: str, *, where: Sequence[str] = (), columns: str = "", sort: str = "", form: str = "table") -> None:
    """Print the runs of a study that every condition holds for.

    Args:
        where: ``variant=no_wo,dense``, ``accuracy>=0.85``, ``trial!=`` (has one): a column, an operator, a value. Of a value
            that no run has standard error tells, with those that there are.
        columns: names with commas between, or ``all``; default: what tells runs apart, how they ended, scores and speed.
        sort: a column, with ``-`` in front of it from the largest down; runs that lack it come last.
        form: ``table``, ``csv`` or ``json``. Only a table on a terminal is fitted to its width.

    Raises:
        UserError: no such study or column, or a value that cannot be compared with the column's.
    """
    from attnlab.tracking.runs import load_runs

    frame = load_runs(study)
    if frame.empty:
        raise UserError(f"the study {study!r} has no runs yet")
    frame = _chosen(frame, where=where, columns=columns, sort=sort)
    if form == "csv":
        frame.map(lambda value: json.dumps(value) if isinstance(value, dict | list) else value).to_csv(sys.stdout, index=False)
    elif form == "json":
        records = frame.to_dict("records")
        print(json.dumps([{name: _plain(value) for name, value in record.items()} for record in records], indent=1))
    else:
        _print_table(frame, chosen=bool(columns))


def _chosen(frame: Frame, *, where: Sequence[str], columns: str, sort: str) -> Frame:
    """What is to be printed of all runs."""
    shown = _columns(frame, columns)
    conditions = [_holds(frame, condition) for condition in where]  # each of all runs: what is said of one depends on no other
    for holds in conditions:
        frame = frame[holds.loc[frame.index]]
    if frame.empty and all(holds.any() for holds in conditions):
        _note("no run fits all of the conditions")
    if sort:
        name = _column(frame, sort.removeprefix("-"), place=f"--sort {sort}")
        frame = frame.sort_values(name, ascending=not sort.startswith("-"), key=_ordered, kind="stable")
    return frame[shown]


def _columns(frame: Frame, words: str) -> list[str]:
    """The columns that ``--columns`` names, or the default ones."""
    if words == ALL:
        return list(frame.columns)
    if words:
        return [_column(frame, word.strip(), place=f"--columns {words}") for word in words.split(",")]
    searched = set(frame["phase"]) != {"grid"}
    valid = [f"valid_{name}" for name in SCORES] if searched else []  # all that a trial has
    names = ["run_id", "name", *(["phase"] if searched else []), "state", *SCORES, *valid]
    costs = [metric.name for metric in shown_in("run list")]
    return [name for name in (*names, *costs, "reason") if name in frame]


def _column(frame: Frame, name: str, *, place: str) -> str:
    """The column of that name, or the only one that ends in it."""
    known = [str(column) for column in frame.columns]
    ends = [column for column in known if column.rpartition(".")[2] == name]
    if name in known or len(ends) == 1:
        return name if name in known else ends[0]
    if ends:
        raise UserError(f"expected one of {', '.join(ends)}, got {name!r}", place)
    near = nearest(name, [*known, *(column.rpartition(".")[2] for column in known)])
    raise UserError(f"unknown column {name!r}{near}; --columns {ALL} shows every one", place)


def _holds(frame: Frame, condition: str) -> Series:
    """For which runs a condition holds. What is missing equals nothing but the empty text, and is in no order."""
    place = f"--where {condition}"
    parts = CONDITION.fullmatch(condition)
    if parts is None:
        raise UserError("expected COLUMN=VALUE, or another of != < <= > >= between them", place)
    name, sign, value = parts.groups()
    column = frame[_column(frame, name, place=place)]
    given = column.notna() & (column.map(str) != "")
    if sign in ("=", "==", "!=") and value == "":
        return given if sign == "!=" else ~given
    if sign not in ("=", "==", "!="):
        found = OPERATORS[sign](_ordered(column), _other(column, value, place=place)) & given
        if not found.any():
            _note(f"no run has {name} {sign} {value}")
        return found
    same = given & False
    for wanted in _alternatives(column, value):
        found = (_ordered(column) == _other(column, wanted, place=place)) & given
        if not found.any():
            _note(f"no run has {name} {wanted!r}{_known(column[given], wanted)}")
        same |= found
    return ~same if sign == "!=" else same


def _alternatives(column: Series, value: str) -> list[str]:
    """What is asked for by ``A,B``; a text that some run has as it stands is one value, whatever commas are in it."""
    if not _is_numeric(column) and (_ordered(column) == value).any():
        return [value]
    return [part.strip() for part in value.split(",")]


def _known(column: Series, wanted: str) -> str:
    """The value meant perhaps, and all that there are if they are few."""
    cells = _figures(column) if _is_numeric(column) else map(_word, column)
    known = list(dict.fromkeys(cells))
    return nearest(wanted, known) + (f"; there are {', '.join(known)}" if 0 < len(known) <= SHOWN else "")


def _note(text: str) -> None:
    print(f"attnlab: {text}", file=sys.stderr)


def _other(column: Series, value: str, *, place: str) -> Any:
    """What is asked for, in the column's own type."""
    import pandas

    kind = str(column.name)
    if isinstance(column.dtype, pandas.DatetimeTZDtype):
        try:
            return pandas.to_datetime(value, utc=True)
        except ValueError:
            raise UserError(f"{kind}: expected a time such as 2026-01-31T12:00, got {value!r}", place) from None
    if not _is_numeric(column):
        return value
    try:
        return float(value)
    except ValueError:
        raise UserError(f"{kind}: expected a number, got {value!r}", place) from None


def _ordered(column: Series) -> Series:
    """The column as it is compared and sorted: numbers and times as such, everything else by its text."""
    import pandas

    if _is_numeric(column) or isinstance(column.dtype, pandas.DatetimeTZDtype):
        return column
    return column.map(text, na_action="ignore").astype(object)


def _is_numeric(column: Series) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return is_numeric_dtype(column) and not is_bool_dtype(column)


def _print_table(frame: Frame, *, chosen: bool) -> None:
    if not chosen and sys.stdout.isatty():
        frame = frame.assign(run_id=frame["run_id"].str[:8])  # as much as `attnlab generate` needs
    cells = [_figures(frame[name]) if _is_numeric(frame[name]) else [_word(v) for v in frame[name]] for name in frame]
    show(list(map(str, frame.columns)), list(zip(*cells, strict=True)), every=chosen or frame.empty)


def _figures(column: Series) -> list[str]:
    """Numbers of a column: whole where all are, else with four digits behind the point or four that count."""
    whole = all(float(value).is_integer() for value in column.dropna())

    def shown(value: float) -> str:
        return f"{value:.0f}" if whole or abs(value) >= 1_000 else f"{value:.4f}" if abs(value) >= 0.01 else f"{value:.4g}"

    return ["" if value != value else shown(value) for value in column]


def _word(value: Any) -> str:
    value = _plain(value)
    return "" if value is None else one_line(text(value))


def _plain(value: Any) -> Any:
    """What JSON can say: a time as text, what is missing as null."""
    if isinstance(value, dict | list):
        return value
    return None if value is None or value != value else value.isoformat() if hasattr(value, "isoformat") else value
