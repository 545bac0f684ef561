"""Train the studies of a profile: every variant at the first level of each diagnostic, then the survivors at the next one.

Each diagnostic is an ordinary study, which is run again with one level more for the variants that solved the last one. The runs
of all profiles in one runs folder belong to the same studies, so that a variant is trained once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.config.axes import labels
from attnlab.config.grid import cell_name
from attnlab.errors import UserError
from attnlab.extras.profile.abilities import Ability, level_label
from attnlab.extras.profile.results import AbilityResult, Level, LevelResult, level_result
from attnlab.extras.profile.studies import Entry, entry_labels, require_seeds, study_fields, write_study
from attnlab.planning.plan import plan
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.study.execution.concurrency import Workers
from attnlab.study.execution.job import TRAIN
from attnlab.study.run import StudyResult, run
from attnlab.study.start_check import check_own_variants
from attnlab.tracking.runs import load_runs

if TYPE_CHECKING:
    from attnlab.planning.plan import Cell, Plan
    from attnlab.study.execution.progress import ProgressDisplay


def run_profile(
    entries: Sequence[Entry],
    abilities: Sequence[Ability],
    *,
    folder: Path,
    seeds: int = 3,
    imports: Sequence[str] = (),
    workers: Workers | None = None,
    root: str | Path | None = None,
    storage: str | None = None,
    check: bool = True,
    display: ProgressDisplay | None = None,
    train: str = TRAIN,
) -> list[AbilityResult]:
    """Train what is left of a profile, and return the results of each diagnostic.

    Args:
        entries: The variants, each different from the others.
        abilities: The diagnostics.
        folder: Where the studies are written, one file for each diagnostic.
        seeds: Number of seeds of each level, at least 3.
        imports: Files that register classes.
        workers, root, storage, display, train: As for ``attnlab.run``.
        check: Check variants of the user's quickly before they are trained.

    Raises:
        UserError: a variant that no diagnostic supports or that fails its check, or as ``attnlab.run``.
    """
    require_seeds(seeds)
    options = {"seeds": seeds, "imports": imports, "folder": folder}
    first = [_plan(ability, entries, [1] * len(entries), **options) for ability in abilities]
    _require_supported(entries, first)
    if check:
        check_own_variants(_longest(abilities, first))
    results = []
    for ability, study_plan in zip(abilities, first, strict=True):
        reached = [1] * len(entries)
        while True:
            result = run(
                study_plan,
                workers=workers,
                root=root,
                storage=storage,
                display=display,
                only={"variant": entry_labels(entries)},  # the records of other profiles stay as they are
                reference_scores=False,
                check=False,
                train=train,
            )
            by_entry = _level_results(result, entries, ability, reached)
            grown = [min(len(levels) + levels[-1].earns_next, len(ability.levels)) for levels in by_entry]
            if grown == reached:
                break
            reached = grown
            study_plan = _plan(ability, entries, reached, **options)
        results.append(_ability_result(ability, study_plan, dict(zip(entry_labels(entries), by_entry, strict=True)), root))
    return results


def _plan(ability: Ability, entries: Sequence[Entry], reached: Sequence[int], *, folder: Path, **options: Any) -> Plan:
    """Write the study of a diagnostic and return its plan."""
    path = folder / f"{ability.name}.yaml"
    write_study(path, study_fields(ability, entries, reached, folder=folder, **options))
    return plan(path)


def _require_supported(entries: Sequence[Entry], plans: Sequence[Plan]) -> None:
    """Raise ``UserError`` if the plan refuses a variant in every diagnostic."""
    for i, label in enumerate(entry_labels(entries)):
        cells = [cell for study_plan in plans for cell in _cells_of(study_plan, entries, i)]
        if cells and all(cell.refusal for cell in cells):
            reasons = dict.fromkeys(str(cell.refusal) for cell in cells)
            raise UserError(f"cannot be profiled: {'; '.join(reasons)}", label)


def _cells_of(study_plan: Plan, entries: Sequence[Entry], index: int) -> list[Cell]:
    axis = labels(study_plan.study.axes["variant"], axis="variant")
    return [cell for cell in study_plan.cells if cell.axes["variant"] == axis[index]]


def _longest(abilities: Sequence[Ability], plans: Sequence[Plan]) -> Plan:
    """Return the plan with the longest rows; variants are checked at its shapes."""
    lengths = [ability.cls(**ability.levels[0]).length for ability in abilities]
    return plans[lengths.index(max(lengths))]


def _level_results(
    result: StudyResult, entries: Sequence[Entry], ability: Ability, reached: Sequence[int]
) -> list[tuple[LevelResult, ...]]:
    """Return the results of each variant at the levels that it has reached."""
    spec = result.comparison()
    cells: Mapping[str, CellSummary] = {cell.name: cell for cell in summarize_cells(result.records(), spec)}
    axis = labels(result.plan.study.axes["variant"], axis="variant")

    def at(variant: int, level: int) -> LevelResult:
        name = cell_name({"variant": axis[variant], "level": ability.level_names[level]})
        return level_result(cells[spec.doubles.get(name, name)])

    return [tuple(at(i, level) for level in range(reached[i])) for i in range(len(entries))]


def _ability_result(
    ability: Ability, study_plan: Plan, results: Mapping[str, tuple[LevelResult, ...]], root: str | Path | None
) -> AbilityResult:
    names = {cell.name for cell in study_plan.cells}
    runs = [row for row in load_runs(study_plan.study.study, root).to_dict("records") if row["cell"] in names]
    tasks = [ability.cls(**options) for options in ability.levels]
    return AbilityResult(
        task=ability.name,
        about=ability.about,
        paper=tasks[0].paper,
        metric=study_plan.metric,
        direction=study_plan.direction,
        threshold=ability.threshold,
        levels=tuple(
            Level(level_label(options), task.chance(), task.length, ability.steps)
            for options, task in zip(ability.levels, tasks, strict=True)
        ),
        results=results,
        devices=tuple(dict.fromkeys(row["device"] for row in runs)),
        versions=tuple(dict.fromkeys(row["versions"] for row in runs)),
    )
