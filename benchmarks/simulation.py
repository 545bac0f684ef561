"""The interface between the simulations of ``reports/validity`` and the program that runs and draws them.

A module with a simulation defines a `Simulation`, and `benchmarks.validity.SIMULATIONS` lists it. Everything else follows:
the rows of ``validity.csv``, the plots, a section of the page with the settings that exceed a limit, and the rows of its table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from zlib import crc32

MAX_ERRORS = 3  # Monte-Carlo standard errors: a larger excess over a limit is more than chance


@dataclass(frozen=True)
class Share:
    """A relative frequency with its Monte-Carlo standard error."""

    happened: float
    of: int

    @property
    def value(self) -> float:
        return float(self.happened / self.of) if self.of else 0.0

    @property
    def error(self) -> float:
        p = float(self.happened + 1) / (self.of + 2)  # not 0 where nothing happened in a few cases
        return math.sqrt(p * (1 - p) / max(self.of, 1))


class Kind(StrEnum):
    """The kind of a quantity, which decides on its axis and on the direction of its limit."""

    FALSE = "false"  # share of false verdicts, or of others that should be small
    COVERAGE = "coverage"  # large is good
    POWER = "power"  # large is good
    NUMBER = "number"  # not a share, and not drawn


@dataclass(frozen=True)
class Quantity:
    """A quantity that is simulated in each setting of a simulation.

    Attributes:
        name: In ``validity.csv``.
        text: Title of its plot, a noun phrase.
        kind: Its kind.
        level: The value that is aimed at, drawn as a solid line; None: there is none.
        limit: The largest promised value (of coverage and power, the smallest), drawn as a dashed line; None: nothing is
            promised about this quantity.
    """

    name: str
    text: str
    kind: Kind = Kind.FALSE
    level: float | None = None
    limit: float | None = None

    def excess(self, value: float) -> float:
        """Return by how much a value exceeds the limit; negative inside."""
        assert self.limit is not None
        return value - self.limit if self.kind is Kind.FALSE else self.limit - value


FALSE = Quantity("false", "false verdicts", level=0.05, limit=0.06)
COVERED = Quantity("covered", "coverage of 95 % intervals", Kind.COVERAGE, level=0.95)
POWER = Quantity("power", "true differences found", Kind.POWER)


@dataclass(frozen=True)
class Setting:
    """A setting of a simulation.

    Attributes:
        group: Settings of one group are drawn together.
        name: Name within the group.
        run: Called with a number of studies and a random seed; returns the share (or number) of each quantity.
        not_promised: The reason why nothing is promised here, as a noun phrase; "" where the limits of the quantities hold.
    """

    group: str
    name: str
    run: Callable[[int, int], Mapping[str, Share | float]]
    not_promised: str = ""


@dataclass(frozen=True)
class Simulation:
    """Studies with a known truth, in several settings.

    Attributes:
        name: Lower case with hyphens; names the plots, and the simulation in ``--only``.
        title: Title of its section.
        text: What is simulated, and what counts as false, in Markdown.
        settings: The settings, with unique pairs of group and name; settings of one group follow each other.
        quantities: Those that the settings return. The first is the share of false verdicts, if there is one.
        studies: Number of studies of each setting.
        conclusion: Markdown below the plots.
        hard: The hardest settings, for the table at the top of the page: description -> name of a quantity, and words that the
            names of these settings have.
    """

    name: str
    title: str
    text: str
    settings: Sequence[Setting]
    quantities: Sequence[Quantity] = (FALSE,)
    studies: int = 20_000
    conclusion: str = ""
    hard: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def quantity(self, name: str) -> Quantity:
        """Return the quantity with a name."""
        return next(quantity for quantity in self.quantities if quantity.name == name)


@dataclass(frozen=True)
class Result:
    """A simulated number: a row of ``validity.csv``.

    Attributes:
        simulation, group, setting, quantity: Names.
        value: A share, or a number.
        error: Monte-Carlo standard error of a share; None for other numbers.
        cases: Number of cases that the share counts; 0 for other numbers.
        studies: Number of simulated studies.
    """

    simulation: str
    group: str
    setting: str
    quantity: str
    value: float
    error: float | None
    cases: int
    studies: int


def run_setting(simulation: Simulation, setting: Setting, *, studies: int, seed: int) -> list[Result]:
    """Simulate a setting with random numbers of its own."""
    key = f"{seed} {simulation.name} {setting.group} {setting.name}"
    outcome = setting.run(studies, crc32(key.encode()))
    names = [quantity.name for quantity in simulation.quantities]
    if sorted(outcome) != sorted(names):
        raise ValueError(f"{simulation.name}: expected the quantities {names}, got {list(outcome)}")
    results = []
    for name in names:
        value = outcome[name]
        numbers = (value.value, value.error, value.of) if isinstance(value, Share) else (float(value), None, 0)
        results.append(Result(simulation.name, setting.group, setting.name, name, *numbers, studies))
    return results
