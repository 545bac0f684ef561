"""Tests of reading many runs: the number of queries and requests does not grow with the runs, and no point is lost."""

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from attnlab import load_curves, load_runs
from attnlab.report.write import write_report as report
from attnlab.tracking.client import connect, search_runs, tracking_uri
from attnlab.tracking.record import restored
from attnlab.tracking.runs import read_curves
from benchmarks.large_study import CURVES, STEPS, make
from tests.tracking.test_delivery import points


@contextmanager
def counted_queries() -> Iterator[list[str]]:
    """Collect the SELECT statements that SQLAlchemy executes in the block."""
    statements: list[str] = []

    def count(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().startswith("SELECT"):
            statements.append(statement)

    event.listen(Engine, "before_cursor_execute", count)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", count)


def test_the_number_of_queries_does_not_grow_with_the_runs(empty_store: Path, tmp_path: Path) -> None:
    counts = []
    for runs in (4, 12):  # with one seed per cell no look would be recorded
        root = Path(shutil.copytree(empty_store, tmp_path / str(runs)))
        make(root, runs=runs, cells=2)
        report("large", root, out=tmp_path / "page")  # the first answer sets a tag of each run: the run of its cell
        with counted_queries() as statements:
            report("large", root, out=tmp_path / "page")
        counts.append(len(statements))
        assert len(load_runs("large", root)) == runs
        assert len(load_curves("large", root)) == runs * len(CURVES) * len(STEPS)
    assert counts[0] == counts[1]


def test_curves_keep_their_order_and_their_nans(root: Path) -> None:
    make(root, runs=4, cells=2)
    client = connect(root)
    run_id = str(load_runs("large", root)["run_id"][1])
    for step, value in (
        (300, math.nan),
        (5, 1.0),
        (5, 0.5),
        (301, math.inf),
        (302, -math.inf),
    ):  # a retry logs an earlier step again, later
        client.log_metric(run_id, "train/loss", value, step=step, timestamp=2**41 - step)
    table = load_curves("large", root)
    assert list(dict.fromkeys(table["run_id"])) == list(load_runs("large", root)["run_id"])
    curve = table.loc[(table["run_id"] == run_id) & (table["metric"] == "train/loss")]
    history = [(point.step, restored(point.value)) for point in client.get_metric_history(run_id, "train/loss")]
    assert repr(list(zip(curve["step"], curve["value"], strict=True))) == repr(history)
    assert len(curve) == len(points(root, run_id)) == len(STEPS) + 5
    assert sum(math.isnan(value) for value in curve["value"]) == 1
    assert {math.inf, -math.inf} < set(curve["value"])


def test_a_server_has_the_curves_of_a_database(root: Path) -> None:
    make(root, runs=4, cells=2)
    client = connect(root)
    records = search_runs(client, client.get_experiment_by_name("large").experiment_id)  # type: ignore[union-attr]
    expected = read_curves(client, tracking_uri(root), records)
    assert read_curves(client, "http://host", records) == expected and len(expected) == 4 * len(CURVES)
