"""The choice of records behind a study's table, from the study's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.stats.cells import ComparisonSpec
from attnlab.stats.search import exclude_trials
from attnlab.stats.selection import Selection, by_cell, describe_change, find_not_run
from attnlab.tracking.attempts import failures, state_of
from attnlab.tracking.client import search_runs
from attnlab.tracking.runs import decode_questions, recorded_experiment
from attnlab.tracking.tags import read_planned
from attnlab.tracking.withdrawn import RESULTS, left_out_records, place_of, places, shown_records, withdrawn_records


def load_selection(spec: ComparisonSpec, rows: Sequence[Mapping[str, Any]], root: str | Path | None = None) -> Selection:
    """Return the choice of records behind the table of a study; a study without a record has none.

    Args:
        spec: The comparison that the study makes.
        rows: Its runs, trials of a search included, as `attnlab.stats.compare.summarize_cells` takes them.
        root: Folder of the runs.

    Raises:
        UserError: the MLflow store cannot be used or does not respond.
    """
    if (recorded := recorded_experiment(spec.study, root)) is None:
        return Selection()
    client, experiment = recorded
    active, deleted = (search_runs(client, experiment.experiment_id, deleted=stage) for stage in (False, True))
    shown, questions = shown_records(active), decode_questions(experiment)
    failed_before = {place_of(record): failures(record) > 0 and state_of(record) in RESULTS for record in shown}
    withdrawn, left_out = places(withdrawn_records(active, deleted), shown), places(left_out_records(active), shown)
    not_run = find_not_run(read_planned(experiment.tags), exclude_trials(rows), spec) - withdrawn - left_out
    retried = [place for place, is_retried in failed_before.items() if is_retried]
    return Selection(
        by_cell(withdrawn),
        by_cell(left_out - failed_before.keys()),
        by_cell(not_run),
        by_cell(retried),
        describe_change(questions[0], questions[-1]) if questions[1:] else "",
    )
