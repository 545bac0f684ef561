"""Notes on studies with too few seeds for any verdict of an exact test, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attnlab.stats.exact_estimators import FARTHEST
from attnlab.stats.sequential import Looks
from attnlab.study.adaptive import MAX_SEEDS

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan


def seed_notes(plan: Plan, *, max_seeds: int | None = None) -> list[str]:
    """Return notes when no scores of the planned seeds can be conclusive, with the smallest number of seeds that can.

    An exact test has a smallest p-value. The t-test of a mean has none, so there are no notes on it.

    Args:
        plan: The plan.
        max_seeds: The limit of ``--until-conclusive``; None: the study's limit, or judge its seeds.
    """
    comparisons, max_seeds = count_comparisons(plan), max_seeds or plan.study.max_seeds
    if not plan.estimator.is_exact or not comparisons:
        return []
    return [*_better_or_worse(plan, comparisons, max_seeds), *_equivalent(plan, max_seeds)]


def count_comparisons(plan: Plan, *, controls: bool = True) -> int:
    """Return the number of comparisons of a plan: each pair of a cell and one of its baselines, once.

    Args:
        plan: The plan.
        controls: Count the comparisons of controls, too, which are not tested for equivalence.
    """
    pairs, control = set(), plan.study.control
    for cell in [*plan.cells, *plan.unselected]:
        if not controls and control is not None and control.items() <= cell.axes.items():
            continue
        for number in range(len(plan.study.baselines)):
            baseline = plan.baseline_of(cell, number)
            if baseline is not None and baseline is not cell and cell.refusal is None and baseline.refusal is None:
                pairs.add(frozenset((cell.name, baseline.name)))
    return len(pairs)


def _better_or_worse(plan: Plan, comparisons: int, max_seeds: int | None) -> list[str]:
    name, seeds = plan.estimand.name, len(plan.seeds)
    table = f" in a table of {comparisons} comparisons" if comparisons > 1 else ""
    if max_seeds is not None:
        looks = Looks(max(2, seeds), max(2, seeds, max_seeds))
        if _can_conclude(plan, comparisons, looks):
            return []
        needed = _smallest_limit(plan, comparisons, looks)
        ending = "" if needed is None else f"; the smallest --max-seeds that can is {needed}"
        return [f"{name}: no scores of up to {max_seeds} seeds can be better or worse{table}, after the looks{ending}"]
    needed = plan.estimator.fewest_seeds(comparisons=comparisons)
    if needed is None or seeds >= needed:
        return []
    p = f"the smallest p-value of {seeds} seeds is {plan.estimator.smallest_p(seeds):.2g}" if seeds > 1 else "it has one seed"
    number = f"at least {needed} seeds in its first table can{_adaptive(plan, comparisons)}"
    return [f"{name}: no scores of this study can be better or worse{table}: {p}; {number}"]


def _adaptive(plan: Plan, comparisons: int) -> str:
    """Return the smallest limit of ``--until-conclusive`` that can be conclusive if that is above its default."""
    first = max(2, len(plan.seeds))
    looks = Looks(first, max(first, MAX_SEEDS))
    needed = None if _can_conclude(plan, comparisons, looks) else _smallest_limit(plan, comparisons, looks)
    return "" if needed is None else f", and with --until-conclusive at least --max-seeds {needed}"


def _smallest_limit(plan: Plan, comparisons: int, looks: Looks) -> int | None:
    """Return the smallest limit of announced looks, above the present one, that can end in a verdict."""
    limits = range(looks.last + 1, 4 * looks.last + 1)
    return next((n for n in limits if _can_conclude(plan, comparisons, Looks(looks.first, n), numbers=[n])), None)


def _can_conclude(plan: Plan, comparisons: int, looks: Looks, *, numbers: Iterable[int] = ()) -> bool:
    numbers = numbers or range(2, looks.last + 1)
    return plan.estimator.fewest_seeds(comparisons=comparisons, looks=looks, numbers=numbers) is not None


def _equivalent(plan: Plan, max_seeds: int | None) -> list[str]:
    margin, most = plan.study.margin, max(len(plan.seeds), max_seeds or 0)
    comparisons = count_comparisons(plan, controls=False)
    if not isinstance(margin, float) or not comparisons:
        return []
    needed = plan.estimator.fewest_equivalent(margin, comparisons=comparisons)
    if needed is not None and most >= needed:
        return []
    number = f"at least {needed} seeds" if needed is not None else f"more than {FARTHEST} seeds"
    return [f"{plan.estimand.name}: no scores of {most} seeds can be equivalent within ±{margin:g}: {number} can"]
