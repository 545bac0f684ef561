"""The comparison of a study: stated once, from its plan, and read back from its record with its runs and looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from attnlab.config.factors import factorial_design
from attnlab.errors import UserError, one_line
from attnlab.stats.cells import ComparisonSpec, Goal
from attnlab.stats.compare import summarize_cells
from attnlab.stats.compared import Compared, compare_cells
from attnlab.stats.items import UncertaintyParts, judge_items
from attnlab.stats.look_history import LookHistory
from attnlab.stats.records import RunRow, exclude_trials
from attnlab.stats.selection import Selection, by_cell, describe_change, find_not_run
from attnlab.study.looks import look_history, record_look
from attnlab.tracking.artifacts import ReferenceScore, read_reference_scores
from attnlab.tracking.client import connect, runs_folder, search_runs
from attnlab.tracking.experiment import Call, read_calls
from attnlab.tracking.record import RESULTS, RunRecord, StudyRecord
from attnlab.tracking.runs import NoRunsError, find_experiment, row_of
from attnlab.tracking.withdrawn import left_out_records, places, withdrawn_records

if TYPE_CHECKING:
    import pandas

    from attnlab.planning.plan import Plan

MAX_COMMANDS = 6  # a study may have been resumed many times
SPEC = TypeAdapter(ComparisonSpec)


def comparison_of(plan: Plan) -> ComparisonSpec:
    """Return the comparison that a study makes."""
    study = plan.study
    tasks = {label: Goal(asked.metric, asked.direction, asked.margin) for label, asked in plan.tasks.items()}
    margins = [asked.margin for asked in study.questions]
    return ComparisonSpec(
        study.study,
        tuple(next((cell.axes for cell in (*plan.cells, *plan.unselected)), {})),
        plan.metric,
        plan.direction,
        margin=plan.margin if not isinstance(plan.margin, dict) else None,
        baselines=tuple(study.baselines),
        control=study.control,
        estimand=plan.estimand,
        moderate=study.moderate,
        doubles=plan.doubles,
        over=study.over_axis,
        sweep=study.swept_path or "",
        factorial=factorial_design(study),
        task_axis=plan.task_axis,
        tasks=tasks,
        order=plan.order,
        skipped=tuple((cell.name, cell.because) for cell in plan.skipped),
        search=study.search,
        analyses=tuple(study.analyses),
        question=study.question or "",
        further=tuple(Goal(asked.metric, asked.direction, margin) for asked, margin in zip(plan.further, margins, strict=True)),
    )


def to_json(spec: ComparisonSpec) -> dict[str, Any]:
    """Return a comparison as the study's record has it."""
    return SPEC.dump_python(spec, mode="json", exclude_defaults=True)


def recorded_comparisons(record: StudyRecord) -> list[ComparisonSpec]:
    """Return the comparisons that a study has made since it had results, the present one last.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    try:
        specs = [SPEC.validate_python(fields) for fields in record.comparisons]
    except ValidationError as error:
        raise UserError(f"the recorded comparison is damaged: {one_line(str(error))}", record.name) from None
    if not specs:
        raise UserError(f"the record of the study {record.name!r} has no comparison: run the study again", record.name)
    return specs


@dataclass(frozen=True)
class StudyInfo:
    """The comparison of a study, and the way it was run.

    Attributes:
        spec: The comparison that the study makes, with the looks that its verdicts are corrected for.
        yaml: The YAML file that it was written in.
        command: The command that ran it, with a line for each different command that resumed it.
        reference_scores: Scores of methods without a network on the same data.
        calls: The calls that ran it, as recorded.
        selection: The choice of its records.
        uncertainty: The uncertainty of each difference, split into seeds and test items.
        task: The task that the page is about, for a study of several tasks, each of which has a page.
    """

    spec: ComparisonSpec
    yaml: str = ""
    command: str = ""
    reference_scores: tuple[ReferenceScore, ...] = ()
    calls: tuple[Call, ...] = ()
    selection: Selection = Selection()
    uncertainty: tuple[UncertaintyParts, ...] = ()
    task: str = ""


def load_judged(study: str, root: str | Path | None = None) -> tuple[StudyInfo, pandas.DataFrame]:
    """Read a study and its runs, record the look at its verdicts, and correct them for all looks; raises as `load_info`."""
    info, runs, looks = _read(study, root)
    if not (spec := info.spec).is_judged:
        return info, runs
    cells = summarize_cells(exclude_trials(rows_of(runs)), spec)
    return replace(info, spec=record_look(spec, cells, looks, root).apply(spec)), runs


def load_info(study: str, root: str | Path | None = None) -> tuple[StudyInfo, pandas.DataFrame]:
    """Read a study and its runs.

    Raises:
        UserError: The study does not exist, or its record is damaged.
        NoRunsError: It has no runs.
    """
    return _read(study, root)[:2]


def _read(study: str, root: str | Path | None) -> tuple[StudyInfo, pandas.DataFrame, LookHistory]:
    """Read a study, its runs, and the looks at them; raises as `load_info`."""
    import pandas

    client = connect(folder := runs_folder(root))
    record = find_experiment(client, study)
    active, deleted = (search_runs(client, record.experiment_id, deleted=stage) for stage in (False, True))
    rows = [row_of(run, folder) for run in active if run.is_current]
    if not rows:
        raise NoRunsError(study)
    specs, calls, runs = recorded_comparisons(record), read_calls(record.tags), pandas.DataFrame(rows)
    looks = look_history(record, active, deleted)
    spec = looks.apply(specs[-1])
    selection = _selection(record.planned, active, deleted, rows_of(runs), spec)
    scores = tuple(read_reference_scores(client, record.experiment_id))
    commands = dict.fromkeys(run.command for run in active if run.command.startswith("attnlab "))
    command, yaml = "\n".join([*commands][:MAX_COMMANDS]), calls[-1].text if calls else ""
    selection = replace(selection, changed=describe_change(specs[0], specs[-1]))
    return StudyInfo(spec, yaml, command, scores, tuple(calls), selection), runs, looks


def _selection(
    planned: Mapping[str, Sequence[int]],
    active: Sequence[RunRecord],
    deleted: Sequence[RunRecord],
    rows: Sequence[RunRow],
    spec: ComparisonSpec,
) -> Selection:
    """Return the choice of records behind the table of a study."""
    shown = [record for record in active if record.is_current and record.is_compared]
    failed_before = {(r.cell, r.seed): r.failures > 0 and r.state in RESULTS for r in shown}
    withdrawn, left_out = places(withdrawn_records(active, deleted), shown), places(left_out_records(active), shown)
    not_run = find_not_run(planned, exclude_trials(rows), spec) - withdrawn - left_out
    retried = [place for place, is_retried in failed_before.items() if is_retried]
    return Selection(by_cell(withdrawn), by_cell(left_out - failed_before.keys()), by_cell(not_run), by_cell(retried))


def rows_of(runs: pandas.DataFrame) -> list[RunRow]:
    """Return the rows of a table of runs."""
    return [{str(name): value for name, value in run.items()} for run in runs.to_dict("records")]


def compare_info(info: StudyInfo, runs: pandas.DataFrame) -> Compared:
    """Return the compared cells of a study as it is recorded; takes what `load_judged` returns."""
    compared = compare_cells(rows_of(runs), info.spec, selection=info.selection)
    return replace(compared, cells=judge_items(compared.cells, info.uncertainty, metric=info.spec.metric))
