"""Tests of the section on a search, and that trials are in no table, comparison or plot."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnlab._util.run_state import RunState
from attnlab.cli import main
from attnlab.cli._results import print_results
from attnlab.config.search import SearchConfig
from attnlab.planning.plan import Plan, Run, plan
from attnlab.report import write as report
from attnlab.stats import search as stats_search
from attnlab.study.comparison import comparison_of, load_info, to_json
from attnlab.tracking.client import connect
from attnlab.tracking.record import RunRecord, unrecorded
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tracker import Tracker
from tests.support.compared import of_rows
from tests.support.specs import changed
from tests.support.studies import SEARCH as STUDY
from tests.support.studies import write
from tests.support.synthetic import INFO, SEARCH, SPEC, made_up_search

PARAMS = {"train.lr": 2e-3, "train.batch_size": 6, "model.feed_forward": "relu"}
Out = pytest.CaptureFixture[str]


def found() -> dict[str, stats_search.SearchSummary]:
    runs, _ = made_up_search()
    records: Any = runs.to_dict("records")
    return {summary.cell: summary for summary in stats_search.summarize_searches(records, SPEC, SEARCH)}


def test_each_cell_s_search_is_summed_up() -> None:
    dense = found()["dense learned"]
    assert dense.outcome == "2 completed, 1 pruned, 1 failed"
    assert (dense.value, dense.trial) == (2.4, 2)
    assert dense.params == {"train.lr": 1e-3, "model.dropout": 0.0, "train.batch_size": 16}
    assert found()["no_wo learned"].trial == 0  # the first of two equally good trials
    assert found()["basic learned"].value is None and found()["basic learned"].outcome == "2 diverged"


def test_the_direction_of_the_metric_counts() -> None:
    runs, _ = made_up_search()
    records: Any = runs.to_dict("records")
    best = stats_search.summarize_searches(records, changed(SPEC, direction="max"), SEARCH)[0]
    assert (best.value, best.trial) == (2.6, 0)


@pytest.mark.parametrize(
    ("path", "value", "end"),
    [
        ("train.lr", 1e-4, "low"),
        ("train.lr", 1.25e-4, "low"),  # 4.8 % of the range on the logarithmic scale
        ("train.lr", 1.27e-4, ""),
        ("train.lr", 6e-4, ""),  # 5 % of the range on the linear scale, which the search does not use
        ("train.lr", 9.9e-3, "high"),
        ("model.dropout", 0.39, "high"),
        ("model.dropout", 0.37, ""),
        ("model.dropout", 0.0, ""),  # no valid value is lower
        ("train.batch_size", 16, ""),  # choices have no ends
    ],
)
def test_a_best_value_at_the_edge_of_its_space(path: str, value: float, end: str) -> None:
    trial = {"cell": "dense learned", "phase": "search", "trial": 0, "state": "completed", "valid_bits_per_byte": 2.0}
    edges = stats_search.summarize_searches([{**trial, "params": {path: value}}], SPEC, SEARCH)[0].warnings
    assert len(edges) == (1 if end else 0)
    assert all(f"is at the {end} end of its search space" in edge and "widen the space" in edge for edge in edges)


def trials(cell: str, scores: dict[float, float | str]) -> list[dict[str, Any]]:
    """Return trials with these learning rates and scores; a text is the state of a trial without a score."""
    shared = {"cell": cell, "phase": "search"}
    return [
        {**shared, "trial": i, "params": {"train.lr": rate}, "state": score}
        if isinstance(score, str)
        else {**shared, "trial": i, "params": {"train.lr": rate}, "state": "completed", "valid_bits_per_byte": score}
        for i, (rate, score) in enumerate(scores.items())
    ]


@pytest.mark.parametrize(
    ("scores", "most"),
    [
        ({1e-3: 3.0, 2e-3: 2.0, 4e-3: 2.5}, ""),
        ({1e-3: 3.0, 2e-3: 2.0}, "largest of 2"),
        ({2e-3: 2.0, 4e-3: 3.0, 6e-3: 4.0}, "smallest of 3"),
        ({1e-3: 3.0, 2e-3: 2.0, 4e-3: "diverged"}, ""),  # a larger one was tried
        ({2e-3: 2.0}, ""),  # the only one
        ({1e-3: 3.0, 9.9e-3: 2.0}, ""),  # at the end of the space, which has a warning of its own
    ],
)
def test_a_best_value_that_is_the_smallest_or_largest_tried(scores: dict[float, float | str], most: str) -> None:
    [summary] = stats_search.summarize_searches(trials("c", scores), SPEC, SEARCH)
    last = [warning for warning in summary.warnings if "values tried" in warning]
    assert len(last) == (1 if most else 0) and all(f"is the {most} values tried" in warning for warning in last)
    assert summary.tried["train.lr"] == tuple(sorted(scores))


def test_cells_that_were_tried_at_different_values() -> None:
    config = SearchConfig.model_validate({"trials": 2, "space": {"train.lr": {"low": 1e-4, "high": 1e-2, "log": True}}})
    equal = trials("a", {1e-3: 3.0, 2e-3: 2.0}) + trials("b", {2e-3: 3.0, 1e-3: 2.0})
    assert stats_search.different_values(stats_search.summarize_searches(equal, SPEC, config), config) == []
    unequal = [*equal, *trials("c", {1e-3: 3.0, 2.1e-3: 2.0})]
    [warning] = stats_search.different_values(stats_search.summarize_searches(unequal, SPEC, config), config)
    assert "different values of train.lr" in warning and "sweep: {train.lr: [...]}" in warning
    [warning] = stats_search.different_values(stats_search.summarize_searches(unequal, SPEC, SEARCH), SEARCH)
    assert "sweep" not in warning, "a sweep has one hyperparameter, this search has several"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    runs, points = made_up_search()
    report.write(out, info=replace(INFO, spec=replace(INFO.spec, search=SEARCH)), runs=runs, curves=points)
    return out


def test_the_page_tells_of_the_search(folder: Path) -> None:
    for name in ("index.html", "README.md"):
        text = (folder / name).read_text()
        for expected in (
            "Search",
            "4 trials, trained with seed 0",
            "train.lr 0.0001 to 0.01, log; model.dropout 0.0 to 0.4",
            "TPESampler n_startup_trials=2",
            "MedianPruner",
            "2 completed, 1 pruned, 1 failed",
            "no_wo learned: train.lr 0.0099 is at the high end",
            "Cells were tried at different values of train.lr",
            "no trial of its search completed: 2 diverged",
            "has not been trained yet",
            "1.4 minutes over all runs",
            "3.6 minutes of search",
        ):
            assert expected in text, (name, expected)
    lines = (folder / "README.md").read_text().splitlines()
    assert "| dense learned | 2 completed, 1 pruned, 1 failed | 2.4000 | 0.001 | 0 | 16 | 2 |" in lines
    assert "4 cells, 4 runs." in (folder / "README.md").read_text()


def test_no_searched_run_is_compared_listed_or_drawn(folder: Path) -> None:
    cells = {line["cell"]: line for line in csv.DictReader((folder / "cells.csv").open())}
    assert list(cells) == ["dense learned", "no_wo learned", "basic learned", "wide learned"]
    assert cells["dense learned"]["n"] == "2" and float(cells["dense learned"]["bits_per_byte"]) == pytest.approx(2.32005)
    assert cells["no_wo learned"]["baseline"] == "dense learned"
    assert [cells[name]["outcome"] for name in ("basic learned", "wide learned")] == ["not confirmed"] * 2
    page = (folder / "index.html").read_text()
    assert "dense learned s100" in page and "learned t0" not in page and "trial-dense" not in page
    assert "100, 101" in page
    drawn = (folder / "valid-bits_per_byte.svg").read_text()
    assert drawn.count("<polyline") == 2  # a line for each of the two confirmed cells
    listed = list(csv.DictReader((folder / "runs.csv").open()))
    assert [line["phase"] for line in listed].count("search") == 10 and len(listed) == 14


def row(run: Run, state: str, **summary: float) -> RunRecord:
    return unrecorded(run, "", state=state, metrics=summary)


def test_the_table_of_a_run_shows_confirmed_runs_and_a_line_on_each_search(tmp_path: Path, capsys: Out) -> None:
    made = plan(write(tmp_path, STUDY))
    dense, no_wo = made.cells
    rows = [row(made.search_run(no_wo, 0, PARAMS), "failed"), row(made.search_run(dense, 0, PARAMS), "pruned")]
    chosen = {"train.lr": 1e-2, "train.batch_size": 4}
    rows += [row(made.search_run(dense, 1, chosen), "completed", valid_bits_per_byte=3.25)]
    rows += [row(made.confirm_run(dense, s, PARAMS), "completed", bits_per_byte=3.0 + s / 1e3) for s in (100, 101)]
    print_results(*of_rows(made, rows))
    out = capsys.readouterr().out
    lines = {line.partition("  ")[0]: line for line in out.splitlines()}
    assert "3.1005" in lines["dense"] and "3.25" not in lines["dense"]
    assert lines["no_wo"].endswith("not confirmed")
    searched, failed, edge, last, different = out.splitlines()[-5:]
    best = "best valid_bits_per_byte 3.2500 in trial 1: train.lr 0.01, train.batch_size 4"
    assert searched == f"search: dense: 1 completed, 1 pruned; {best}"
    assert failed == "search: no_wo: 1 failed; nothing to confirm"
    assert edge.startswith("note: dense: train.lr 0.01 is at the high end")
    assert last.startswith("note: dense: train.batch_size 4 is the smallest of 2 values tried")
    assert different.startswith("note: search: cells were tried at different values of train.lr, train.batch_size")


def recorded(root: Path, folder: Path) -> Plan:
    """Return the runs folder of a searched study with one trial and one confirmed run in MLflow."""
    made = plan(write(folder, STUDY), sets={"search.trials": 5})
    tracker = Tracker(made, root)
    tracker.log_study(to_json(comparison_of(made)))
    for run, summary in (
        (made.search_run(made.cells[0], 3, PARAMS), {"valid_bits_per_byte": 3.5}),
        (made.confirm_run(made.cells[0], 101, PARAMS), {"valid_bits_per_byte": 3.5, "bits_per_byte": 3.25}),
    ):
        tracker.finish(tracker.start(run), RunState.COMPLETED, summary=summary)
    return made


def test_the_phases_are_told_apart_in_mlflow_and_read_back(tmp_path: Path, capsys: Out, monkeypatch: Any) -> None:
    made = recorded(tmp_path / "runs", tmp_path)
    frame = load_runs("s", tmp_path / "runs")
    assert list(frame["name"]) == ["dense t03", "dense s101"]
    assert list(frame["phase"]) == ["search", "confirm"] and list(frame["trial"].fillna(-1)) == [3, -1]
    assert list(frame["params"]) == [PARAMS, PARAMS] and list(frame["train.lr"]) == [2e-3, 2e-3]
    assert list(frame["seed"]) == [0, 101] and list(frame["evaluate.test"]) == [False, True]
    client = connect(tmp_path / "runs")
    data = client.get_run(str(frame["run_id"].iloc[0])).data
    assert (data.params["phase"], data.params["lr"], data.params["feed_forward"]) == ("search", "0.002", "relu")
    assert data.tags["attnlab.phase"] == "search" and json.loads(data.tags["attnlab.params"]) == PARAMS
    assert "trial 3 of its search" in data.tags["mlflow.note.content"]
    assert "| train.lr (chosen by the search) | 0.002 |" in data.tags["mlflow.note.content"]
    read = load_info("s", tmp_path / "runs")[0].spec
    assert read.search == made.study.search and read.search is not None and read.search.trials == 5
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / "runs"))
    assert main.main(["runs", "s"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["run_id", "name", "phase", "state", "bits_per_byte", "valid_bits_per_byte"]
    assert lines[2][1:] == ["dense", "t03", "search", "completed", "3.5000"]
    assert main.main(["report", "s", "--out", str(tmp_path / "out")]) == 0
    assert "1 completed | 3.5000 | 0.002 | 6 | relu | 3 |" in (tmp_path / "out" / "README.md").read_text()
