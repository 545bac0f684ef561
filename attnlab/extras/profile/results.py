"""Profiles: the results of variants on diagnostics at levels of increasing difficulty, up to the level that they do not solve.

A level counts as solved if all of its seeds solve the task, as not solved if none does, and is open otherwise. These are
statements about the seeds that were trained: of a variant that solves a level with probability p, three seeds all solve it with
probability p^3, so that 3 of 3 seeds are compatible with every p above 0.20 (Clopper and Pearson 1934, 95 % for three learning
rates together). Of two identical variants with p = 0.5, the outcomes of three seeds differ in 41 % of pairs. What a
variant can do is therefore stated only where the interval of p excludes one half, which takes 7 seeds (`Ability`); else
the words are about the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from attnlab._util.run_state import WITHOUT_RESULT, RunState
from attnlab.stats.cells import CellSummary
from attnlab.stats.exact import clopper_pearson
from attnlab.stats.paired import LEVEL

LR = 3e-3  # the learning rate of every level
OTHER_RATES = (LR / 4, LR * 4)  # of a level that not all seeds solve
RATES = 1 + len(OTHER_RATES)  # of which the best one is reported
HALF = 0.5  # of all trainings
COSTS = ("parameters", "flops_per_token", "cache_bytes", "state_bytes", "steps", "tokens_per_s")


class Outcome(StrEnum):
    """The result of the seeds of one variant at one level."""

    SOLVED = "solved"  # by all seeds
    NOT_SOLVED = "not solved"  # by any seed
    OPEN = "open"  # solved by some seeds, or some have no result
    NO_RESULT = "no result"


class Ability(StrEnum):
    """The claim about a variant at one level that the interval of its solve rate supports."""

    CAN = "can"  # it solves the level in more than half of all trainings
    CANNOT = "cannot"  # it does so in less than half
    OPEN = "open"


@dataclass(frozen=True)
class Level:
    """A level of difficulty.

    Attributes:
        name: The options of the task, as in "pairs 8, length 64".
        chance: The score without the tested ability.
        length: Tokens of a row.
        steps: Maximum number of training steps of a run, which may end when it has solved the level.
    """

    name: str
    chance: float
    length: int
    steps: int


@dataclass(frozen=True)
class LevelResult:
    """The runs of one variant at one level.

    Attributes:
        scores: Seed -> score on the test split, of the completed runs.
        states: State -> number of runs.
        lr: The learning rate.
        solved: Number of seeds that reach the threshold.
        low, high: Interval of the solve rate (Clopper and Pearson 1934); None without a run with a result. The intervals of
            three learning rates hold together with 95 %, because the best rate is reported.
        reasons: Reasons for which runs did not complete, each once.
        costs: Cost metric -> mean over the completed runs.
        ranges: Measured cost metric -> lowest and highest value over seeds.
        others: The results at other learning rates, without costs: of the first seed, or of all seeds if it solves the level.
    """

    scores: Mapping[int, float]
    states: Mapping[str, int]
    lr: float = LR
    solved: int = 0
    low: float | None = None
    high: float | None = None
    reasons: tuple[str, ...] = ()
    costs: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    others: tuple[LevelResult, ...] = ()

    @property
    def seeds(self) -> int:
        """Number of seeds, with those that have no score."""
        return sum(self.states.values())

    @property
    def judged(self) -> int:
        """Number of seeds with a result; a diverged run did not solve the task."""
        return len(self.scores) + self.states.get(RunState.DIVERGED, 0)

    @property
    def outcome(self) -> Outcome:
        """The result of all seeds."""
        if not self.judged:
            return Outcome.NO_RESULT
        if self.judged < self.seeds or 0 < self.solved < self.judged:
            return Outcome.OPEN
        return Outcome.SOLVED if self.solved else Outcome.NOT_SOLVED

    @property
    def ability(self) -> Ability:
        """The claim about the variant: the interval of its solve rate lies above or below one half, or neither."""
        if self.outcome is Outcome.SOLVED and self.low is not None and self.low > HALF:
            return Ability.CAN
        if self.outcome is Outcome.NOT_SOLVED and self.high is not None and self.high < HALF:
            return Ability.CANNOT
        return Ability.OPEN

    @property
    def earns_next(self) -> bool:
        """True when most seeds solve the level, so that the next one is trained."""
        return 2 * self.solved > self.seeds


@dataclass(frozen=True)
class AbilityResult:
    """The results of all variants on one diagnostic.

    Attributes:
        task: Name of the diagnostic.
        about: What it tests, in one line.
        paper: The publication that defines it.
        metric: Name of the metric.
        direction: "min" when smaller values are better, else "max".
        threshold: The score that solves the task.
        levels: From easy to hard.
        results: Variant -> its levels, from the easiest to the last one that was trained.
        devices, versions: Of the machines and of the packages that trained the runs, each once.
    """

    task: str
    about: str
    paper: str
    metric: str
    direction: str
    threshold: float
    levels: tuple[Level, ...]
    results: Mapping[str, tuple[LevelResult, ...]]
    devices: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()

    def last_solved(self, variant: str) -> Level | None:
        """Return the last level that all seeds solve, together with all levels before it; None when there is none."""
        last = None
        for level, result in zip(self.levels, self.results[variant], strict=False):
            if result.outcome is not Outcome.SOLVED:
                break
            last = level
        return last


@dataclass(frozen=True, repr=False)
class Profile:
    """The abilities and costs of a variant, next to other variants.

    Attributes:
        name: Of the profile's folder.
        variant: Label of the variant.
        positions: Label of each variant -> its position scheme; the variant of the profile comes first.
        abilities: The results of each diagnostic.
        seeds: Number of seeds of each level.
        model, train: The model around the variant, and the training, in words.
        command: The command that makes the profile.
        studies: Task -> its study file, relative to the folder of the profile.
    """

    name: str
    variant: str
    positions: Mapping[str, str]
    abilities: tuple[AbilityResult, ...]
    seeds: int
    model: str = ""
    train: str = ""
    command: str = ""
    studies: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a line for each ability, with the last level that the variant solves in all seeds."""
        solved = {ability.task: ability.last_solved(self.variant) for ability in self.abilities}
        lines = [f"{task}: {f'up to {level.name}' if level else 'no level'}" for task, level in solved.items()]
        return "\n  ".join([f"profile of {self.variant}", *lines])

    @property
    def is_complete(self) -> bool:
        """True when no run failed; refusals, divergence and running out of memory are results."""
        every = (result for ability in self.abilities for results in ability.results.values() for result in results)
        return not any(state in WITHOUT_RESULT for result in every for state in result.states)


