"""The rows, columns and order of a study's runs, as given to `attnlab runs`.

The columns are the same as in `attnlab.load_runs`; the last part of a dotted name is enough if no other column has it (`lr`).
"""

from __future__ import annotations

import sys
from typing import Any

from attnlab._util.cost_metrics import PROGRAM_COSTS, shown_in
from attnlab._util.metrics import GENERATED_SCORES
from attnlab.config.checks import COLUMNS
from attnlab.config.types import text
from attnlab.errors import UserError, nearest, one_line

Frame = Series = Any  # pandas' own types do not define the type of an indexing result
ALL = "all"
SCORES = ("bits_per_byte", "bits_per_token", "accuracy", *GENERATED_SCORES)


def select(frame: Frame, *, where: str = "", columns: str = "", sort: str = "") -> Frame:
    """Return the rows and columns to print.

    Args:
        where: an expression of `pandas.DataFrame.query`, for example ``variant == 'no_wo' and seed > 0``.
        columns: comma-separated names, or `all`; default: identity, state, scores and speed.
        sort: a column, with `-` in front of it for descending order; runs without a value come last.

    Raises:
        UserError: an unknown column, or an expression that pandas cannot evaluate.
    """
    names = _columns(frame, columns)
    if where:
        frame = _query(frame, where)
    if sort:
        name = _column(frame, sort.removeprefix("-"), place=f"--sort {sort}")
        frame = frame.sort_values(name, ascending=not sort.startswith("-"), key=_sortable, kind="stable")
    return frame[names]


def _query(frame: Frame, where: str) -> Frame:
    """Return the rows that meet a condition; with none, print a note."""
    short = {name.rpartition(".")[2]: frame[name] for name in _unique_ends(frame)}
    try:
        selected = frame[
            frame.eval(where, resolvers=[short, dict(frame.items())], engine="python").astype("boolean").fillna(False)
        ]
    except Exception as error:  # pandas raises errors of many types
        example = "variant == 'no_wo' and seed > 0"
        raise UserError(f"expected an expression such as {example!r}: {error}", f"--where {where}") from None
    if selected.empty:
        print("attnlab: no run meets the condition", file=sys.stderr)
    return selected


def _unique_ends(frame: Frame) -> list[str]:
    """Return the columns that their last part names."""
    ends = [str(column).rpartition(".")[2] for column in frame.columns]
    return [str(column) for column, end in zip(frame.columns, ends, strict=True) if ends.count(end) == 1]


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
    if name in frame:
        return name
    short = {column.rpartition(".")[2]: column for column in _unique_ends(frame)}
    if name not in short:
        hint = nearest(name, [*map(str, frame.columns), *short])
        raise UserError(f"unknown column {name!r}{hint}; --columns {ALL} shows every column", place)
    return short[name]


def _sortable(column: Series) -> Series:
    """Return numbers and times unchanged, everything else as text."""
    return column.map(text, na_action="ignore") if column.dtype == object else column


def format_column(column: Series) -> list[str]:
    """Return the cells of a column as text.

    If all numbers are integers, they are shown as such; else they have four decimals, or four significant digits below 0.01.
    """
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not is_numeric_dtype(column) or is_bool_dtype(column):
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
