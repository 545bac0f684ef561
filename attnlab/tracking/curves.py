"""Reading the curves of many runs with few requests.

MLflow's client reads one metric of one run per request, which takes a minute for 2,000 runs. A database is asked once for
all runs of an experiment, a server once for each metric of up to 100 runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from attnlab._util.metrics import is_curve
from attnlab.tracking.client import NOTICE_SECONDS
from attnlab.tracking.summary import restored

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as Record
    from requests import Response

logger = logging.getLogger(__name__)

BULK_ENDPOINT = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"  # of the server's own UI; not in the documented REST API
BULK_RUNS, BULK_POINTS = 100, 25_000  # the endpoint's limits for one request
Point = tuple[int, float]  # step, value
Curves = dict[tuple[str, str], list[Point]]  # (run ID, metric) -> points in the order in which they were logged


def read_curves(client: MlflowClient, uri: str, records: Sequence[Record]) -> Curves:
    """Return all curves of these records.

    Args:
        client: of the store at ``uri``.
        uri: address of a database or a server.
        records: of one experiment.
    """
    from mlflow.store.db.db_types import DATABASE_ENGINES

    if records and uri.partition(":")[0].partition("+")[0] in DATABASE_ENGINES:
        return _read_from_database(uri, records)
    return _read_from_server(client, uri, records)


def _read_from_database(uri: str, records: Sequence[Record]) -> Curves:
    from mlflow.store.tracking.dbmodels.models import SqlMetric, SqlRun
    from sqlalchemy import NullPool, create_engine, select

    query = select(SqlMetric.run_uuid, SqlMetric.key, SqlMetric.step, SqlMetric.value, SqlMetric.is_nan)
    query = query.join(SqlRun, SqlRun.run_uuid == SqlMetric.run_uuid)
    query = query.where(SqlRun.experiment_id == int(records[0].info.experiment_id), SqlMetric.key.contains("/"))
    query = query.order_by(SqlMetric.timestamp, SqlMetric.step, SqlMetric.value)
    run_ids = {record.info.run_id for record in records}
    curves: Curves = {}
    with create_engine(uri, poolclass=NullPool).connect() as connection:
        for run_id, key, step, value, is_nan in connection.execute(query):
            is_point = isinstance(key, str) and isinstance(step, int) and isinstance(value, int | float)  # SQLite: of any type
            if run_id in run_ids and is_point and is_curve(key):
                curves.setdefault((run_id, key), []).append((step, float("nan") if is_nan else restored(value)))
    return curves


def _read_from_server(client: MlflowClient, uri: str, records: Sequence[Record]) -> Curves:
    runs_with: dict[str, list[str]] = {}  # metric -> run IDs
    for record in records:
        for key in filter(is_curve, record.data.metrics):
            runs_with.setdefault(key, []).append(record.info.run_id)
    requests = [(key, ids[i : i + BULK_RUNS]) for key, ids in runs_with.items() for i in range(0, len(ids), BULK_RUNS)]
    curves: Curves = {}
    last_notice = time.monotonic()
    for number, (key, run_ids) in enumerate(requests):
        if time.monotonic() - last_notice > NOTICE_SECONDS:
            last_notice = time.monotonic()
            logger.info("reading the curves of %s runs: %.0f %%", f"{len(records):,}", 100 * number / len(requests))
        for run_id, point in _points(client, uri, key, run_ids):
            curves.setdefault((run_id, key), []).append(point)
    return curves


def _points(client: MlflowClient, uri: str, key: str, run_ids: list[str]) -> Iterator[tuple[str, Point]]:
    """Yield the run ID and each point of a metric of several runs."""
    points = _request_points(uri, key, run_ids) if len(run_ids) > 1 and uri.startswith("http") else None
    if points is None:
        for run_id in run_ids:
            yield from ((run_id, (point.step, restored(point.value))) for point in client.get_metric_history(run_id, key))
    elif len(points) < BULK_POINTS:
        yield from points
    else:  # the response is cut off at the limit
        middle = len(run_ids) // 2
        yield from _points(client, uri, key, run_ids[:middle])
        yield from _points(client, uri, key, run_ids[middle:])


def _request_points(uri: str, key: str, run_ids: list[str]) -> list[tuple[str, Point]] | None:
    """Return up to ``BULK_POINTS`` points, or None if the server does not have the endpoint."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request, verify_rest_response

    parameters = [("metric_key", key), *(("run_id", run_id) for run_id in run_ids)]
    response = cast("Response", http_request(get_default_host_creds(uri), BULK_ENDPOINT, "GET", params=parameters))
    if response.status_code == 404:
        return None
    metrics = verify_rest_response(response, BULK_ENDPOINT).json()["metrics"]
    return [(metric["run_id"], (metric["step"], restored(float(metric["value"])))) for metric in metrics]
