"""What the record of a study says about its plan and its table.

Runs may be finished, invalid after a change of the user's code, withdrawn, left out, or not run yet, and too few for a verdict.

Nothing is written. The user's variants are checked before the runs.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.text import count
from attnlab.errors import UserError
from attnlab.stats.exact_estimators import FARTHEST
from attnlab.tracking.client import run_folder, runs_folder, search_runs
from attnlab.tracking.runs import recorded_experiment
from attnlab.training.result import FILE

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.tracking.record import RunRecord

logger = logging.getLogger(__name__)


def finished_records(plan: Plan, root: str | Path | None = None) -> dict[str, RunRecord]:
    """Return the records of the plan's runs that have a result, trials included, by the keys of the runs.

    Args:
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``./runs``. Without a record of the study the result is empty.

    Raises:
        UserError: the MLflow store cannot be used or does not respond.
    """
    recorded = recorded_experiment(plan.study.study, root)
    if recorded is None:
        return {}
    client, experiment = recorded
    planned = _planned_keys(plan)
    records = search_runs(client, experiment.experiment_id)
    finished = (record for record in records if record.has_result(retries=plan.study.retries))
    return {record.key: record for record in finished if record.key in planned or _confirms(plan, record)}


def count_stored_results(plan: Plan, root: str | Path | None = None) -> int:
    """Return how many runs of a study without a record are finished, because studies of other names trained them.

    Runs are stored by their fingerprints, so a study that was renamed finds its runs.

    Args:
        root: as for `finished_records`.
    """
    if recorded_experiment(plan.study.study, root) is not None:
        return 0
    folder = runs_folder(root)
    return sum((run_folder(folder, key) / FILE).is_file() for key in _planned_keys(plan))


def _planned_keys(plan: Plan) -> set[str]:
    """Return the keys of the plan's runs, as far as they are known before the searches have ended."""
    keys = {run.key for run in (*plan.stage_runs, *plan.runs)}
    if plan.study.search is not None:
        digests = [plan.search_digest(cell) for cell in plan.cells if cell.refusal is None]
        keys |= {f"{digest}.t{trial:02d}" for digest in digests for trial in range(plan.study.search.trials)}
    return keys


def _confirms(plan: Plan, record: RunRecord) -> bool:
    """Return whether a record is a run of the plan with the values that a search chose."""
    search, seed, params = plan.study.search, record.seed, record.params
    cell = next((cell for cell in plan.cells if cell.name == record.cell and cell.refusal is None), None)
    if search is None or cell is None or seed not in plan.seeds or params.keys() != search.space.keys():
        return False
    try:
        return plan.confirm_run(cell, seed, params).key == record.key
    except UserError:  # values of another search space
        return False


def code_change_notes(plan: Plan, root: str | Path | None = None) -> list[str]:
    """Return a note for each file of the user's that has changed since runs of the plan were recorded.

    Without code of the user's in the plan, no record is read.

    Args:
        root: the folder of runs; default `ATTNLAB_RUNS`, else `runs`.
    """
    code = {cell.name: _digests(json.loads(cell.settings.to_json())) for cell in plan.cells if cell.refusal is None}
    if not any(code.values()):
        return []
    try:
        recorded = recorded_experiment(plan.study.study, root)
        records = [] if recorded is None else search_runs(recorded[0], recorded[1].experiment_id)
    except UserError as error:
        return [f"runs that a change of code invalidates are not known: {error.message}"]
    records = [record for record in records if record.is_finished]
    recorded_keys = {record.key for record in records}
    planned_keys = {(run.cell.name, run.seed, json.dumps(run.params)): run.key for run in plan.runs}  # none with a search
    changed: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for record in (record for record in records if record.is_current):
        cell, seed = record.cell, record.seed
        is_planned = plan.searched or (cell in code and seed in plan.seeds)
        key = planned_keys.get((cell, seed, json.dumps(record.params)))
        if cell in code and is_planned and key not in recorded_keys:
            before = _digests(record.config)
            changed.update(name for name, digest in code[cell].items() if before.get(name, digest) != digest)
            added.update(code[cell].keys() - before.keys())
    notes = {f"{name} (or a file that it imports) has changed since": count for name, count in sorted(changed.items())}
    notes |= {f"{name} counts now, and did not when": count for name, count in sorted(added.items())}
    return [
        f"{words} {count} run{'' if count == 1 else 's'} of this study "
        f"{'was' if count == 1 else 'were'} recorded: {'it' if count == 1 else 'they'} will be trained again"
        for words, count in notes.items()
    ]


def _digests(config: dict[str, Any]) -> dict[str, str]:
    """Return the digests of the user's code, or of the files of a program, by name, from a configuration as JSON."""
    sources = {Path(path).name: digest for path, digest in config.get("sources", {}).items()}
    return sources | config.get("packages", {}) | config.get("files", {})


def check_own_variants(plan: Plan, *, start: Callable[[str], None] | None = None) -> None:
    """Check the variants, components and position schemes of a plan that are not attnlab's, at the shapes of the study.

    What has passed is not checked again until its code or its shapes change.

    Args:
        plan: its refused cells are not checked.
        start: called with a description of each check before it runs.

    Raises:
        UserError: a check failed.
    """
    if plan.study.command is not None:
        return
    configs = [cell.config for cell in (*plan.stages, *plan.cells) if cell.refusal is None]
    if not any(config.sources or config.packages for config in configs):
        return
    from attnlab.testing.study_contract import require_correct_variants

    if checked := require_correct_variants(configs, start=start):
        logger.info("checked %s at the shapes of the study", count(checked, "variant"))


def seed_notes(plan: Plan, *, max_seeds: int | None = None) -> list[str]:
    """Return notes when no scores of the planned seeds can be conclusive, with the smallest number of seeds that can.

    An exact test has a smallest p-value. The t-test of a mean has none, so there are no notes on it.

    Args:
        plan: The plan.
        max_seeds: The limit of ``--until-conclusive``; None: the study's limit, or judge its seeds.
    """
    if not plan.estimator.is_exact or not (comparisons := count_comparisons(plan)):
        return []
    most = max(len(plan.seeds), max_seeds or plan.study.max_seeds or 0)
    return [*_better_or_worse(plan, comparisons, most), *_equivalent(plan, most)]


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


def _better_or_worse(plan: Plan, comparisons: int, seeds: int) -> list[str]:
    needed = plan.estimator.fewest_seeds(comparisons=comparisons)
    if needed is None or seeds >= needed:
        return []
    table = f" in a table of {comparisons} comparisons" if comparisons > 1 else ""
    p = f"the smallest p-value of {seeds} seeds is {plan.estimator.smallest_p(seeds):.2g}" if seeds > 1 else "it has one seed"
    return [f"{plan.estimand.name}: no scores of this study can be better or worse{table}: {p}; at least {needed} seeds can"]


def _equivalent(plan: Plan, most: int) -> list[str]:
    margin = plan.study.margin
    comparisons = count_comparisons(plan, controls=False)
    if not isinstance(margin, float) or not comparisons:
        return []
    needed = plan.estimator.fewest_equivalent(margin, comparisons=comparisons)
    if needed is not None and most >= needed:
        return []
    number = f"at least {needed} seeds" if needed is not None else f"more than {FARTHEST} seeds"
    return [f"{plan.estimand.name}: no scores of {most} seeds can be equivalent within ±{margin:g}: {number} can"]
