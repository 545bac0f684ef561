"""Ratios of timings: each case against the attnlab case that was measured next to it, in each round."""

from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

import pandas as pd

from benchmarks.speed.case import OURS

ALIKE = ["device", "part", "precision", "settings"]  # equal for cases that are compared


def on(frame: pd.DataFrame, **equal: str) -> pd.DataFrame:
    """Return the rows with these values in these columns."""
    rows: Any = frame
    for column, value in equal.items():
        rows = rows[rows[column] == value]
    return rows


def groups(frame: pd.DataFrame, *columns: str) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    """Yield the values of these columns and the rows that have them, in the order of measurement."""
    grouped: Any = frame.groupby(list(columns), sort=False)
    yield from grouped


def medians(frame: pd.DataFrame, quantity: str = "ms") -> pd.DataFrame:
    """Return one row per case and round: the median ``value`` of a quantity over its steps."""
    grouped: Any = on(frame, quantity=quantity).groupby([*ALIKE, "name", "round"], sort=False, as_index=False)["value"]
    return grouped.median()


def against(frame: pd.DataFrame, *, base: str = OURS, quantity: str = "ms") -> pd.DataFrame:
    """Return one row per case and round: its ``value``, the base's ``value_base``, and their ``ratio``."""
    every = medians(frame, quantity)
    own = on(every, name=base).drop(columns="name")
    pairs = every.drop(index=on(every, name=base).index).merge(own, on=[*ALIKE, "round"], suffixes=("", "_base"))
    return pairs.assign(ratio=pairs["value"] / pairs["value_base"])


def spread(values: Iterable[float], digits: int = 2) -> str:
    """Return the median and range as ``"1.85 (1.80 to 1.92)"``, or the median alone if all values are equal."""
    numbers = [float(value) for value in values]
    if not numbers:
        return ""
    middle, least, most = (f"{of(numbers):,.{digits}f}" for of in (median, min, max))
    return middle if least == most else f"{middle} ({least} to {most})"


def times_as_fast(values: Iterable[float], digits: int = 2) -> str:
    """Return the median and range of ratios, marked where attnlab is slower: ``"0.85 (0.80 to 1.04), **slower**"``."""
    numbers = [float(value) for value in values]
    return spread(numbers, digits) + (", **slower**" if numbers and median(numbers) < 1 else "")
