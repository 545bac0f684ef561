"""The MLflow experiment of a study, and the calls that ran the study: each command with its study file, as tags.

A page needs the calls to say how to reproduce it. The records of runs are not enough: a call that only leaves out seeds starts
no run, and the study file may have changed between two calls.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.files import describe_error
from attnlab._util.redact import command_line
from attnlab.config.yaml import assignment
from attnlab.errors import UserError, one_line
from attnlab.tracking.cells import CellRun, write_cells
from attnlab.tracking.client import connect, runs_folder, tracking_uri
from attnlab.tracking.delivery import TrackingRejected
from attnlab.tracking.record import (
    CALL,
    NOTE_TAG,
    RUNS_VIEW_KEY,
    VIEW,
    VIEW_KEY,
    StudyRecord,
    entries,
    read_text,
    tag,
    text_tags,
    to_tags,
)
from attnlab.tracking.runs import find_experiment, require_study
from attnlab.tracking.tags import command, split_note, study_text, with_answer
from attnlab.tracking.views import view_tags

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

    from attnlab.planning.plan import Plan

logger = logging.getLogger(__name__)

MAX_COMMAND = 4_000  # characters
TRAINING_VERBS = ("run", "train")


def get_or_create_experiment(client: MlflowClient, study: str, root: Path) -> str:
    """Return the ID of the study's experiment.

    Args:
        study: name of the study, and of its experiment.
        root: the runs folder, which has the artifacts unless a server chooses their location.

    Raises:
        UserError: the experiment was deleted in MLflow or its record is damaged.
    """
    experiment = _find_or_create(client, study, root)
    if experiment.lifecycle_stage == "deleted":
        raise UserError(f"the experiment {study!r} was deleted in MLflow: restore it there, or rename the study")
    require_study(experiment)
    if tag("study", StudyRecord) not in experiment.tags:
        client.set_experiment_tag(experiment.experiment_id, tag("study", StudyRecord), study)
    return experiment.experiment_id


def log_answer(
    study: str, texts: Sequence[str], cells: Sequence[CellRun] = (), view: str = "", root: str | Path | None = None
) -> None:
    """Write the answer of a study, in paragraphs, above the plan on the page of its experiment; an earlier one is replaced.

    If the store does not accept it, a warning says so.

    Args:
        cells: the numbers of the answer.
        view: the preset view from now on.
    """
    try:
        client = connect(runs_folder(root))
        experiment = find_experiment(client, study)
        text = with_answer("\n\n".join(texts), split_note(experiment.tags)[1])
        client.set_experiment_tag(experiment.experiment_id, NOTE_TAG, text)
        write_cells(client, experiment.experiment_id, cells, runs_folder(root))
        for key, value in view_tags(VIEW_KEY, "Cells", view).items() if view else ():
            client.set_experiment_tag(experiment.experiment_id, key, value)
    except (UserError, OSError) as error:  # such as a read-only store
        logger.warning("MLflow does not show the answer of %s: %s", study, one_line(describe_error(error)))


def withdraw_answer(client: MlflowClient, experiment_id: str, root: Path) -> None:
    """Take back the answer of a study and its cells, because runs that it rests on no longer count; MLflow shows the runs."""
    tags = client.get_experiment(experiment_id).tags
    answer, plan = split_note(tags)
    if not answer:
        return
    write_cells(client, experiment_id, (), root)
    if runs := tags.get(f"{VIEW}{RUNS_VIEW_KEY}"):
        client.set_experiment_tag(experiment_id, f"{VIEW}{VIEW_KEY}", runs)
    client.set_experiment_tag(experiment_id, NOTE_TAG, plan)  # last: it says whether there is an answer to take back


def _find_or_create(client: MlflowClient, name: str, root: Path) -> Experiment:
    """Return the experiment of a study, deleted or not; a missing one is created."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        on_server = tracking_uri(root).startswith("http")
        folder = None if on_server else (root / "artifacts" / name).as_uri()
        try:
            tags = to_tags(StudyRecord, study=name)
            return client.get_experiment(client.create_experiment(name, artifact_location=folder, tags=tags))
        except TrackingRejected:  # it exists: created by another parent, or by a call whose response was lost
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    return experiment


@dataclass(frozen=True)
class Call:
    """One call that ran a study.

    Attributes:
        command: the command line, without secrets; of a call in Python, the command that does the same.
        file: name of the study file in the command; the file need not exist if a dictionary was given.
        text: content of the study file, without secrets.
    """

    command: str
    file: str
    text: str


def record_call(client: MlflowClient, experiment_id: str, plan: Plan) -> None:
    """Record the present call as the last one, unless the last one was the same."""
    file = plan.study.path.name if plan.study.path else f"{plan.study.study}.yaml"
    call = Call(_command(plan, file), file, study_text(plan))
    tags = client.get_experiment(experiment_id).tags
    earlier = read_calls(tags)
    if earlier[-1:] == [call]:
        return
    new = call_tags(call, number=len(earlier))
    for key, value in new.items():  # the call last: it refers to the file
        if tags.get(key) != value:
            client.set_experiment_tag(experiment_id, key, value)


def call_tags(call: Call, *, number: int) -> dict[str, str]:
    """Return the tags that record a call; `number` counts the earlier ones. The last tag refers to the others."""
    return text_tags(f"{CALL}{number:04d}", call.text, command=call.command, file=call.file)


def read_calls(tags: Mapping[str, str]) -> list[Call]:
    """Return the calls recorded in the tags of a study's experiment, the last one last."""
    calls = sorted(entries(tags, CALL).items())
    return [Call(fields["command"], fields["file"], read_text(tags, name)) for name, fields in calls]


def _command(plan: Plan, file: str) -> str:
    """Return this process's command line if it is one of attnlab's, else the command that does the same."""
    typed = command(most=MAX_COMMAND)
    if typed.startswith("attnlab ") and sys.argv[1:2] and sys.argv[1] in TRAINING_VERBS and len(typed) < MAX_COMMAND:
        return typed
    assignments = plan.study.assignments if plan.study.path else {}  # those over a dictionary are in its YAML
    sets = [f"--set={assignment(path, value)}" for path, value in assignments.items()]
    return command_line(["attnlab", "run", file, *sets])
