"""The figures that the page opens with, and the targets for some of them; the median over the rounds decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import pandas as pd

from benchmarks.speed import results
from benchmarks.speed.case import EQUAL, SHIPPED
from benchmarks.speed.ratios import spread, times_as_fast
from benchmarks.speed.sparse import SPARSE

TIMES = "times as fast"
Frames = Mapping[str, pd.DataFrame]  # section -> its rows


class Figures(NamedTuple):
    """One figure per round, and the name of what it is measured against."""

    values: list[float]
    against: str = ""


@dataclass(frozen=True)
class Comparison:
    """A figure of a section, on one device.

    Attributes:
        bound: the target, an upper bound if ``most``, else a lower bound; None: the figure has no target.
    """

    section: str
    what: str
    unit: str
    of: Callable[[pd.DataFrame, str], Figures]
    bound: float | None = None
    most: bool = False

    def verdict(self, figures: Figures) -> str:
        """Return the measured figure, and whether it reaches the target."""
        values, against = figures
        if not values or self.bound is None:
            return "not measured"
        middle = median(values)
        met = middle <= self.bound if self.most else middle >= self.bound
        return f"{spread(values)}{f' against {against}' if against else ''}: **{'met' if met else 'missed'}**"

    def wanted(self) -> str:
        """Return the target, such as ``"at least 2 times as fast"``."""
        return f"at {'most' if self.most else 'least'} {self.bound:g} {self.unit}"


Measured = Mapping[tuple[Comparison, str], Figures]  # (comparison, device) -> its figures


def _way(at_a_time: int, ratio: str = "ratio") -> Callable[[pd.DataFrame, str], Figures]:
    return lambda frame, device: Figures(*results.fastest_way(frame, at_a_time, ratio, device))


def _peer(precision: str, settings: str) -> Callable[[pd.DataFrame, str], Figures]:
    return lambda frame, device: Figures(*results.fastest_peer(frame, precision, settings, device))


def _layer(settings: str) -> Callable[[pd.DataFrame, str], Figures]:
    return lambda frame, device: Figures(results.original(frame, "attention", "fp32", settings, device), "the original")


def _reader(quantity: str, settings: str) -> Callable[[pd.DataFrame, str], Figures]:
    return lambda frame, device: Figures(*results.fastest_reader(frame, quantity, settings, device))


def _imdb(quantity: str) -> Callable[[pd.DataFrame, str], Figures]:
    return lambda frame, device: Figures(results.alone(frame, quantity, device))


def _padding(frame: pd.DataFrame, device: str) -> Figures:
    return Figures(results.padding_percent(frame, device))


def _growth(name: str, quantity: str) -> Callable[[pd.DataFrame, str], Figures]:
    return lambda frame, device: Figures(results.growth(frame, name, quantity, device))


def _sparse(name: str, length: int) -> Callable[[pd.DataFrame, str], Figures]:
    return lambda frame, device: Figures(results.beside_dense(frame, name, length, SHIPPED, device), "dense SDPA")


COMPARISONS = [
    Comparison("verdict", "time to a verdict, as shipped, peers one after another", TIMES, _way(1), 2),
    Comparison("verdict", "time to a verdict, as shipped, peers two at a time", TIMES, _way(2), 1.3),
    Comparison("verdict", "time to a verdict, all in fp32, peers one after another", TIMES, _way(1, "fp32_ratio"), 2),
    Comparison("verdict", "time to a verdict, all in fp32, peers two at a time", TIMES, _way(2, "fp32_ratio"), 1.3),
    Comparison("step", "training step, fp32, peers as shipped", TIMES, _peer("fp32", SHIPPED), 1.8),
    Comparison("step", "training step, bf16, peers as shipped", TIMES, _peer("bf16", SHIPPED), 1.5),
    Comparison("step", "training step, fp32, equal settings", TIMES, _peer("fp32", EQUAL), 1.3),
    Comparison("step", "training step, bf16, equal settings", TIMES, _peer("bf16", EQUAL), 1.3),
    Comparison("imdb", "epoch of IMDb, bf16, peers as shipped", TIMES, _reader("epoch", SHIPPED)),
    Comparison("imdb", "epoch of IMDb, bf16, equal settings", TIMES, _reader("epoch", EQUAL)),
    Comparison("imdb", "evaluation of IMDb, bf16, peers as shipped", TIMES, _reader("test", SHIPPED)),
    Comparison("imdb", "evaluation of IMDb, bf16, equal settings", TIMES, _reader("test", EQUAL)),
    Comparison("xl", "Transformer-XL attention, fp32, as shipped", TIMES, _layer(SHIPPED), 5),
    Comparison("xl", "Transformer-XL attention, fp32, equal settings", TIMES, _layer(EQUAL), 3),
    *(
        Comparison("sparse", f"{name}, length {length:,}, as shipped", TIMES, _sparse(name, length), bound)
        for name in SPARSE
        for length, bound in ((1_024, 4), (4_096, 9), (16_384, 20))
    ),
    Comparison("imdb", "epoch of IMDb, bf16", "minutes", _imdb("epoch"), 4.3, most=True),
    Comparison("imdb", "evaluation of 25,000 reviews, bf16", "s", _imdb("test"), 40, most=True),
    Comparison("imdb", "padding computed", "% of tokens", _padding, 5, most=True),
    *(
        Comparison(
            "sparse", f"{name}, growth of {what} with the length", "as power of it", _growth(name, quantity), bound, most=True
        )
        for name in SPARSE
        for what, quantity, bound in (("time", "ms", 1.4), ("saved bytes", "saved_mib", 1.1))
    ),
]
SPEEDS = [comparison for comparison in COMPARISONS if comparison.unit == TIMES]


def measured(frames: Frames, devices: Sequence[str]) -> Measured:
    """Return the figures of all comparisons on all devices."""
    return {
        (comparison, device): comparison.of(frames[comparison.section], device) if comparison.section in frames else Figures([])
        for comparison in COMPARISONS
        for device in devices
    }


def speeds(figures: Measured, devices: Sequence[str]) -> list[list[str]]:
    """Return a table row for each of ``SPEEDS`` that some device has measured, with a column for each device."""
    rows = []
    for comparison in SPEEDS:
        row = [figures[comparison, device] for device in devices]
        if any(values for values, _ in row):
            cells = [times_as_fast(values) + (f", {against}" if values and against else "") for values, against in row]
            rows.append([comparison.what, *cells])
    return rows


def overview(figures: Measured, device: str) -> str:
    """Return sentences on how many comparisons attnlab is faster in on a device, and which it is slower in.

    Sparse attention computes fewer pairs than the dense attention that it is compared with, so it is counted by itself. Two
    comparisons with the same measurements, such as those in fp32 where nothing else is measured, count as one.
    """
    found: dict[str, dict[str, list[float]]] = {"peers": {}, "sparse": {}}
    for comparison in SPEEDS:
        kind, values = "sparse" if comparison.section == "sparse" else "peers", figures[comparison, device].values
        if values and values not in found[kind].values():
            found[kind][comparison.what] = values
    texts = [_counted(found["peers"], "comparisons with peers")] if found["peers"] else []
    texts += [f"Sparse next to dense attention: {_counted(found['sparse'], 'cases')}"] if found["sparse"] else []
    return " ".join(texts)


def _counted(found: Mapping[str, Sequence[float]], noun: str) -> str:
    """Return how many of some comparisons are faster, by how much, and which are slower."""
    ratios = {what: median(values) for what, values in found.items()}
    slower = [f"{what} ({ratio:.2f} times as fast)" for what, ratio in ratios.items() if ratio < 1]
    faster = [ratio for ratio in ratios.values() if ratio >= 1]
    text = f"faster in {len(faster)} of {len(ratios)} {noun}"
    if faster:
        ends = [f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}" for ratio in (min(faster), max(faster))]
        text += f", {' to '.join(dict.fromkeys(ends))} times as fast"
    unclear = [what for what, values in found.items() if min(values) < 1 <= median(values)]
    if unclear:
        text += f"; in {len(unclear)} of these, some rounds were slower ({', '.join(unclear)})"
    return f"{text}. " + (f"**Slower**: {', '.join(slower)}." if slower else "Slower in none.")


def verdicts(figures: Measured, devices: Sequence[str]) -> list[list[str]]:
    """Return a table row for each target, with a column for each device."""
    targets = [comparison for comparison in COMPARISONS if comparison.bound is not None]
    return [
        [target.what, target.wanted(), *(target.verdict(figures[target, device]) for device in devices)] for target in targets
    ]