def level_result(cell: CellSummary, lr: float) -> LevelResult:
    """Return the result of one variant at one level and learning rate, from the summary of its cell with its solve rate."""
    result = LevelResult(
        scores=dict(cell.values),
        states={str(state): n for state, n in cell.states.items()},
        lr=lr,
        solved=(cell.estimate.solved or 0) if cell.estimate else 0,
        reasons=cell.reasons,
        costs={name: interval.mean for name, interval in cell.costs.items() if name in COSTS},
        ranges={name: ends for name, ends in cell.ranges.items() if name in COSTS},
    )
    return with_interval(result)


def with_interval(result: LevelResult) -> LevelResult:
    """Return a result with the interval of its solve rate."""
    if not result.judged:
        return result
    low, high = clopper_pearson(result.solved, result.judged, LEVEL / 2 / RATES)
    return replace(result, low=low, high=high)


def best_rate(results: Sequence[LevelResult]) -> LevelResult:
    """Return the result with the most seeds that solve the level, with equals the first learning rate, and the others."""
    best = max(results, key=lambda result: (result.solved, result.seeds, result.lr == LR))
    others = sorted((result for result in results if result is not best), key=lambda result: result.lr)
    return replace(best, others=tuple(replace(result, costs={}, ranges={}) for result in others))
