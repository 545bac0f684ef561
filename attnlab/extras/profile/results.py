"""Profiles: the results of variants on diagnostics at levels of increasing difficulty, up to the level that they do not solve.

A level is solved if all of its seeds solve the task. These are statements about the seeds that were trained: of a variant that
solves a level with probability p, three seeds all solve it with probability p^3, so that 3 of 3 seeds are compatible with every
p above 0.20 (Clopper and Pearson 1934, 95 % for three learning rates together).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from attnlab._util.run_state import WITHOUT_RESULT, RunState
from attnlab._version import __version__
from attnlab.report.stored import in_lines, read_object
from attnlab.stats.cells import CellSummary
from attnlab.stats.exact import clopper_pearson
from attnlab.stats.paired import LEVEL

FILE = "profile.json"
LR = 3e-3  # the learning rate of every level
OTHER_RATES = (LR / 4, LR * 4)  # of a level that not all seeds solve
RATES = 1 + len(OTHER_RATES)  # of which the best one is reported
COSTS = ("parameters", "flops_per_token", "cache_bytes", "state_bytes", "steps", "tokens_per_s")


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
    """The runs of one variant at one level and learning rate.

    Attributes:
        scores: Seed -> score on the test split, of the completed runs.
        states: State -> number of runs.
        lr: The learning rate.
        solved: Number of seeds that reach the threshold.
        reasons: Reasons for which runs did not complete, each once.
        costs: Cost metric -> mean over the completed runs.
        steps: Seed -> steps of training, of the completed runs; fewer than those of the level when it was solved before.
        others: The results at other learning rates, without costs: of the first seed, or of all seeds if it solves the level.
    """

    scores: Mapping[int, float]
    states: Mapping[str, int]
    lr: float = LR
    solved: int = 0
    reasons: tuple[str, ...] = ()
    costs: Mapping[str, float] = field(default_factory=dict)
    steps: Mapping[int, int] = field(default_factory=dict)
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
    def is_solved(self) -> bool:
        """True when all seeds solve the level."""
        return 0 < self.solved == self.seeds

    @property
    def is_open(self) -> bool:
        """True when some seeds solve the level and others do not, or have no result."""
        return bool(self.judged) and not self.is_solved and (self.solved > 0 or self.judged < self.seeds)

    @property
    def earns_next(self) -> bool:
        """True when most seeds solve the level, so that the next one is trained."""
        return 2 * self.solved > self.seeds

    def interval(self) -> tuple[float, float]:
        """Return the interval of the solve rate; those of three learning rates, of which the best counts, hold together."""
        return clopper_pearson(self.solved, self.judged, LEVEL / 2 / RATES)


@dataclass(frozen=True)
class AbilityResult:
    """The results of all variants on one diagnostic.

    Attributes:
        task: Name of the diagnostic.
        group: "recall", "copy" or "state"; "" for a diagnostic of yours.
        about: What it tests, in one line.
        paper: The publication that defines it.
        threshold: The score that solves the task.
        levels: From easy to hard.
        results: Variant -> its levels, from the easiest to the last one that was trained.
    """

    task: str
    group: str
    about: str
    paper: str
    threshold: float
    levels: tuple[Level, ...]
    results: Mapping[str, tuple[LevelResult, ...]]

    def solved(self, variant: str) -> int:
        """Return the number of levels that all seeds solve, from the easiest on."""
        results = self.results[variant]
        return next((i for i, result in enumerate(results) if not result.is_solved), len(results))

    def opened(self, variant: str) -> int:
        """Return the number of levels at which seeds disagree."""
        return sum(result.is_open for result in self.results[variant])


@dataclass(frozen=True, repr=False)
class Profile:
    """The abilities of one or several variants, next to baselines.

    Attributes:
        name: Of the folder of its page below `runs/reports/profile`; "" for the profile of all built-in variants.
        variants: Labels of the variants whose profile it is.
        positions: Label of each variant -> its position scheme, also of the baselines.
        abilities: The results of each diagnostic.
        seeds: Number of seeds of each level.
        methods: What all runs share: model, training, devices and versions.
        command: The command that makes the profile.
    """

    name: str
    variants: tuple[str, ...]
    positions: Mapping[str, str]
    abilities: tuple[AbilityResult, ...]
    seeds: int
    methods: Mapping[str, str] = field(default_factory=dict)
    command: str = ""

    def __repr__(self) -> str:
        """Return a line for each variant, with the levels that its seeds solve."""
        solved = {
            name: ", ".join(f"{a.task} {a.solved(name)}/{len(a.levels)}" for a in self.abilities) for name in self.variants
        }
        return "\n".join(f"{name}: {line}" for name, line in solved.items())

    @property
    def is_complete(self) -> bool:
        """True when no run failed; refusals, divergence and running out of memory are results."""
        every = (result for ability in self.abilities for results in ability.results.values() for result in results)
        return not any(state in WITHOUT_RESULT for result in every for state in result.states)


def level_result(cell: CellSummary, lr: float) -> LevelResult:
    """Return the result of one variant at one level and learning rate, from the summary of its cell with its solve rate."""
    return LevelResult(
        scores=dict(cell.values),
        states={str(state): n for state, n in cell.states.items()},
        lr=lr,
        solved=(cell.estimate.solved or 0) if cell.estimate else 0,
        reasons=cell.reasons,
        costs={name: interval.mean for name, interval in cell.costs.items() if name in COSTS},
    )


def best_rate(results: Sequence[LevelResult]) -> LevelResult:
    """Return the result with the most seeds that solve the level, with equals the first learning rate, and the others."""
    best = max(results, key=lambda result: (result.solved, result.seeds, result.lr == LR))
    others = sorted((result for result in results if result is not best), key=lambda result: result.lr)
    return replace(best, others=tuple(replace(result, costs={}) for result in others))


def save_profile(folder: Path, profile: Profile) -> None:
    """Write what the page of a profile is rendered from."""
    from pydantic import TypeAdapter

    content = {"version": __version__, "profile": TypeAdapter(Profile).dump_python(profile, mode="json")}
    (folder / FILE).write_text(in_lines(content) + "\n", encoding="utf-8")


def load_profile(folder: Path) -> tuple[str, Profile]:
    """Return the version of attnlab that wrote a profile, and the profile."""
    from pydantic import TypeAdapter

    content = read_object(folder / FILE)
    return content["version"], TypeAdapter(Profile).validate_json(json.dumps(content["profile"]))
