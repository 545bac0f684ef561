"""Conditions, columns and order of a study's runs, as given to `attnlab runs`.

The columns are the same as in `attnlab.load_runs`; the last part of a dotted name is enough if no other column has it (`lr`).
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Sequence
from typing import Any

from attnlab._util.cost_metrics import PROGRAM_COSTS, shown_in
from attnlab._util.metrics import GENERATED_SCORES
from attnlab.config.axes import text
from attnlab.config.command import COLUMNS
from attnlab.errors import UserError, nearest, one_line

Frame = Series = Any  # pandas' own types do not define the type of an indexing result
ALL = "all"
SCORES = ("bits_per_byte", "bits_per_token", "accuracy", *GENERATED_SCORES)
MAX_LISTED = 12  # values of a column that a message lists
OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# A condition is split at its first operator: a value may contain others.
CONDITION = re.compile(r"\s*([^=!<>]+?)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*")


def select(frame: Frame, *, where: Sequence[str] = (), columns: str = "", sort: str = "") -> Frame:
    """Return the rows and columns to print.

    Args:
        where: `variant=no_wo,dense`, `accuracy>=0.85`, `trial!=` (has a value): a column, an operator, a value. A value that
            no run has is reported on standard error, with the known values.
        columns: comma-separated names, or `all`; default: identity, state, scores and speed.
        sort: a column, with `-` in front of it for descending order; runs without a value come last.

    Raises:
        UserError: an unknown column, or a value that cannot be compared with the column's.
    """
    names = _columns(frame, columns)
    masks = [_mask(frame, condition) for condition in where]  # each over all runs, so that its note ignores the others
    for mask in masks:
        frame = frame[mask.loc[frame.index]]
    if frame.empty and all(mask.any() for mask in masks):
        _note("no run meets all of the conditions")
    if sort:
        name = _column(frame, sort.removeprefix("-"), place=f"--sort {sort}")
        frame = frame.sort_values(name, ascending=not sort.startswith("-"), key=_comparable, kind="stable")
    return frame[names]


def _columns(frame: Frame, columns: str) -> list[str]:
    """Return the columns that `--columns` names, or the default ones."""
    if columns == ALL:
        return list(frame.columns)
    if columns:
        return [_column(frame, name.strip(), place=f"--columns {columns}") for name in columns.split(",")]
    if "command" in frame:  # axes and results, which the study named
        results = [name for name in map(str, frame.columns) if name not in COLUMNS and "." not in name]
        named = [name for name in results if name not in ("run_id", "seed", "params", *PROGRAM_COSTS)]
        return [name for name in ("run_id", "name", "state", *named, *PROGRAM_COSTS, "reason") if name in frame]
    searched = set(frame["phase"]) != {"grid"}
    valid = [f"valid_{name}" for name in SCORES] if searched else []  # the only scores of a trial
    names = ["run_id", "name", *(["phase"] if searched else []), "state", *SCORES, *valid]
    costs = [metric.name for metric in shown_in("run list")]
    return [name for name in (*names, *costs, "reason") if name in frame]


def _column(frame: Frame, name: str, *, place: str) -> str:
    """Return the column of that name, or the only column with that name as its last part."""
    known = [str(column) for column in frame.columns]
    matches = [column for column in known if column.rpartition(".")[2] == name]
    if name in known or len(matches) == 1:
        return name if name in known else matches[0]
    if matches:
        raise UserError(f"expected one of {', '.join(matches)}, got {name!r}", place)
    hint = nearest(name, [*known, *(column.rpartition(".")[2] for column in known)])
    raise UserError(f"unknown column {name!r}{hint}; --columns {ALL} shows every column", place)


def _mask(frame: Frame, condition: str) -> Series:
    """Return the runs that meet a condition. A missing value equals only the empty text, and has no order."""
    place = f"--where {condition}"
    parts = CONDITION.fullmatch(condition)
    if parts is None:
        raise UserError("expected COLUMN=VALUE, or != < <= > >= instead of =", place)
    name, sign, value = parts.groups()
    column = frame[_column(frame, name, place=place)]
    present = column.notna() & (column.map(str) != "")
    if sign in ("=", "==", "!=") and value == "":
        return present if sign == "!=" else ~present
    if sign not in ("=", "==", "!="):
        mask = OPERATORS[sign](_comparable(column), _operand(column, value, place=place)) & present
        if not mask.any():
            _note(f"no run has {name} {sign} {value}")
        return mask
    equal = present & False
    for alternative in _alternatives(column, value):
        mask = (_comparable(column) == _operand(column, alternative, place=place)) & present
        if not mask.any():
            _note(f"no run has {name} {alternative!r}{_known_values(column[present], alternative)}")
        equal |= mask
    return ~equal if sign == "!=" else equal


def _alternatives(column: Series, value: str) -> list[str]:
    """Return the values of `A,B`; a text that equals a run's value is one value, even with commas in it."""
    if not _is_numeric(column) and (_comparable(column) == value).any():
        return [value]
    return [part.strip() for part in value.split(",")]


def _known_values(column: Series, value: str) -> str:
    """Return the nearest known value, and all of them if they are few."""
    known = list(dict.fromkeys(format_column(column)))
    return nearest(value, known) + (f"; known values: {', '.join(known)}" if 0 < len(known) <= MAX_LISTED else "")


def _note(text: str) -> None:
    print(f"attnlab: {text}", file=sys.stderr)


def _operand(column: Series, value: str, *, place: str) -> Any:
    """Return the value of a condition in the column's type."""
    import pandas

    if isinstance(column.dtype, pandas.DatetimeTZDtype):
        try:
            return pandas.to_datetime(value, utc=True)
        except ValueError:
            raise UserError(f"{column.name}: expected a time such as 2026-01-31T12:00, got {value!r}", place) from None
    if not _is_numeric(column):
        return value
    try:
        return float(value)
    except ValueError:
        raise UserError(f"{column.name}: expected a number, got {value!r}", place) from None


def _comparable(column: Series) -> Series:
    """Return the column for comparing and sorting: numbers and times unchanged, everything else as text."""
    import pandas

    if _is_numeric(column) or isinstance(column.dtype, pandas.DatetimeTZDtype):
        return column
    return column.map(text, na_action="ignore").astype(object)


def _is_numeric(column: Series) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return is_numeric_dtype(column) and not is_bool_dtype(column)


def format_column(column: Series) -> list[str]:
    """Return the cells of a column as text.

    If all numbers are integers, they are shown as such; else they have four decimals, or four significant digits below 0.01.
    """
    if not _is_numeric(column):
        return [_one_line(value) for value in column]
    integers = all(float(value).is_integer() for value in column.dropna())

    def formatted(value: float) -> str:
        return f"{value:.0f}" if integers or abs(value) >= 1_000 else f"{value:.4f}" if abs(value) >= 0.01 else f"{value:.4g}"

    return ["" if value != value else formatted(value) for value in column]


def _one_line(value: Any) -> str:
    value = plain(value)
    return "" if value is None else one_line(text(value))


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: a time as text, a missing value as None."""
    if isinstance(value, dict | list):
        return value
    return None if value is None or value != value else value.isoformat() if hasattr(value, "isoformat") else value
