"""MLflow: the connection, what is read back from it, and its UI. The only module that imports mlflow.

What a study writes is in ``tracker``.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.disk import refused
from attnlab.errors import UserError, nearest
from attnlab.grid.yamlfile import read
from attnlab.lock import hold
from attnlab.metrics import is_curve
from attnlab.redact import redact, without_login
from attnlab.signals import as_interrupts
from attnlab.tracking import record
from attnlab.tracking.view import Server, ui_url
from attnlab.trials.storage import is_postgresql, one_at_a_time, storage_url

if TYPE_CHECKING:
    import pandas
    from mlflow import MlflowClient
    from mlflow.entities import Experiment
    from mlflow.entities import Run as Record

BATCH = 1_000  # metrics in one call
LOOKS = "attnlab.looks"  # tag of an experiment
QUESTIONS = "attnlab.questions"  # likewise
REPORT = "report"  # the phase of the run that holds a study's report (tracking.page): no run of the study
Point = tuple[str, float, int, int]  # name, value, milliseconds since the epoch, step
WRITING = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}  # MLflow: 7, 120 s
NO_ANSWER = {408, 429, 500, 502, 503, 504}  # HTTP: what MLflow itself takes for temporary


def runs_folder(root: str | Path | None = None) -> Path:
    """Where runs are kept: ``root``, else ``ATTNLAB_RUNS``, else ``runs`` in the working directory.

    Raises:
        UserError: a path that would be another one in the addresses of sqlite's databases.
    """
    folder = Path(root or os.environ.get("ATTNLAB_RUNS") or "runs").resolve()
    if found := {"?", "%"} & set(str(folder)):
        raise UserError(f"expected a folder of runs without {min(found)!r} in its path, got {folder}")
    return folder


def tracking_uri(root: Path) -> str:
    """``MLFLOW_TRACKING_URI`` where it is set, else the sqlite file under ``root``. May hold a password."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root / 'mlflow.db'}"
    return storage_url(uri, where="MLFLOW_TRACKING_URI") if is_postgresql(uri) else uri


