"""The summary of a cell, as data. `attnlab.stats.compare` fills it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from attnlab.stats import paired
from attnlab.stats.exact import ExactInterval
from attnlab.stats.lr_curve import LearningRateCurve
from attnlab.stats.verdict import Verdict, VerdictKind


@dataclass(frozen=True)
class CellSummary:
    """One cell over its seeds, and its comparison with the baseline.

    Attributes:
        name: The cell's name.
        axes: Axis -> value, as text.
        values: Seed -> value of the metric, of the completed runs; in a study with a sweep, the seed's contribution to the
            metric at the fitted optimum.
        value: Mean and interval of `values`, without an interval if there is an `estimate`; None when no run completed, or in a
            study with a sweep, if there is no optimum.
        costs: Cost metric -> mean and interval over the completed runs.
        states: State -> number of runs.
        reasons: Reasons for which runs did not complete, each once.
        baseline: Name of the baseline cell, "" if there is none.
        difference: The cell minus its baseline; None without a shared seed.
        verdict: None when the study has no baseline, or no run of this cell completed.
        test: Identity of the test of its runs (the column `test` of `attnlab.load_runs`); "" if unknown.
        batches: Fields that its training batches depend on in addition to the seed, and their values.
        ranges: Cost metric -> lowest and highest value over seeds, for measured costs with at least two values.
        further: This cell again for each further baseline, with that baseline, difference and verdict.
        curve: Its curve over the swept hyperparameter, in a study with a sweep.
        estimate: Its solve rate, or its median, with the exact interval, for another estimand than the mean. Diverged runs
            count (`attnlab.stats.exact_estimators`).
        scores: Seed -> score, for another estimand than the mean: `values`, and the worst score for seeds that diverged.
        lost: Seeds that ended without a score. In a study with a sweep, a diverged run is none of them: it bounds the optimum.
    """

    name: str
    axes: Mapping[str, str]
    values: Mapping[int, float]
    value: paired.Interval | None
    costs: Mapping[str, paired.Interval]
    states: Mapping[str, int]
    reasons: tuple[str, ...] = ()
    baseline: str = ""
    difference: paired.Difference | None = None
    verdict: Verdict | None = None
    test: str = ""
    batches: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    further: tuple[CellSummary, ...] = ()
    curve: LearningRateCurve | None = None
    estimate: ExactInterval | None = None
    scores: Mapping[int, float] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()

    @property
    def has_result(self) -> bool:
        """True when it can be compared: a run completed, or diverged where that counts as a score."""
        return self.value is not None or self.estimate is not None

    @property
    def seeds(self) -> int:
        """Number of seeds with a score."""
        return len(self.scores or self.values)

    @property
    def is_baseline(self) -> bool:
        """True for a cell that others are compared with."""
        return self.verdict is not None and self.verdict.kind is VerdictKind.BASELINE

    @property
    def is_inconclusive(self) -> bool:
        """True for a cell that shares seeds with its baseline, too few for a conclusion."""
        return self.verdict is not None and self.verdict.kind is VerdictKind.INCONCLUSIVE

    @property
    def for_new_items(self) -> tuple[float, float] | None:
        """The 95 % interval of the difference for new test items; None where items hardly matter, or are unknown."""
        new = self.verdict.new_items if self.verdict else None
        if new is None or self.difference is None:
            return None
        mean = self.difference.interval.mean
        return mean - new.half_width, mean + new.half_width

    @property
    def outcome(self) -> str:
        """The states as text: "completed" if all runs completed, else as in "2 completed, 1 diverged"."""
        if len(self.states) == 1:
            return next(iter(self.states))
        return ", ".join(f"{count} {state}" for state, count in self.states.items())
