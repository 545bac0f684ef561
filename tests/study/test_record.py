"""Tests of what a study's record says about a plan: finished runs, and comparisons of a part of a study."""

from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab.nn import processor
from attnlab.planning.machine import MATMUL, MEMORY, PRECISION, StepTime
from attnlab.planning.plan import plan
from attnlab.report.methods import load_study_info
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.stats.search import exclude_trials
from attnlab.study.execution import measurements
from attnlab.study.plan import finished_records, recorded_machine
from attnlab.study.result import StudyResult
from attnlab.study.run import run
from attnlab.tracking.runs import load_runs
from tests.study.test_study import QUIET, go, study

BASELINE: dict[str, Any] = {"baseline": {"variant": "dense"}}
SEARCH = {"trials": 2, "space": {"train.lr": {"low": 1e-3, "high": 1e-2}}, "sampler": "RandomSampler"}
SEARCHED = {key: value for key, value in study(**BASELINE).items() if key != "seeds"}
SEARCHED |= {"search": SEARCH, "confirm": {"seeds": [5, 6]}}


def table(result: StudyResult) -> dict[str, CellSummary]:
    cells = summarize_cells(exclude_trials(result.records()), result.comparison())
    return {cell.name: cell for cell in cells}


def count(root: Path, **changes: Any) -> int:
    return len(finished_records(plan(study(**changes)), root))


def test_a_part_of_a_study_is_compared_with_what_is_finished(tmp_path: Path) -> None:
    go(tmp_path, only={"variant": "dense"}, **BASELINE)
    result = go(tmp_path, only={"variant": "no_wo"}, **BASELINE)
    assert [row.cell for row in result.rows] == ["no_wo learned"] * 2, "the rows are those of this call"
    cells = table(result)
    assert cells["dense learned"].is_baseline and cells["no_wo learned"].difference is not None
    other = go(tmp_path, only={"variant": "no_wo"}, sets={"train.steps": 30}, **BASELINE)
    assert set(table(other)) == {"no_wo learned"}, "runs of another configuration are not compared"


def test_a_part_of_a_searched_study_is_compared_with_what_is_confirmed(tmp_path: Path) -> None:
    assert finished_records(plan(SEARCHED), tmp_path) == {}
    run(SEARCHED, root=tmp_path, display=QUIET, only={"variant": "dense"})
    assert len(finished_records(plan(SEARCHED), tmp_path)) == 4
    cells = table(run(SEARCHED, root=tmp_path, display=QUIET, only={"variant": "no_wo"}))
    assert cells["dense learned"].is_baseline and len(cells["dense learned"].values) == 2
    assert cells["no_wo learned"].difference is not None
    planned = plan(SEARCHED, sets={"search.trials": 3})
    assert len(finished_records(planned, tmp_path)) == 8 and planned.total == 10
    moved = plan(SEARCHED, sets={"search.space": {"train.weight_decay": {"low": 0.0, "high": 0.1}}})
    assert finished_records(moved, tmp_path) == {}


def test_finished_runs_are_counted_without_writing(tmp_path: Path) -> None:
    assert count(tmp_path / "nothing") == 0 and not (tmp_path / "nothing").exists()
    go(tmp_path, only={"variant": "dense"})
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert count(tmp_path) == 2
    assert count(tmp_path, seeds=[1, 2]) == 1
    assert count(tmp_path, study="another") == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_auto_precision_stays_as_recorded_when_the_measurement_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(speedup: float) -> None:
        monkeypatch.setattr(processor, "half_speedup", lambda setting="highest", precision="bf16": speedup)
        steps = [StepTime((), 1.0, 0.0), StepTime((PRECISION,), 1 / speedup, 0.01)]
        monkeypatch.setattr(measurements, "measure_steps", lambda configs, paths: [steps] * len(configs))

    assert recorded_machine("small", tmp_path) == {}
    measure(3.0)
    first = go(tmp_path, sets={"train.precision": "auto"})
    measure(0.1)  # a busy machine, or another processor
    again = go(tmp_path, sets={"train.precision": "auto"})
    recorded = recorded_machine("small", tmp_path)["cpu"]["train.precision"]
    assert recorded.value == "bf16" and "3.00 and 3.00 times as fast with precision: bf16" in recorded.reason
    assert [row.run_id for row in again.rows] == [row.run_id for row in first.rows], "finished runs were trained again"
    assert any("auto is bf16" in note and "recorded" in note for note in again.plan.notes)
    changed = go(tmp_path, sets={"train.precision": "fp32"}, seeds=[1])
    assert {cell.config.train.precision for cell in changed.plan.cells} == {"fp32"}
    assert recorded_machine("another", tmp_path) == {}


def test_auto_machine_stays_as_recorded_on_another_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(seconds: float) -> None:
        steps = [StepTime((), 1.0, 0.0), StepTime((MATMUL,), seconds, 0.0)]
        steps += [StepTime((MEMORY,), 1.2, 0.0), StepTime((MATMUL, MEMORY), 1.2 * seconds, 0.0)]
        monkeypatch.setattr(measurements, "measure_steps", lambda configs, paths: [steps] * len(configs))

    auto = {"machine": "auto", "machine.device": "cpu"}
    measure(0.5)
    first = go(tmp_path, sets=auto)
    machines = [cell.config.machine for cell in first.plan.cells]
    assert [(m.matmul_precision, m.reuse_memory) for m in machines] == [("medium", False)] * 2
    measure(2.0)
    again = go(tmp_path, sets=auto)
    assert [row.run_id for row in again.rows] == [row.run_id for row in first.rows], "finished runs were trained again"
    assert any("matmul_precision: auto is medium" in note and "recorded" in note for note in again.plan.notes)
    assert attnlab.plan(study(), sets=auto, root=tmp_path).auto_machine == first.plan.auto_machine, "in Python as well"
    changed = go(tmp_path, sets={**auto, "machine.matmul_precision": "high"}, seeds=[1])
    assert {cell.config.machine.matmul_precision for cell in changed.plan.cells} == {"high"}
    assert [row.run_id for row in go(tmp_path, sets=auto).rows] == [row.run_id for row in first.rows]
    rows = dict(load_study_info(load_runs("small", tmp_path), root=tmp_path).auto)
    assert rows.keys() == {MATMUL, MEMORY} and rows[MATMUL].startswith("medium on cpu") and "2.00 and 2.00" in rows[MATMUL]
