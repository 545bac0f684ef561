"""Reading the whole record of a study from one store, and writing it to another."""

from __future__ import annotations

import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast
from uuid import uuid4

from pydantic import ConfigDict, Field, PlainSerializer

from attnlab._util.metrics import ITEMS_FILE
from attnlab.errors import UserError
from attnlab.tracking.artifacts import dataset_input, read_items
from attnlab.tracking.client import (
    connect,
    log_batch,
    readable_errors,
    runs_folder,
    search_runs,
    tracking_uri,
)
from attnlab.tracking.experiment import read_calls
from attnlab.tracking.record import NAME_TAG, PARENT_TAG, RunRecord, StudyRecord, restored, to_tags
from attnlab.tracking.runs import find_experiment
from attnlab.tracking.withdrawn import withdrawn_records

if TYPE_CHECKING:
    from mlflow import MlflowClient


Text = Annotated[str, Field(pattern="^[^\0]*$")]  # PostgreSQL stores no NUL; pydantic refuses surrogates, which have no UTF-8
Value = Annotated[float, PlainSerializer(repr)]  # JSON has no NaN
Time = Annotated[int, Field(ge=0, lt=253_402_300_800_000)]  # milliseconds since the epoch, up to the year 9999
INCOMPLETE = re.compile(r"([\w.-]+) \(incomplete [0-9a-f]{8}\)")  # name of a study that is being written


@dataclass(frozen=True)
class StoredRun:
    """One run as a store holds it, and the schema of a run in a bundle.

    Attributes:
        status: how it ended.
        start, end: in milliseconds since the epoch.
        points: every point of every metric.
        datasets: name, digest, source and context of each data set.
        files: path -> content of its artifacts.
        deleted: the run was withdrawn, and the store has it among its deleted runs.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: Text
    status: Literal["FINISHED", "FAILED", "KILLED"]
    start: Time
    end: Time
    tags: Mapping[Text, Text]
    params: Mapping[Text, Text]
    points: Sequence[tuple[Text, Value, Time, int]]
    datasets: Sequence[tuple[Text, Text, Text, Text]] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    deleted: bool = False

    @cached_property
    def record(self) -> RunRecord:
        """What its tags say; raises as `RunRecord.of_tags`."""
        return RunRecord.of_tags(self.tags, name=self.name, status=self.status, start=self.start, end=self.end)

    @property
    def key(self) -> str:
        """The fingerprint of its configuration, or the similar key of a trial or a refused cell."""
        return self.record.key

    @property
    def is_current(self) -> bool:
        """Whether the latest plan of its study contains it."""
        return self.record.is_current and not self.deleted


@dataclass(frozen=True)
class StoredStudy:
    """The record of a study.

    Attributes:
        tags: of its experiment.
        runs: all that have ended, in the order in which they started; then the ones that were withdrawn and deleted.
        running: number of runs that have not ended.
    """

    name: str
    tags: Mapping[str, str]
    runs: Sequence[StoredRun]
    running: int = 0


def read_study_record(study: str, root: str | Path | None = None, *, files: bool = True) -> StoredStudy:
    """Read the record of a study.

    Args:
        study: the study's name.
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``runs``.
        files: read the artifacts of its runs, too.

    Raises:
        UserError: the study does not exist, or the store cannot be used or does not respond.
    """
    client = connect(runs_folder(root))
    experiment = find_experiment(client, study)
    records = search_runs(client, experiment.experiment_id)
    ended = [record for record in records if record.status != "RUNNING"]
    deleted = withdrawn_records([], search_runs(client, experiment.experiment_id, deleted=True))
    return StoredStudy(
        study,
        experiment.tags,
        [
            *(_read_run(client, record, files=files) for record in ended),
            *(replace(_read_run(client, record, files=False), deleted=True) for record in deleted),
        ],
        running=len(records) - len(ended),
    )


def require_storable(record: StoredStudy) -> None:
    """Check the record of a bundle as a whole, before anything of it is used or written; its fields have the right types.

    Raises:
        ValueError: a tag does not fit the schema, the scores of items are damaged, or the store would refuse a name or a value.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.utils import validation

    try:
        for read in (StudyRecord.of_tags, read_calls):
            read(record.tags)
        for key, value in record.tags.items():
            validation._validate_experiment_tag(key, value)
        for run in record.runs:
            kept = run.record
            if run.tags.get(NAME_TAG, run.name) != run.name:
                raise ValueError(f"expected the name {run.name!r} in its tag {NAME_TAG}, got {run.tags[NAME_TAG]!r}")
            if kept.items and not run.deleted:
                read_items(run.files.get(ITEMS_FILE, b""), run.name, "items")
            for key, value in run.tags.items():
                validation._validate_tag(key, value)
            for key, value in run.params.items():
                validation._validate_param(key, value)
            for point in run.points:
                validation._validate_metric(*point)
    except (MlflowException, UserError, LookupError, TypeError, zlib.error) as error:
        raise ValueError(str(error)) from None


