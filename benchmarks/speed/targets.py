"""The targets for attnlab's speed; the median over the rounds decides."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import pandas as pd

from benchmarks.speed import results
from benchmarks.speed.case import EQUAL, SHIPPED
from benchmarks.speed.ratios import spread
from benchmarks.speed.sparse import SPARSE


class Figures(NamedTuple):
    """One figure per round, and the name of what it is measured against."""

    values: list[float]
    against: str = ""


@dataclass(frozen=True)
class Target:
    """A bound on a figure of a section on a CPU: an upper bound if ``most``, else a lower bound."""

    section: str
    what: str
    bound: float
    unit: str
    of: Callable[[pd.DataFrame], Figures]
    most: bool = False

    def verdict(self, frame: pd.DataFrame | None) -> list[str]:
        """Return a table row: figure, target, measured value, and ``met``, ``missed`` or ``not measured``."""
        wanted = f"at {'most' if self.most else 'least'} {self.bound:g} {self.unit}"
        values, against = Figures([]) if frame is None else self.of(frame)
        if not values:
            return [self.what, wanted, "", "not measured"]
        middle = median(values)
        met = middle <= self.bound if self.most else middle >= self.bound
        shown = f"{spread(values)} {self.unit}{f' against {against}' if against else ''}"
        return [self.what, wanted, shown, "**met**" if met else "**missed**"]


def _fastest(precision: str, settings: str) -> Callable[[pd.DataFrame], Figures]:
    return lambda frame: Figures(*results.fastest_peer(frame, precision, settings))


def _layer(settings: str) -> Callable[[pd.DataFrame], Figures]:
    return lambda frame: Figures(results.original(frame, "attention", "fp32", settings))


def _imdb(quantity: str) -> Callable[[pd.DataFrame], Figures]:
    return lambda frame: Figures(results.alone(frame, quantity))


def _growth(name: str, quantity: str) -> Callable[[pd.DataFrame], Figures]:
    return lambda frame: Figures(results.growth(frame, name, quantity))


def _sparse(name: str, length: int) -> Callable[[pd.DataFrame], Figures]:
    return lambda frame: Figures(results.beside_dense(frame, name, length, SHIPPED))


def _sparse_targets(name: str) -> list[Target]:
    return [
        Target("sparse", f"{name}, time", 1.4, "as power of the length", _growth(name, "ms"), most=True),
        Target("sparse", f"{name}, saved bytes", 1.1, "as power of the length", _growth(name, "saved_mib"), most=True),
        *(
            Target("sparse", f"{name} at {length:,}, dense SDPA as shipped", bound, "times as fast", _sparse(name, length))
            for length, bound in ((1_024, 4), (4_096, 9), (16_384, 20))
        ),
    ]


TARGETS = [
    Target("step", "training step, fp32, peers as shipped", 1.8, "times as fast", _fastest("fp32", SHIPPED)),
    Target("step", "training step, bf16, peers as shipped", 1.5, "times as fast", _fastest("bf16", SHIPPED)),
    Target("step", "training step, fp32, equal settings", 1.3, "times as fast", _fastest("fp32", EQUAL)),
    Target("step", "training step, bf16, equal settings", 1.3, "times as fast", _fastest("bf16", EQUAL)),
    Target("xl", "Transformer-XL attention, fp32, the original as shipped", 5, "times as fast", _layer(SHIPPED)),
    Target("xl", "Transformer-XL attention, fp32, equal settings", 3, "times as fast", _layer(EQUAL)),
    Target("imdb", "an epoch of IMDb in bf16", 4.3, "minutes", _imdb("epoch"), most=True),
    Target("imdb", "evaluation of 25,000 reviews in bf16", 40, "s", _imdb("test"), most=True),
    Target("imdb", "padding computed", 5, "% of tokens", lambda f: Figures(results.padding_percent(f)), most=True),
    *(target for name in SPARSE for target in _sparse_targets(name)),
]


def verdicts(frames: Mapping[str, pd.DataFrame]) -> list[list[str]]:
    """Return a table row for each target, in order."""
    return [target.verdict(frames.get(target.section)) for target in TARGETS]
