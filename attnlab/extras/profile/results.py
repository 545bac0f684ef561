"""Profiles: the results of variants on diagnostics at levels of increasing difficulty, up to the level that they do not solve.

A level counts as solved if all of its seeds solve the task, as not solved if none does, and is open otherwise. These are
statements about the seeds that were trained: of a variant that solves a level with probability p, three seeds all solve it with
probability p^3, so that 3 of 3 seeds are compatible with every p above 0.29 (Clopper and Pearson 1934, 95 %). Of two identical
variants with p = 0.5, the outcomes of three seeds differ in 41 % of pairs. What a variant can do is therefore stated only where
the interval of p excludes one half, which takes 6 seeds (`Ability`); else the words are about the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from attnlab._util.run_state import WITHOUT_RESULT, RunState
from attnlab.stats.cells import CellSummary

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
        solved: Number of seeds that reach the threshold.
        low, high: 95 % interval of the solve rate (Clopper and Pearson 1934); None without a completed run.
        reasons: Reasons for which runs did not complete, each once.
        costs: Cost metric -> mean over the completed runs.
        ranges: Measured cost metric -> lowest and highest value over seeds.
    """

    scores: Mapping[int, float]
    states: Mapping[str, int]
    solved: int = 0
    low: float | None = None
    high: float | None = None
    reasons: tuple[str, ...] = ()
    costs: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

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


def level_result(cell: CellSummary) -> LevelResult:
    """Return the result of one variant at one level from the summary of its cell, with the estimand solve rate."""
    estimate = cell.estimate
    return LevelResult(
        scores=dict(cell.values),
        states={str(state): n for state, n in cell.states.items()},
        solved=(estimate.solved or 0) if estimate else 0,
        low=estimate.low if estimate else None,
        high=estimate.high if estimate else None,
        reasons=cell.reasons,
        costs={name: interval.mean for name, interval in cell.costs.items() if name in COSTS},
        ranges={name: ends for name, ends in cell.ranges.items() if name in COSTS},
    )