def write_study_record(record: StoredStudy, root: str | Path | None = None) -> None:
    """Write the record of a study to a store that has no study of this name.

    The study appears under its name once it is complete: what an interrupted call has written is no study, and is deleted by
    the next call.

    Raises:
        UserError: the store has an experiment of this name, or cannot be used.
    """
    folder = runs_folder(root)
    client, uri = connect(folder, create=True), tracking_uri(folder)
    with readable_errors(uri):
        if client.get_experiment_by_name(record.name) is not None:
            place = "ATTNLAB_RUNS names another folder of runs"
            raise UserError(f"expected no study {record.name!r} in {folder}, which has one ({place})")
        location = None if uri.startswith("http") else (folder / "artifacts" / record.name).as_uri()
        _delete_incomplete(client, record.name)
        unfinished = f"{record.name} (incomplete {uuid4().hex[:8]})"
        experiment_id = client.create_experiment(unfinished, artifact_location=location)
        try:
            for run in record.runs:
                _write_run(client, experiment_id, run)
            for key, value in {**record.tags, **to_tags(StudyRecord, study=record.name)}.items():
                client.set_experiment_tag(experiment_id, key, value)
            client.rename_experiment(experiment_id, record.name)
        except BaseException:
            with suppress(Exception):  # the store itself may have failed
                client.delete_experiment(experiment_id)
            raise


def _delete_incomplete(client: MlflowClient, study: str) -> None:
    for experiment in client.search_experiments(filter_string="name LIKE '% (incomplete %)'"):
        if (match := INCOMPLETE.fullmatch(experiment.name)) and match[1] == study:
            client.delete_experiment(experiment.experiment_id)


def _read_run(client: MlflowClient, record: RunRecord, *, files: bool) -> StoredRun:
    points = [
        (key, restored(point.value), point.timestamp, point.step)
        for key in sorted(record.metrics)
        for point in client.get_metric_history(record.run_id, key)
    ]
    inputs = client.get_run(record.run_id).inputs
    datasets = [
        (used.dataset.name, used.dataset.digest, used.dataset.source, next((tag.value for tag in used.tags), ""))
        for used in (inputs.dataset_inputs if inputs else ())
    ]
    return StoredRun(
        record.name,
        cast(Literal["FINISHED", "FAILED", "KILLED"], record.status),
        record.start,
        record.end or record.start,
        {name: text for name, text in record.tags.items() if name != PARENT_TAG},  # a store writes cells of its own
        record.logged,
        points,
        datasets,
        _read_files(client, record.run_id) if files else {},
    )


def _read_files(client: MlflowClient, run_id: str) -> dict[str, bytes]:
    """Return path -> content of the artifacts of a run."""
    paths = list(_artifact_paths(client, run_id))
    with tempfile.TemporaryDirectory() as folder:
        return {path: Path(client.download_artifacts(run_id, path, folder)).read_bytes() for path in paths}


def _artifact_paths(client: MlflowClient, run_id: str, folder: str | None = None) -> Iterator[str]:
    for entry in client.list_artifacts(run_id, folder):
        if entry.is_dir:
            yield from _artifact_paths(client, run_id, entry.path)
        else:
            yield entry.path


def _write_run(client: MlflowClient, experiment_id: str, run: StoredRun) -> None:
    run_id = client.create_run(experiment_id, start_time=run.start, tags=dict(run.tags), run_name=run.name).info.run_id
    log_batch(client, run_id, points=list(run.points), params=dict(run.params))
    if run.datasets:
        client.log_inputs(run_id, [dataset_input(*fields, run.record.data_sizes) for fields in run.datasets])
    with tempfile.TemporaryDirectory() as folder:
        for name, content in run.files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        client.log_artifacts(run_id, folder)
    client.set_terminated(run_id, run.status, end_time=run.end)
    if run.deleted:
        client.delete_run(run_id)
