"""Tests that the scores of test items are kept with the runs of a study, and load as a table."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy
import pytest
from mlflow import MlflowClient

import attnlab
from attnlab.errors import UserError
from attnlab.study.run import run
from attnlab.tracking.client import connect
from tests.study.test_study import QUIET, study

SMALL = {"grid": {"variant": ["dense", "no_wo"]}, "seeds": [0, 1], "baseline": {"variant": "dense"}}


def test_items_of_a_study_add_up_to_the_metric_of_each_run_and_survive_a_lost_record(root: Path) -> None:
    definition = {**study(), **SMALL}
    definition["base"] = {**definition["base"], "train": {**definition["base"]["train"], "steps": 2}}
    run(definition, root=root, display=QUIET)
    runs, items = attnlab.load_runs("small", root).set_index("run_id"), attnlab.load_items("small", root)
    assert list(items.columns) == ["run_id", "name", "cell", "seed", "item", "metric", "score", "count"]
    assert set(items["run_id"]) == set(runs.index) and set(items["metric"]) == {"bits_per_byte"}
    for run_id, of_run in items.groupby("run_id"):
        mean = numpy.average(of_run["score"].to_numpy(), weights=of_run["count"].to_numpy())
        assert mean == pytest.approx(runs["bits_per_byte"].to_dict()[run_id], rel=1e-5)
        assert of_run["item"].tolist() == list(range(len(of_run)))
    with closing(sqlite3.connect(root / "mlflow.db")) as database, database:
        database.execute("DELETE FROM params")  # which show a run in MLflow, while tags record it
    assert attnlab.load_items("small", root).equals(items)

    # The parent died before it closed a record: the next call writes a new one from the run's folder, without training.
    client: MlflowClient = connect(root)
    lost = next(iter(runs.index))
    client.update_run(lost, status="RUNNING")
    written = {path: path.stat().st_mtime_ns for path in root.glob("work/*/result.json")}
    run(definition, root=root, display=QUIET)
    again = attnlab.load_items("small", root)
    assert {path: path.stat().st_mtime_ns for path in root.glob("work/*/result.json")} == written and len(written) == 4
    assert lost not in set(again["run_id"])
    assert sorted(again["score"]) == sorted(items["score"])


def test_a_study_without_items_has_an_empty_table_and_an_unknown_one_is_an_error(root: Path) -> None:
    run({**study(), **SMALL}, root=root, display=QUIET, train="tests.support.study_fakes:good")
    assert attnlab.load_items("small", root).empty
    with pytest.raises(UserError, match="no study 'smal'"):
        attnlab.load_items("smal", root)
