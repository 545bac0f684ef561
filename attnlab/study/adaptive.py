"""Adaptive seeds: run, judge the verdicts, and add a seed to every cell with an inconclusive verdict.

A cell that would most likely still be inconclusive with all of its seeds receives no more (`attnlab.stats.predict`). In a
study with a sweep, all cells receive the seed: a further seed may extend the grid, which all cells share.

The rule depends on finished runs alone, in the order of the looks. Therefore rerunning the command resumes, several
parents on one storage make the same plan, and the report, which reads the looks from the study's experiment, reaches the
same verdicts.

The looks are announced before the first one. A study that was judged before has no first one to come: its looks are then
further ones, as when seeds are added by hand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.log import log_to
from attnlab.config.study import check_added_seeds
from attnlab.config.types import MAX_ADDED_SEEDS
from attnlab.errors import UserError
from attnlab.stats.compare import CellSummary, comparisons, lose_alike
from attnlab.stats.paired import is_constant
from attnlab.stats.predict import FUTILITY, Futility, find_futility
from attnlab.stats.records import comparison_name
from attnlab.stats.verdict import Reason
from attnlab.study.execution.progress import ProgressDisplay

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.study.result import StudyResult

logger = logging.getLogger(__name__)

MAX_SEEDS = MAX_ADDED_SEEDS
MIN_EQUAL = 3  # equal scores of as many seeds are no chance: a program that ignores its seed gets no more of them


def run_until_conclusive(
    study: str | Path | dict[str, Any] | Plan,
    *,
    run: Callable[..., StudyResult],
    max_seeds: int | None = None,
    futility: float = FUTILITY,
    sets: dict[str, Any] | None = None,
    only: dict[str, Any] | None = None,
    root: str | Path | None = None,
    retry: Collection[str] = (),
    display: ProgressDisplay | None = None,
    **options: Any,
) -> StudyResult:
    """Run a study, then add one seed at a time where a verdict is inconclusive, up to ``max_seeds`` seeds.

    A cell with a conclusive verdict gets no more seeds, and neither does a futile one, which would most likely remain
    inconclusive; the baseline of another cell gets the same seeds as it. With a sweep, all cells get the seeds, because they
    share a grid. New seeds follow the largest of the study's (of a searched study: of ``confirm.seeds``). With ``only``, the
    chosen cells are compared with what is finished, and get seeds if their baseline is chosen, too.

    Args:
        run: trains the seeds of a round: ``attnlab.study.run.run``.
        max_seeds: the largest number of seeds of a cell, the study's included.
        futility: a cell with a smaller probability of a verdict with ``max_seeds`` seeds gets no more; 0: every cell does.
        study, sets, only, root, retry, display, options: as for ``attnlab.run``.

    Returns:
        The result with the runs of all looks.

    Raises:
        UserError: the study has factors, no baseline, or more than ``max_seeds`` seeds; ``futility`` is no probability; and as
            ``attnlab.run``.
    """
    from attnlab.planning.plan import Plan
    from attnlab.planning.plan import plan as make_plan
    from attnlab.study.looks import announce_looks
    from attnlab.study.result import StudyResult

    plan = study if isinstance(study, Plan) else make_plan(study, sets=sets or {}, only=only or {})
    max_seeds = max_seeds or plan.study.max_seeds or MAX_SEEDS
    require_seeds_can_be_added(plan, max_seeds=max_seeds, futility=futility)
    plan = replace(plan, study=plan.study.model_copy(update={"max_seeds": None}))  # each round trains the seeds as listed
    part, whole, rows = plan, plan, {}
    selected = {cell.name for cell in plan.cells}
    while True:
        chosen = only if part is plan else {"cells": [cell.name for cell in part.cells]}  # the other cells do not change
        tried = {row.state for row in rows.values()}  # in this call: a state is retried once, not at every look
        result = run(part, only=chosen, root=root, retry=set(retry) - tried, display=display, **options)
        rows |= {row.name: row for row in result.rows}
        first = max(2, len(plan.seeds))
        announce_looks(plan.study.study, first, max(first, max_seeds), root)
        whole = replace(with_seeds(plan, part.seeds), sweep_extensions=result.plan.sweep_extensions)
        with log_to((display or ProgressDisplay()).print):
            undecided = _take_look(plan.study.study, max_seeds, root, selected=selected, futility=futility)
            if not undecided or len(part.seeds) >= max_seeds:
                return StudyResult(whole, list(rows.values()), reference_scores=result.reference_scores)
            open_cells = ", ".join(dict.fromkeys(row.name for row in undecided))
            logger.info("%d seeds, still inconclusive: %s", len(part.seeds), open_cells)
        names = selected if plan.study.sweep else {name for row in undecided for name in (row.name, row.baseline)}
        part = with_seeds(plan, [*part.seeds, next_seed(plan, part.seeds)])
        part = replace(part, cells=[cell for cell in plan.cells if cell.name in names])


def _take_look(
    study: str, max_seeds: int, root: str | Path | None, *, selected: Collection[str], futility: float
) -> list[CellSummary]:
    """Judge a study, and record the look; return the inconclusive comparisons that are not futile."""
    from attnlab.study.comparison import compare_info, load_judged
    from attnlab.study.looks import record_futility

    info, runs = load_judged(study, root)
    rows = comparisons(compare_info(info, runs).cells)
    by_name = {row.name: row for row in rows}
    undecided = [row for row in rows if row.is_inconclusive and {row.name, row.baseline} <= set(selected)]
    undecided = [row for row in undecided if can_be_conclusive(row, by_name[row.baseline], max_seeds)]
    futile = find_futile(undecided, max_seeds, below=futility)
    for name, state in futile.items():
        if info.spec.futile.get(name) != state:
            logger.info("no more seeds for %s: %d would decide (%.0f %%)", name, state.seeds, 100 * state.probability)
    record_futility(study, futile, root)
    return [row for row in undecided if comparison_name(row.name, row.baseline) not in futile]


def can_be_conclusive(row: CellSummary, baseline: CellSummary, max_seeds: int) -> bool:
    """Return False when seeds cannot decide a comparison: the program ignores them, or the cells lost different numbers."""
    reason = row.verdict.reason if row.verdict else None
    if reason is Reason.CONSTANT:
        return len(row.values) < MIN_EQUAL or not all(is_constant([*cell.values.values()]) for cell in (row, baseline))
    if reason is Reason.LOSSES:
        return lose_alike((len(row.lost), len(baseline.lost)), (max_seeds, max_seeds))
    return True


def find_futile(undecided: Sequence[CellSummary], max_seeds: int, *, below: float) -> dict[str, Futility]:
    """Return name -> futility of those inconclusive comparisons that most likely remain so with ``max_seeds`` seeds."""
    futile = {}
    for row in undecided:
        pairs = row.difference.interval.n if row.difference else 0
        lost = sum(row.states.values()) - pairs  # seeds without a pair, which stay without one
        futility = find_futility(row.difference, max_seeds - lost, below=below)
        if futility is not None:
            futile[comparison_name(row.name, row.baseline)] = futility
    return futile


def next_seed(plan: Plan, seeds: list[int]) -> int:
    """Return the seed after the largest one, but never the seed of the search, on which the parameters were chosen."""
    search = plan.study.search
    seed = max(seeds) + 1
    return seed + 1 if search is not None and seed == search.seed else seed


def with_seeds(plan: Plan, seeds: list[int]) -> Plan:
    """Return the plan with other seeds for the reported runs."""
    study, confirm = plan.study, plan.study.confirm
    changed = {"seeds": seeds} if confirm is None else {"confirm": confirm.model_copy(update={"seeds": seeds})}
    return replace(plan, study=study.model_copy(update=changed))


def require_seeds_can_be_added(plan: Plan, *, max_seeds: int, futility: float = FUTILITY) -> None:
    """Raise ``UserError`` when ``run_until_conclusive`` would refuse these options."""
    if not 0 <= futility < 1:
        raise UserError(f"expected a probability of at least 0 and below 1, got {futility}", "--futility")
    check_added_seeds(plan.study, max_seeds, place="--until-conclusive")