def connect(root: Path, *, create: bool = False) -> MlflowClient:
    """A client of its own: the caller's choice of store, experiment and run in MLflow stays as it is.

    Args:
        create: for a study, which writes: make the database where there is none, and leave it to ``delivery`` to try
            again (``WRITING``).

    Raises:
        UserError: nothing has been run here (and ``create`` is off), or the server cannot be reached.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when mlflow is imported
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # a run's address may hold a password
    uri, database = tracking_uri(root), root / "mlflow.db"
    missing = uri == f"sqlite:///{database}" and not database.exists()
    if missing and not create:
        raise UserError(f"no runs in {root} yet: expected its mlflow.db (ATTNLAB_RUNS names another folder)")
    from mlflow import MlflowClient

    logging.getLogger("alembic").setLevel(logging.WARNING)  # a new database tells of each of its 50 migrations
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints a traceback for a locked database
    for name, value in WRITING.items() if create else ():
        os.environ.setdefault(name, value)  # not set and restored around a call: calls are made by another thread
    root.mkdir(parents=True, exist_ok=True)
    try:
        if missing:
            _new_database(database)
        with one_at_a_time(uri):  # PostgreSQL: the first to connect creates the tables
            client = MlflowClient(tracking_uri=uri)
            client.search_experiments(max_results=1)
    except UserError:
        raise
    except Exception as error:  # whatever the store's driver raises; its text may quote the address
        raise UserError(f"cannot use the MLflow store {redact(uri)}: {one_line(error, address=uri)}") from None
    return client


def _new_database(path: Path) -> None:
    """Make an MLflow database, whole or not at all: beside its place, by one process, and moved there when it is ready.

    Several processes that make one at the same time corrupt it, and a process that is killed while it does leaves a half.
    WAL: readers (the UI) and the writer do not wait for each other.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    with hold(path.with_suffix(".lock"), what=f"the creation of {path}", wait=120):
        if path.exists():
            return
        folder = path.with_suffix(".new")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        SqlAlchemyStore(f"sqlite:///{folder / path.name}", str(path.parent / "artifacts")).engine.dispose()
        with closing(sqlite3.connect(folder / path.name)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        (folder / path.name).rename(path)
        folder.rmdir()


def absence(error: Exception) -> str | None:
    """Why a call got no answer (the store is away, hangs, is locked or overloaded); None: it was refused."""
    from mlflow.exceptions import MlflowException
    from requests import HTTPError, RequestException

    if refused(error) is not None:  # MLflow calls a full disk temporary: the study ends and can go on when there is room
        absent = False
    elif isinstance(error, MlflowException):  # also what went wrong on the way to a server, as a 500
        lost = getattr(error.__cause__, "connection_invalidated", False)  # SQLAlchemy's word for it
        absent = lost or error.get_http_status_code() in NO_ANSWER
    elif isinstance(error, HTTPError):  # artifacts
        absent = error.response is None or error.response.status_code in NO_ANSWER
    else:
        absent = isinstance(error, RequestException)
    return one_line(error) if absent else None


def one_line(error: Exception, *, address: str = "") -> str:
    """What a store's error comes to, without the addresses, statements and hints around it; ``address`` as of ``redact``."""
    text = str(error)
    core = re.search(r"\[Errno -?\d+\] [\w ,.-]+|Read timed out|too many \d+ error responses|\([\w.]+Error\) [^\n]+", text)
    return redact(core[0] if core else text.strip().partition("\n")[0], address=address)[:300]


def write(
    client: MlflowClient,
    run_id: str,
    *,
    points: list[Point] | None = None,
    params: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
) -> None:
    """Add to a run, in as few calls as MLflow allows."""
    from mlflow.entities import Metric, Param, RunTag

    metrics = [Metric(*point) for point in points or []]
    while len(metrics) > BATCH:
        client.log_batch(run_id, metrics=metrics[:BATCH])
        metrics = metrics[BATCH:]
    all_params = [Param(name, value) for name, value in (params or {}).items()]
    all_tags = [RunTag(name, value) for name, value in (tags or {}).items()]
    if metrics or all_params or all_tags:
        client.log_batch(run_id, metrics=metrics, params=all_params, tags=all_tags)


def search(client: MlflowClient, experiment: str, where: str = "") -> list[Record]:
    """Every active run of a study's experiment (that fits MLflow's filter ``where``), in the order they were started.

    Its report (``tracking.page``) is no run of the study.
    """
    found, token = [], None
    order = ["attributes.start_time ASC"]
    while True:
        page = client.search_runs([experiment], where, max_results=5_000, order_by=order, page_token=token)
        found += [each for each in page if each.data.tags.get("attnlab.phase") != REPORT]
        token = page.token
        if not token:
            return found


def _experiment(client: MlflowClient, study: str) -> Experiment:
    found = client.get_experiment_by_name(study)
    if found is None:
        known = [each.name for each in client.search_experiments() if each.name != "Default"]
        meant = _name_in(Path(study)) or nearest(study, known)
        raise UserError(f"no study {study!r}{meant}; there are: {', '.join(known) or 'none'}")
    return found


def _name_in(path: Path) -> str:
    """What the study of a file is called, where a file was given for a name; else ``""``."""
    if path.suffix not in (".yaml", ".yml"):
        return ""
    try:
        name = read(path, what="a study")[0].get("study")
    except UserError:
        return ""
    return f": expected a study's name, and the study of {path} is {name!r}"


def load_runs(study: str, root: str | Path | None = None, *, every: bool = False) -> pandas.DataFrame:
    """The runs of a study as a table, one row a run, in the order they were started.

    Columns, text unless it says otherwise; what a run has not is NaN, None or "":

    ============================  ===================================================================================
    ``run_id``                    MLflow's id of it
    ``name``, ``cell``            ``no_wo learned s0`` (of a trial ``no_wo learned t07``), and without the seed
    ``study``                     the study's name
    ``state``                     ``running completed pruned diverged out_of_memory refused failed timed_out interrupted``
    ``reason``                    one line, where it is not completed
    ``seed``, ``attempt``         whole numbers; the second counts from 1
    ``fingerprint``               of the configuration, 16 hex digits; of a trial and of a refused cell a key like one
    ``phase``                     ``grid``, or ``search`` and ``confirm`` of a searched study
    ``trial``                     number of a trial within the search of its cell
    ``params``                    a dict: dotted path -> value that the search chose
    ``task variant position``     as one text: ``strided_sparse stride=16``
    ``backend``, ``data``         what ``auto`` became; the identity of the task's data
    ``model.dim``, ``train.lr``   each other field of the configuration, dotted, of its own type
    ``length``                    of the task's sequences, in tokens
    each axis of the grid         its label: text, number or boolean
    ``accuracy``, ``loss``        scores on the test split: shares of 1, nats
    ``bits_per_byte``             the same, bits
    ``valid_...``                 each of these on the validation split
    ``..._at/512``                each of these on the test split at another length (``evaluate.lengths``)
    ``parameters``                numbers; ``attention_parameters`` are the variants' own
    ``flops_per_token``           2 x multiply-accumulate, forward
    ``tokens_per_s``              of training, warm-up left out; ``tokens`` and ``steps`` count the whole run
    ``saved_mib``                 MiB that a micro-batch keeps for the backward pass
    ``host_peak_mib``             MiB; on CUDA ``gpu_peak_mib`` and ``gpu_reserved_mib``, too
    ``..._seconds``               s: ``train_``, ``valid_`` (the last reading), ``test_`` and ``lengths_seconds``
    ``length.512``                why there is no score at that length
    ``started``                   a time, UTC
    ``seconds``                   s from there to the end, or to now
    ``folder``                    of its checkpoints and of ``model.pt``
    ``device versions commit``    the processor; packages; git's, ``+dirty`` where files differ from it
    ``matched``                   how the cell was made to cost as much as its baseline
    ============================  ===================================================================================

    Args:
        every: also the runs that the study's last plan no longer holds (an edited YAML, another ``--set``).

    Raises:
        UserError: no such study, or no runs at all.
    """
    import pandas

    folder = runs_folder(root)
    client = connect(folder)
    found = search(client, _experiment(client, study).experiment_id)
    rows = [_row(each, folder) for each in found if every or each.data.tags.get("attnlab.current") != "no"]
    return pandas.DataFrame(rows)


def _row(found: Record, root: Path) -> dict[str, Any]:
    tags, info = found.data.tags, found.info
    tag = {key.removeprefix("attnlab."): value for key, value in tags.items() if key.startswith("attnlab.")}
    ended = (info.end_time or int(1_000 * time.time())) / 1_000
    import pandas

    row = {"run_id": info.run_id, "name": info.run_name, "cell": tag.get("cell"), "study": tag.get("study")}
    row |= {"state": tag.get("state"), "reason": tag.get("reason", ""), "seed": int(tag["seed"])}
    row |= {"fingerprint": tag["fingerprint"], "attempt": int(tag.get("attempt", 1))}
    row |= {"phase": tag.get("phase", "grid"), "trial": int(tag["trial"]) if "trial" in tag else None}
    row |= {"params": json.loads(tag.get("params", "{}"))}
    row |= {**record.flat(json.loads(tag["config"])), **json.loads(tag["axes"])}
    row |= {name: value for name, value in found.data.metrics.items() if not is_curve(name)}
    row |= {key: value for key, value in tag.items() if key.startswith("length.")}
    row |= {"length": int(text) if (text := found.data.params.get("length", "")).isdigit() else None}
    row |= {"started": pandas.to_datetime(info.start_time, unit="ms", utc=True)}
    seconds = ended - info.start_time / 1_000  # below 0 where the clock was set back meanwhile: then nobody knows
    row |= {"seconds": seconds if seconds >= 0 else math.nan, "folder": str(root / tag.get("folder", ""))}
    row |= {key: tag.get(key, "") for key in ("device", "versions", "commit", "matched")}
    return row


def load_curves(study: str, root: str | Path | None = None) -> pandas.DataFrame:
    """Every point of every curve of a study's current runs: ``run_id name metric step value``."""
    import pandas

    folder = runs_folder(root)
    client = connect(folder)
    found = search(client, _experiment(client, study).experiment_id)
    points = [
        {
            "run_id": each.info.run_id,
            "name": each.info.run_name,
            "metric": key,
            "step": p.step,
            "value": p.value,
        }
        for each in found
        if each.data.tags.get("attnlab.current") != "no"
        for key in sorted(each.data.metrics)
        if is_curve(key)
        for p in client.get_metric_history(each.info.run_id, key)
    ]
    return pandas.DataFrame(points, columns=["run_id", "name", "metric", "step", "value"])


def questions(study: str, root: str | Path | None = None) -> list[dict[str, Any]]:
    """What the study asks, last, and what it asked before, since it had results: ``metric direction baseline margin``.

    Not what its YAML says: that is as it was when a run was made, and the command line may have said something else over it.
    """
    return json.loads(_experiment(connect(runs_folder(root)), study).tags.get(QUESTIONS, "[]"))


def looks(study: str, root: str | Path | None = None) -> tuple[int, int] | None:
    """The first and the last number of seeds at which the verdicts of a study may be looked at; None: once, at the end."""
    client = connect(runs_folder(root))
    text = _experiment(client, study).tags.get(LOOKS)
    return tuple(json.loads(text)) if text else None


def record_looks(study: str, first: int, last: int, root: str | Path | None = None) -> tuple[int, int]:
    """Write down that there are to be looks from ``first`` to ``last`` seeds, before the first of them is taken.

    What has been written down stays: a later plan can only widen it. Returns what holds then.
    """
    before = looks(study, root) or (first, last)
    found = min(first, before[0]), max(last, before[1])
    client = connect(runs_folder(root))
    client.set_experiment_tag(_experiment(client, study).experiment_id, LOOKS, json.dumps(found))
    return found


def ui(root: str | Path | None = None, *, port: int = 5000, host: str = "127.0.0.1", study: str | None = None) -> None:
    """Serve the stock MLflow UI until Ctrl-C and print its addresses, one for each study.

    Where ``MLFLOW_TRACKING_URI`` names a server, only its addresses are printed: it has a UI already.
    """
    folder = runs_folder(root)
    uri = tracking_uri(folder)
    if uri.startswith("http"):
        for line in _addresses(folder, without_login(uri).rstrip("/"), study):
            print(line)
        return
    lines = _addresses(folder, f"http://{host}:{port}", study)
    server = Server(uri, root=folder, port=port, host=host)
    try:
        with as_interrupts():
            server.ready()
            print("\n".join([*lines, "Ctrl-C ends it."]), flush=True)
            server.wait()
    except KeyboardInterrupt:
        print()
    finally:
        server.close()


def _addresses(root: Path, base: str, study: str | None) -> list[str]:
    client = connect(root)
    found = [_experiment(client, study)] if study else [e for e in client.search_experiments() if e.name != "Default"]
    return [f"{each.name}: {ui_url(each.experiment_id, base)}" for each in found] or [ui_url(None, base)]
