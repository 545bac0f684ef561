"""Rulings on published claims: what a study's verdicts say of the claim that its file states.

A claim about several cells is about all of them: it is upheld when every comparison upholds it, and refuted when one of them
refutes it. Comparisons are corrected over their table already. A claim of "better" by a size is also refuted by equivalence
within a smaller margin, and by an interval within the size; a claim of equivalence is upheld by a difference that is smaller
than the margin. A claim that is upheld after one length of training and refuted after another depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from attnlab.config.axes import label_text
from attnlab.config.question import OF_SOLVE_RATES, OF_TRENDS, ClaimConfig, Direction
from attnlab.stats.cells import CellSummary, comparisons
from attnlab.stats.factorial import Effect, FactorialResult
from attnlab.stats.joint import simultaneous_interval
from attnlab.stats.paired import Difference, NoTest
from attnlab.stats.trend import Trend, TrendKind
from attnlab.stats.verdict import Verdict, VerdictKind

STEPS = "train.steps"
MOST_SEEDS = 0.5  # a cell "can" when more than this share of its seeds solve the task
OPPOSED: Mapping[Direction, tuple[str, ...]] = {
    "better": ("worse",),
    "worse": ("better",),
    "not worse": ("worse",),
    "equivalent": ("better", "worse"),
    "different": ("equivalent",),
    "grows": ("shrinks", "changes sign"),
    "shrinks": ("grows", "changes sign"),
    "steady": ("grows", "shrinks", "changes", "changes sign"),
    "changes": ("steady",),
    "can": ("cannot",),
    "cannot": ("can",),
}
UPHOLDING: Mapping[Direction, tuple[str, ...]] = {
    "not worse": ("better", "equivalent"),
    "different": ("better", "worse"),
    "changes": OPPOSED["steady"],
}


class RulingKind(StrEnum):
    """What a study says of a claim."""

    UPHELD = "upheld at this scale"
    REFUTED = "refuted at this scale"
    DEPENDS = "depends on the length of training"
    NOT_SETTLED = "not settled"


@dataclass(frozen=True)
class Evidence:
    """The result of one comparison, or of one cell, that a claim is about.

    Attributes:
        name: Of the cell or the effect.
        outcome: As a direction of claims, "changes sign", or "inconclusive".
        seeds: Number of seeds.
        mean, low, high: The estimate with the interval that holds together with all others of its table (solve rates: by
            itself).
        margin: The margin that "equivalent" and "steady" refer to; None when there is none.
        reason: Why it does not count, or "".
        conditions: What limits its verdict: fragile, for the test items of the study alone, or by how many seeds "can" means.
        cells: The cells that are compared; empty for an effect, which all cells determine.
        steps: The length of the training, in a study `over` several; else "".
    """

    name: str
    outcome: str
    seeds: int = 0
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    reason: str = ""
    conditions: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    steps: str = ""

    def ruling(self, claim: ClaimConfig) -> RulingKind:
        """Return what this comparison alone says of the claim."""
        if self.outcome in UPHOLDING.get(claim.direction, (claim.direction,)):
            return RulingKind.UPHELD
        refuted = self.is_smaller_than(claim) or self.outcome in OPPOSED[claim.direction]
        return RulingKind.REFUTED if refuted else RulingKind.NOT_SETTLED

    def is_smaller_than(self, claim: ClaimConfig) -> bool:
        """Return True for a difference that is equivalent within less than the claimed size, or has its interval within it."""
        if claim.size is None or claim.direction not in ("better", "worse", "grows", "shrinks"):
            return False
        if self.outcome in ("equivalent", "steady") and self.margin is not None and self.margin < claim.size:
            return True
        if self.low is None or self.high is None or self.reason:
            return False
        return -claim.size < self.low and self.high < claim.size


@dataclass(frozen=True)
class Ruling:
    """The ruling on a claim, with the comparisons that it rests on."""

    claim: ClaimConfig
    kind: RulingKind
    evidence: tuple[Evidence, ...] = ()

    @property
    def size(self) -> str:
        """How the measured size compares with the published one, for a claim that is upheld by one comparison; else ""."""
        published = self.claim.size
        if self.kind is not RulingKind.UPHELD or published is None or len(self.evidence) != 1:
            return ""
        (one,) = self.evidence
        if one.low is None or one.high is None or not math.isfinite(one.low) or not math.isfinite(one.high):
            return ""
        small, large = sorted((abs(one.low), abs(one.high))) if one.low * one.high > 0 else (0.0, max(-one.low, one.high))
        if large <= published / 2:
            return "at most half of the published size"
        if large < published:
            return "less than the published size"
        return "more than the published size" if small > published else "the published size lies in the interval"

    @property
    def conditions(self) -> list[str]:
        """What limits the verdicts of the comparisons that settle the claim, each once."""
        settling = [one for one in self.evidence if one.ruling(self.claim) is not RulingKind.NOT_SETTLED]
        return list(dict.fromkeys(text for one in settling for text in one.conditions))

    @property
    def reasons(self) -> list[str]:
        """What the comparisons show that refute the claim, or why the others do not settle it, each once."""
        if self.kind is RulingKind.DEPENDS:
            return [f"{one.outcome} after {one.steps} steps" for one in self.evidence]
        refuting = [one for one in self.evidence if one.ruling(self.claim) is RulingKind.REFUTED]
        if refuting:
            shown = ("smaller than published" if one.is_smaller_than(self.claim) else one.outcome for one in refuting)
            return list(dict.fromkeys(shown))
        open_ones = [one for one in self.evidence if one.ruling(self.claim) is RulingKind.NOT_SETTLED]
        return list(dict.fromkeys(one.reason or one.outcome for one in open_ones)) or (
            [] if self.evidence else ["no such result"]
        )


def rule(claim: ClaimConfig, evidence: Iterable[Evidence]) -> Ruling:
    """Return the ruling on a claim from all comparisons that it is about."""
    found = tuple(evidence)
    lengths = dict.fromkeys(one.steps for one in found)
    kinds = {_joined(one.ruling(claim) for one in found if one.steps == steps) for steps in lengths}
    depends = {RulingKind.UPHELD, RulingKind.REFUTED} <= kinds
    return Ruling(claim, RulingKind.DEPENDS if depends else _joined(kinds), found)


def _joined(rulings: Iterable[RulingKind]) -> RulingKind:
    kinds = set(rulings)
    if RulingKind.REFUTED in kinds:
        return RulingKind.REFUTED
    return RulingKind.UPHELD if kinds == {RulingKind.UPHELD} else RulingKind.NOT_SETTLED


def gather(
    claim: ClaimConfig,
    cells: Sequence[CellSummary],
    *,
    margin: float | None,
    over: str = "",
    trends: Sequence[Trend] = (),
    factorial: FactorialResult | None = None,
) -> list[Evidence]:
    """Return the results of a study that a claim is about.

    Args:
        cells: The compared cells.
        margin: The margin of the study.
        over: The axis over whose levels the study compares the cells.
        trends: Their trends over levels.
        factorial: The effects of a factorial study.
    """
    if claim.effect is not None:
        effects = factorial.effects if factorial else ()
        return [_of_effect(effect, margin) for effect in effects if effect.name == claim.effect]
    meant = [cell for cell in cells if _has(claim.cell, cell)]
    if claim.direction in OF_SOLVE_RATES:
        return [_of_solve_rate(cell) for cell in meant]
    baselines = {cell.name for cell in cells if claim.baseline is None or _has(claim.baseline, cell)}
    compared = [cell for cell in comparisons(meant) if not cell.is_baseline and cell.baseline in baselines]
    pairs = {(cell.name, cell.baseline) for cell in compared}
    if claim.direction in OF_TRENDS:
        return [
            _of_trend(one, margin) for one in trends if any((cell.name, cell.baseline) in pairs for cell in one.comparisons)
        ]
    return [replace(_of_cell(cell, margin), steps=cell.axes[STEPS] if over == STEPS else "") for cell in compared]


def _has(axes: Mapping[str, Any] | None, cell: CellSummary) -> bool:
    return all(cell.axes.get(axis) == label_text(value) for axis, value in (axes or {}).items())


def _of_cell(cell: CellSummary, margin: float | None) -> Evidence:
    evidence = _of_difference(f"{cell.name} − {cell.baseline}", cell.difference, cell.verdict, margin)
    return replace(evidence, cells=(cell.name, cell.baseline))


def _of_effect(effect: Effect, margin: float | None) -> Evidence:
    evidence = _of_difference(effect.name, effect.difference, effect.verdict, margin)
    if not effect.aliases:
        return evidence
    sums = " and ".join(name for _, name in effect.aliases)
    return Evidence(evidence.name, "inconclusive", evidence.seeds, reason=f"the design cannot tell it from {sums}")


def _of_difference(name: str, difference: Difference | None, verdict: Verdict | None, margin: float | None) -> Evidence:
    """Return the evidence of a paired difference."""
    if difference is None or verdict is None:
        return Evidence(name, "inconclusive", reason="no common seed")
    outer = simultaneous_interval(difference)
    ends = (outer.mean, outer.low, outer.high) if outer else (difference.interval.mean, None, None)
    kind, reason = verdict.kind, ""
    if difference.no_test is NoTest.CHOICE:
        reason = NoTest.CHOICE.value
    if kind in (VerdictKind.EQUIVALENT, VerdictKind.IDENTICAL) and verdict.is_unsupported:
        kind, reason = VerdictKind.INCONCLUSIVE, "nothing shows that the study sees differences"
    outcome = {VerdictKind.IDENTICAL: "equivalent"}.get(kind, kind.value)
    if kind in (VerdictKind.BETTER, VerdictKind.WORSE) and verdict.within_margin:
        outcome = "equivalent"
    if outcome not in ("better", "worse", "equivalent"):
        outcome = "inconclusive"
    conditions = ["fragile"] if verdict.fragile else []
    if verdict.new_items is not None and not verdict.new_items.holds:
        conditions.append("for these test items")
    return Evidence(name, outcome, difference.interval.n, *ends, margin=margin, reason=reason, conditions=tuple(conditions))


def _of_trend(trend: Trend, margin: float | None) -> Evidence:
    outer = simultaneous_interval(trend.slope) if trend.slope else None
    ends = (outer.mean, outer.low, outer.high) if outer else (None, None, None)
    outcome = "inconclusive" if trend.kind is TrendKind.INCONCLUSIVE else trend.kind.value
    return Evidence(trend.name, outcome, outer.n if outer else 0, *ends, margin=margin)


def _of_solve_rate(cell: CellSummary) -> Evidence:
    """Return whether more than half of the seeds solve the task, by the exact interval of the solve rate."""
    solved = getattr(cell.estimate, "solved", None)
    if cell.estimate is None or solved is None:
        return Evidence(cell.name, "inconclusive", reason="no solve rate", cells=(cell.name,))
    n, low, high = cell.estimate.n, cell.estimate.low, cell.estimate.high  # corrected for looks, as on the study's page
    if low is None or high is None:
        return Evidence(cell.name, "inconclusive", n, solved / n, reason="no interval", cells=(cell.name,))
    outcome = "can" if low > MOST_SEEDS else "cannot" if high < MOST_SEEDS else "inconclusive"
    if outcome == "inconclusive":
        return Evidence(cell.name, outcome, n, solved / n, low, high, reason=f"{solved} of {n} seeds", cells=(cell.name,))
    most = f"solved by {'more' if outcome == 'can' else 'fewer'} than half of the seeds"
    return Evidence(cell.name, outcome, n, solved / n, low, high, conditions=(most,), cells=(cell.name,))
