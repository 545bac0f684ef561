"""Tests of the data that MLflow's UI shows: digits, data sets, groups and system metrics."""

import json
import math
from pathlib import Path

import pytest
from mlflow.data import get_source

from attnlab import load_curves, load_runs
from attnlab._util.run_state import RunState
from attnlab.study.run import run
from attnlab.tracking.client import connect
from attnlab.tracking.record import RunRecord
from attnlab.tracking.tracker import Tracker
from tests.study.test_study import QUIET, study
from tests.tracking.test_delivery import small

VALUES = {"bits_per_byte": 2.0 + 1 / 3, "accuracy_at/512": 0.1 + 0.2, "tiny": 1 / 3e9, "parameters": 123_456_789.0}


def test_final_metrics_are_exact(root: Path) -> None:
    with Tracker(small(), root) as tracker:
        run_id = tracker.start(small().runs[0])
        tracker.finish(run_id, RunState.COMPLETED, summary={**VALUES, "lost": math.nan, "huge": math.inf})
    row, record = load_runs("small", root).iloc[0], RunRecord.of(connect(root).get_run(run_id))
    for name, value in {**VALUES, "huge": math.inf}.items():
        assert row[name] == value == record.summary[name]
    assert "lost" not in row


def test_the_data_sets_of_a_run_are_logged(root: Path) -> None:
    plan = small()
    with Tracker(plan, root) as tracker:
        run_id = tracker.start(plan.runs[0])
    inputs = connect(root).get_run(run_id).inputs
    assert inputs is not None
    contexts = {entry.tags[0].value: entry.dataset for entry in inputs.dataset_inputs}
    assert set(contexts) == {"train", "valid", "test"}
    assert {dataset.name for dataset in contexts.values()} == {"pydocs/train", "pydocs/valid", "pydocs/test"}
    assert len({dataset.digest for dataset in contexts.values()}) == 1
    source = get_source(contexts["test"])
    assert source.to_dict() == {"tags": {"task": "pydocs length=16", "data": plan.runs[0].config.data}}
    assert json.loads(contexts["test"].profile or "")["num_bytes"] > 1_000


@pytest.mark.parametrize("enabled", [True, False])
def test_a_run_has_system_metrics(root: Path, monkeypatch: pytest.MonkeyPatch, enabled: bool) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0")
    if not enabled:
        monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false")
    result = run(study(), root=root, display=QUIET, train="tests.support.study_fakes:good")
    metrics = connect(root).get_run(result.rows[0].run_id).data.metrics
    names = {name for name in metrics if name.startswith("system/")}
    assert names >= {"system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"} if enabled else not names
    assert not any("system" in name for name in (*load_runs("small", root), *load_curves("small", root)["metric"]))
