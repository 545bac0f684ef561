"""The notes of a plan, on its analyses, its cells and their runs, in the order in which they are shown."""

from collections.abc import Iterator, Sequence

from attnlab.config.grid import CellConfig
from attnlab.config.tasks import TaskQuestion
from attnlab.errors import UserError
from attnlab.planning.effects import search_effect_notes
from attnlab.planning.matching import CellPair
from attnlab.planning.notes import (
    baseline_notes,
    cache_notes,
    confound_notes,
    control_notes,
    direction_notes,
    double_notes,
    layer_notes,
    length_notes,
    margin_notes,
)
from attnlab.planning.planned import Cell, Plan
from attnlab.planning.resolve import Resolver
from attnlab.planning.search import search_notes
from attnlab.planning.sizes import planned_runs, schedule_notes, size_notes
from attnlab.planning.stages import test_text_notes
from attnlab.planning.tasks import share_notes, stop_notes
from attnlab.registry import ANALYSES

# The built-in analyses that have notes, each with its section of the study.
ANALYSIS_SECTIONS = {"trend": "over", "factorial": "factors", "stages": "stages"}


def plan_notes(
    planned: Plan,
    resolved: Sequence[CellPair],
    kept: Sequence[CellPair],
    *,
    wanted: Sequence[str],
    resolver: Resolver,
    questions: Sequence[TaskQuestion],
) -> Iterator[str]:
    """Yield the notes of a plan, in the order in which they are shown.

    Args:
        resolved: all cells of the study.
        kept: the cells of the plan; they have no doubles.
        wanted: names of the cells that ``only`` selects, doubles included.
        questions: of the study's tasks.
    """
    study, cells = planned.study, planned.cells
    yield from double_notes(study, resolved, planned.doubles, wanted)
    yield from analysis_notes(planned)
    yield from (f"{cell.name!r} is matched: {cell.matched}" for cell in cells if cell.matched)
    yield from baseline_notes(study, cells, planned.baseline_of, every=[cell for cell, _ in resolved])
    refusals = {tuple(cell.axes.values()): resolution.refusal for cell, resolution in resolved}
    yield from control_notes(study, cells, refusals=refusals)
    yield from margin_notes(study)
    yield from confound_notes(study, cells, planned.baseline_of)
    yield from stop_notes(kept, planned.estimator)
    runs = planned_runs(kept)
    yield from schedule_notes(study, runs)
    yield from size_notes(study, runs, questions)
    yield from length_notes(kept)
    yield from layer_notes(kept)
    yield from cache_notes(kept)
    yield from test_text_notes(kept)
    goals = {question.metric: question.direction for question in planned.tasks.values()}
    for metric, direction in (goals or {planned.metric: planned.direction}).items():
        yield from direction_notes(metric, direction)
    yield from (f"data: {note}" for note in dict.fromkeys(note for cell in cells for note in cell.data_notes))
    if study.search is not None:
        tasks = [resolution.task for _, resolution in kept]
        yield from search_notes(study, cells, resolver=resolver, tasks=tasks, goal_of=planned.metric_of)
        yield from search_effect_notes(study, [(resolution.config, resolution.task) for _, resolution in kept])


def analysis_notes(plan: Plan) -> Iterator[str]:
    """Yield the notes of the analyses that a study has.

    Raises:
        UserError: The study names an analysis that does not exist, or cannot be analyzed in this way.
    """
    study = plan.study
    for name, section in ANALYSIS_SECTIONS.items():
        if getattr(study, section):
            yield from ANALYSES.get(name)().notes(plan)
    for i, ref in enumerate(study.analyses):
        if ANALYSES.is_builtin(ref):
            message = f"expected an analysis that you wrote, got {ref!r}: built-in analyses are automatic"
            raise UserError(message, study.where("analyses", i))
        try:
            cls = ANALYSES.get(ref, relative_to=study.folder)
        except UserError as error:
            raise UserError(str(error), study.where("analyses", i)) from error
        if not ANALYSES.has_base(cls):
            message = f"expected a subclass of attnlab.report.Analysis, got {ref!r}, which is none"
            raise UserError(message, study.where("analyses", i))
        yield from cls().notes(plan)


def command_notes(planned: Plan, cells: Sequence[Cell], *, every: Sequence[CellConfig]) -> Iterator[str]:
    """Yield the notes of the plan of a study of a program.

    Args:
        cells: all cells of the study.
        every: the same, as configured.
    """
    study, margin = planned.study, planned.margin
    assert not isinstance(margin, dict)  # a study of a program has one metric
    yield from baseline_notes(study, planned.cells, planned.baseline_of, every=every)
    yield from control_notes(study, planned.cells, refusals={tuple(cell.axes.values()): None for cell in cells})
    yield from direction_notes(planned.metric, planned.direction)
    yield from analysis_notes(planned)
    yield from margin_notes(study)
    yield from planned.estimator.margin_notes(margin)
    yield from share_notes(planned.metric, margin) if planned.estimator.in_unit else ()
