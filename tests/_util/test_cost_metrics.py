"""Tests of cost metrics: one entry in their table reaches every table, plot and view that shows costs."""

import base64
import json
import zlib
from pathlib import Path

import pandas
import pytest

from attnlab import load_runs
from attnlab._util import cost_metrics
from attnlab._util.cost_metrics import COST_METRICS, CostMetric, describe_in
from attnlab.cli._results import print_results
from attnlab.cli._runs_query import _columns
from attnlab.planning.plan import plan
from attnlab.report import write
from attnlab.tracking.views import runs_view
from attnlab.training.train import train
from tests.support.compared import fake_record, of_rows
from tests.support.small_runs import tiny
from tests.support.synthetic import INFO, made_up

ENERGY = CostMetric(
    "energy_joules",
    "energy J",
    "J",
    "energy of the training steps",
    measured=True,
    shown_in=("cost table", "verdict table", "run table", "terminal", "run list", "mlflow columns"),
    plot="energy",
)
STUDY = {"study": "s", "base": {"task": "pydocs", "train": {"steps": 1}}, "grid": {"variant": ["dense", "no_wo"]}}


@pytest.fixture
def energy(monkeypatch: pytest.MonkeyPatch) -> CostMetric:
    monkeypatch.setattr(cost_metrics, "COST_METRICS", [*COST_METRICS, ENERGY])
    return ENERGY


def test_a_new_entry_is_in_the_tables_plots_and_files_of_a_report(energy: CostMetric, tmp_path: Path) -> None:
    runs, curves = made_up()
    runs["energy_joules"] = [1_000.0 + i for i in range(len(runs))]
    write.write(tmp_path, info=INFO, runs=runs, curves=curves)
    text = (tmp_path / "README.md").read_text()
    headings = [line for line in text.splitlines() if line.startswith("| ") and " energy J " in line]
    assert [line.split(" |")[0] for line in headings] == ["| cell", "| one run of", "| run"]
    assert "(1,000 to 1,002)" in text
    assert "against energy J" in (tmp_path / "energy_joules.svg").read_text()
    assert pandas.read_csv(tmp_path / "cells.csv")["energy_joules"].iloc[0] == 1_001.0


def test_a_new_entry_is_printed_after_a_run_and_listed(energy: CostMetric, capsys: pytest.CaptureFixture[str]) -> None:
    made, costs = plan(STUDY), {"bits_per_byte": 2.0, "energy_joules": 987.0}
    rows = [fake_record(r.cell.name, r.seed, costs) for r in made.runs]
    print_results(*of_rows(made, rows))
    printed = capsys.readouterr().out
    assert "energy J" in printed and "987" in printed
    frame = pandas.DataFrame([{"run_id": "0", "name": "a", "phase": "grid", "energy_joules": 987.0}])
    assert "energy_joules" in _columns(frame, "")


def test_a_new_entry_is_in_the_mlflow_view(energy: CostMetric) -> None:
    state = json.loads(zlib.decompress(base64.b64decode(runs_view(plan(STUDY)).partition(";")[2])))
    assert "metrics.`energy_joules`" in state["selectedColumns"]


def test_a_new_entry_is_documented(energy: CostMetric) -> None:
    @describe_in("COST METRICS")
    def documented() -> None:
        """A table:

        ``name``                      of the run
        COST METRICS
        """

    assert documented.__doc__ is not None
    assert "        ``energy_joules``             J: energy of the training steps\n" in documented.__doc__


def test_the_documented_columns_of_load_runs_hold_every_cost_metric() -> None:
    text = load_runs.__doc__ or ""
    assert all(f"    ``{metric.name}`` " in text and metric.description in text for metric in COST_METRICS)


def test_everything_that_training_measures_is_declared() -> None:
    summary = train(tiny()).summary.keys()
    scores = {name for name in summary if name.removeprefix("valid_") in ("bits_per_byte", "loss")}
    times = {f"{part}_seconds" for part in ("startup", "evaluation", "logging", "checkpoint", "valid", "test")}
    assert summary - scores - times <= {metric.name for metric in COST_METRICS}
