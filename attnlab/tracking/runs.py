"""Reading studies back from MLflow: runs, curves and questions.

MLflow's client reads one metric of one run per request, which takes a minute for 2,000 runs. A database is asked once for the
curves of all runs of an experiment.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.cost_metrics import describe_in
from attnlab._util.metrics import is_curve
from attnlab._util.text import escape_surrogates
from attnlab.config.command import CommandConfig
from attnlab.config.comparability import flatten_config, identity_of_test, test_identity
from attnlab.config.yaml import read
from attnlab.errors import UserError, nearest
from attnlab.tracking.client import (
    NOTICE_SECONDS,
    connect,
    is_local,
    is_study,
    readable_errors,
    runs_folder,
    search_runs,
    search_studies,
    tracking_uri,
)
from attnlab.tracking.record import DamagedRecord, RunRecord, StudyRecord, restored, with_tag
from attnlab.tracking.system_metrics import PREFIX

if TYPE_CHECKING:
    import pandas
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

logger = logging.getLogger(__name__)

Point = tuple[int, float]  # step, value
Curves = dict[tuple[str, str], list[Point]]  # (run ID, metric) -> points in the order in which they were logged


class NoRunsError(UserError):
    """The error of a study that has no runs to show."""

    def __init__(self, study: str) -> None:
        super().__init__(f"the study {study!r} has no runs yet, or all were withdrawn")


def study_name(study: str | Path) -> str:
    """Return the name of a study, given its name or its YAML file."""
    path = Path(study)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        study = read(path, what="a study")[0].get("study", "")
    return str(study)


def find_experiment(client: MlflowClient, study: str) -> StudyRecord:
    """Return the record of a study.

    Raises:
        UserError: there is no such study (the message suggests similar names), or its experiment was deleted in MLflow.
    """
    experiment = client.get_experiment_by_name(study)
    if experiment is None or not is_study(experiment):
        known = [existing.name for existing in search_studies(client)]
        foreign = ": the MLflow experiment of this name is not attnlab's" if experiment else ""
        of_file = f": expected a study's name, got a file; the study in {study} is {study_name(study)!r}"
        hint = foreign or (of_file if study_name(study) != study else "") or nearest(study, known)
        raise UserError(f"no study {study!r}{hint}; known studies: {', '.join(known) or 'none'}")
    if experiment.lifecycle_stage == "deleted":
        raise UserError(f"the experiment {study!r} was deleted in MLflow: restore it there")
    return require_study(experiment)


def recorded_experiment(study: str, root: str | Path | None = None) -> tuple[MlflowClient, StudyRecord] | None:
    """Return a client and the record of a study, or None when the study has no record. Creates nothing.

    Args:
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``./runs``.

    Raises:
        UserError: the MLflow store cannot be used or does not respond.
    """
    folder = runs_folder(root)
    if is_local(folder) and not (folder / "mlflow.db").exists():
        return None
    client = connect(folder)
    experiment = client.get_experiment_by_name(study)
    if experiment is None or experiment.lifecycle_stage == "deleted" or not is_study(experiment):
        return None
    return client, require_study(experiment)


def require_study(experiment: Experiment) -> StudyRecord:
    """Return the record in the experiment of a study.

    Raises:
        UserError: a tag of it cannot be read.
    """
    try:
        return StudyRecord.of(experiment)
    except DamagedRecord as damage:
        raise UserError(f"cannot use the record of the study {experiment.name!r}: {damage}", "MLflow") from None


@dataclass(frozen=True)
class StudyEntry:
    """A recorded study, with the times (UTC) of its creation and of the start of its latest run; None: there is none."""

    name: str
    created: datetime | None
    latest_run: datetime | None


def list_studies(root: str | Path | None = None) -> list[StudyEntry]:
    """Return the studies in the store, sorted by name.

    Raises:
        UserError: the runs folder has no runs, or the store does not respond.
    """
    client = connect(runs_folder(root))
    studies = []
    for experiment in search_studies(client):
        filter_string = with_tag("phase", "", equal=False)  # which only runs of attnlab have
        latest = client.search_runs(
            [experiment.experiment_id], filter_string, max_results=1, order_by=["attributes.start_time DESC"]
        )
        started = latest[0].info.start_time if latest else None
        studies.append(StudyEntry(experiment.name, _utc(experiment.creation_time), _utc(started)))
    return studies


def _utc(milliseconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1_000, tz=UTC) if milliseconds is not None else None


@describe_in("COST METRICS")
def load_runs(
    study: str | Path, root: str | Path | None = None, *, every: bool = False, config: bool = True
) -> pandas.DataFrame:
    """Return the runs of a study as a table, one row per run, in the order in which they started.

    Columns are text unless stated otherwise; missing values are NaN, None or "":

    ============================  ===================================================================================
    ``run_id``                    MLflow's run ID
    ``name``, ``cell``            ``no_wo learned s0`` (a trial: ``no_wo learned t07``; of a sweep: ``no_wo learned
                                  lr=0.003 s0``), and the name of the cell, ``no_wo learned``
    ``study``                     the study's name
    ``state``                     ``running completed pruned diverged out_of_memory refused failed timed_out interrupted``
    ``reason``                    why the run did not complete, in one line
    ``seed``, ``attempt``         whole numbers; the second counts from 1
    ``fingerprint``               16 hex digits, of the configuration; trials and refused cells have a similar key
    ``phase``                     ``grid``, in a searched study ``search`` or ``confirm``, ``sweep``, and ``stage``: runs that
                                  others start from, which are in no cell
    ``trial``                     number of a trial within the search of its cell
    ``params``                    dict: dotted path -> value that the search or the sweep set
    ``task variant position``     as one text: ``strided_sparse stride=16``
    ``backend``, ``data``         the backend that ``auto`` resolved to; the identity of the task's data
    ``model.dim``, ``train.lr``   every other field of the configuration by its dotted name, with its type
    ``command``, ``values.lr``    instead of the fields above, in a study with ``command``: the command line with its
                                  placeholders, the values of these; ``env.NAME``; ``files.NAME``, the digest of a file
    ``length``                    of the task's sequences, in tokens
    ``test``                      what the run is tested on (task, data, length, protocol, limit), as JSON; scores with
                                  different tests are not compared
    each axis of the grid         its label: text, number or boolean
    ``factor.no_wo``, ...         of a factorial study, for each factor: 0 = off, 1 = on (or the number of its level)
    ``accuracy``, ``loss``        scores on the test split: fraction, nats
    ``bits_per_byte``             the same, bits
    ``bleu``, ``chrf``            the same, of translations, from 0 to 100
    ``valid_...``                 each of these on the validation split
    ``..._at/512``                each of these on the test split at another length (``evaluate.lengths``)
    COST METRICS
    ``..._seconds``               s: of the last evaluation on each split (``valid_``, ``test_``, ``lengths_seconds``), and
                                  ``startup_``, ``evaluation_``, ``logging_`` and ``checkpoint_seconds`` of the whole run
    ``length.512``                why the run has no score at that length
    ``started``                   timestamp, UTC
    ``seconds``                   s from ``started`` to the end, or to now
    ``folder``                    path of the checkpoints and of ``model.safetensors``
    ``device versions commit``    the processor; packages; git's, ``+dirty`` when files differ from it
    ``init``, ``init.run``        the stage that the run started from (None: from scratch), and the fingerprint of
                                  that run
    ``init.taken``                which tensors it took over, and which started fresh
    ``data_sizes``                number of items of each split, and how many are scored, as text; "" if unknown
    ``data_notes``                list of notes on the task's data, for example test data that also occur in ``train``
    ``matched``                   how the cell was changed to match the cost of its baseline
    ============================  ===================================================================================

    Args:
        study: the study's name, or its YAML file.
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``./runs``.
        every: include runs that the study's latest plan no longer contains, for example after a change to the YAML.
        config: include the columns of the configuration. Without them, the axes of the grid remain.

    Raises:
        UserError: the study does not exist, or the runs folder has no runs.
    """
    import pandas

    folder = runs_folder(root)
    client = connect(folder)
    records = search_runs(client, find_experiment(client, study_name(study)).experiment_id)
    rows = [row_of(record, folder, with_config=config) for record in records if every or record.is_current]
    return pandas.DataFrame(rows)


def row_of(record: RunRecord, root: Path, *, with_config: bool = True) -> dict[str, Any]:
    """Return the row of a record in the table of ``load_runs``."""
    import pandas

    ended = (record.end or int(1_000 * time.time())) / 1_000
    row = {name: getattr(record, name) for name in ("run_id", "name", "cell", "study", "state", "reason", "seed")}
    row |= {"fingerprint": record.key}
    row |= {name: getattr(record, name) for name in ("attempt", "phase", "trial", "params")}
    config = record.config
    axes = {axis: label for axis, label in record.axes.items() if axis not in row}
    row |= {**(flatten_config(config) if with_config else {}), **axes}
    row |= {f"factor.{name}": level for name, level in record.factors.items()}
    # A program may print a metric with the name of an axis, which stays.
    row |= {name: value for name, value in record.summary.items() if name not in row}
    row |= record.untested_lengths
    row |= {} if record.init is None else {"init.taken": record.init}
    if "command" in config:
        row |= {"test": identity_of_test(CommandConfig.model_validate(config))}
    else:
        length = int(text) if (text := record.logged.get("length", "")).isdigit() else None
        row |= {"length": length, "test": test_identity(config, length)}
    row |= {"started": pandas.to_datetime(record.start, unit="ms", utc=True)}
    seconds = ended - record.start / 1_000  # negative if the clock was set back: unknown
    row |= {"seconds": seconds if seconds >= 0 else math.nan, "folder": str(root / record.folder)}
    row |= {"device": record.device or ""}
    row |= {name: getattr(record, name) for name in ("versions", "commit", "matched", "data_sizes", "data_notes")}
    # JSON can hold surrogates, which a column of texts cannot.
    return {escape_surrogates(key): escape_surrogates(value) if isinstance(value, str) else value for key, value in row.items()}


def load_curves(study: str, root: str | Path | None = None) -> pandas.DataFrame:
    """Return all points of all curves of a study's current runs, with columns ``run_id name metric step value``.

    Raises:
        UserError: the study does not exist, or the runs folder has no runs.
    """
    import pandas

    folder = runs_folder(root)
    client = connect(folder)
    records = search_runs(client, find_experiment(client, study).experiment_id)
    current = [record for record in records if record.is_current]
    uri = tracking_uri(folder)
    with readable_errors(uri):
        curves = read_curves(client, uri, current)
    keys = [
        (record.run_id, record.name, key)
        for record in current
        for key in sorted(record.metrics)
        if not key.startswith(PREFIX) and (record.run_id, key) in curves
    ]
    names = pandas.DataFrame(keys, columns=["run_id", "name", "metric"], dtype="category")
    points = [curves[run_id, key] for run_id, _, key in keys]
    table = names.loc[names.index.repeat([*map(len, points)])].reset_index(drop=True)
    steps, values = zip(*chain.from_iterable(points), strict=True) if points else ((), ())
    return table.assign(step=steps, value=values)


def read_curves(client: MlflowClient, uri: str, records: Sequence[RunRecord]) -> Curves:
    """Return all curves of these records.

    Args:
        client: of the store at ``uri``.
        uri: address of a database or a server.
        records: of one experiment.
    """
    from mlflow.store.db.db_types import DATABASE_ENGINES

    if records and uri.partition(":")[0].partition("+")[0] in DATABASE_ENGINES:
        return _read_from_database(uri, records)
    return _read_from_server(client, records)


def _read_from_database(uri: str, records: Sequence[RunRecord]) -> Curves:
    from mlflow.store.tracking.dbmodels.models import SqlMetric, SqlRun
    from sqlalchemy import NullPool, create_engine, select

    query = select(SqlMetric.run_uuid, SqlMetric.key, SqlMetric.timestamp, SqlMetric.step, SqlMetric.value, SqlMetric.is_nan)
    query = query.join(SqlRun, SqlRun.run_uuid == SqlMetric.run_uuid)
    query = query.where(SqlRun.experiment_id == int(records[0].experiment_id), SqlMetric.key.contains("/"))
    query = query.order_by(SqlMetric.timestamp, SqlMetric.step, SqlMetric.value)
    run_ids = {record.run_id for record in records}
    curves: Curves = {}
    with create_engine(uri, poolclass=NullPool).connect() as connection:
        for run_id, key, _, step, value, is_nan in connection.execute(query):
            if run_id in run_ids and is_curve(key):
                curves.setdefault((run_id, key), []).append((step, float("nan") if is_nan else restored(value)))
    return curves


def _read_from_server(client: MlflowClient, records: Sequence[RunRecord]) -> Curves:
    curves: Curves = {}
    last_notice = time.monotonic()
    for number, record in enumerate(records):
        if time.monotonic() - last_notice > NOTICE_SECONDS:
            last_notice = time.monotonic()
            logger.info("reading the curves of %s runs: %.0f %%", f"{len(records):,}", 100 * number / len(records))
        for key in filter(is_curve, record.metrics):
            history = client.get_metric_history(record.run_id, key)
            curves[record.run_id, key] = [(point.step, restored(point.value)) for point in history]
    return curves
