"""From timings to ratios, pair by pair: a case against attnlab's that was measured beside it, in each round."""

from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

import pandas as pd

from benchmarks.speed.case import OURS

ALIKE = ["device", "part", "precision", "settings"]  # what two cases share that are compared


def on(frame: pd.DataFrame, **what: str) -> pd.DataFrame:
    """The lines with these values in these columns."""
    found: Any = frame
    for column, value in what.items():
        found = found[found[column] == value]
    return found


def groups(frame: pd.DataFrame, *columns: str) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    """The lines that are alike in these columns, and what they hold there, in the order they were measured."""
    found: Any = frame.groupby(list(columns), sort=False)
    yield from found


def medians(frame: pd.DataFrame, quantity: str = "ms") -> pd.DataFrame:
    """One line a case and round: the median ``value`` of a quantity over its steps."""
    found: Any = on(frame, quantity=quantity).groupby([*ALIKE, "name", "round"], sort=False, as_index=False)["value"]
    return found.median()


def against(frame: pd.DataFrame, *, base: str = OURS, quantity: str = "ms") -> pd.DataFrame:
    """One line a case and round: its ``value``, the base's, and ``ratio``, how many times the base's it is."""
    every = medians(frame, quantity)
    own = on(every, name=base).drop(columns="name")
    pairs = every.drop(index=on(every, name=base).index).merge(own, on=[*ALIKE, "round"], suffixes=("", "_base"))
    return pairs.assign(ratio=pairs["value"] / pairs["value_base"])


def spread(values: Iterable[float], digits: int = 2) -> str:
    """ "1.85 (1.80 to 1.92)": median and range; the median alone where all are the same."""
    found = [float(value) for value in values]
    if not found:
        return ""
    middle, least, most = (f"{of(found):,.{digits}f}" for of in (median, min, max))
    return middle if least == most else f"{middle} ({least} to {most})"
