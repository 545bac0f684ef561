"""Tests of the measurement of machine settings: real steps, the file that keeps them, and failures."""

import json
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab.planning.machine import BACKEND, MATMUL, MAX_BF16_DIFFERENCE, MEMORY, PRECISION
from attnlab.study.execution import calibration
from attnlab.study.execution.calibration import FILE, measure_steps
from tests.support.small_runs import tiny


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "SECONDS", 0.05)
    monkeypatch.setattr(calibration, "TURN_SECONDS", 0.01)


def test_steps_are_measured_once_for_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [tiny(), tiny(model__dim=24)]
    measured = measure_steps(configs, [MATMUL, MEMORY], root=tmp_path)
    assert measured is not None and len(measured) == 2
    for steps in measured:
        assert [step.changed for step in steps] == [(), (MATMUL,), (MEMORY,), (MATMUL, MEMORY)]
        assert all(0 < step.seconds < 60 for step in steps)
        assert steps[0].difference == steps[2].difference == 0.0, "the same kernels give the same bits"
    monkeypatch.setattr(calibration, "_measure", lambda *_: pytest.fail("measured again"))
    assert measure_steps(configs, [MATMUL, MEMORY], root=tmp_path) == measured
    for other, paths in ((configs[:1], [MATMUL, MEMORY]), (configs, [MEMORY])):
        with pytest.raises(pytest.fail.Exception, match="measured again"):
            measure_steps(other, paths, root=tmp_path)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        measure_steps(configs, [MATMUL, MEMORY], root=tmp_path)


def test_one_field_needs_no_other_steps(tmp_path: Path) -> None:
    for path in (MATMUL, MEMORY, BACKEND):
        measured = measure_steps([tiny(backend="blocked")], [path], root=tmp_path)
        assert measured is not None and [step.changed for step in measured[0]] == [(), (path,)]


def test_steps_of_both_precisions_and_of_each_with_the_other_fields(tmp_path: Path) -> None:
    measured = measure_steps([tiny()], [MATMUL, PRECISION, MEMORY], root=tmp_path)
    assert measured is not None
    in_order = [(), (MATMUL,), (PRECISION,), (MATMUL, PRECISION)]
    assert [step.changed for step in measured[0]] == in_order + [(*changed, MEMORY) for changed in in_order]
    differences = {step.changed: step.difference for step in measured[0]}
    assert 1e-5 < differences[PRECISION,] < MAX_BF16_DIFFERENCE
    assert differences[PRECISION, MEMORY] == differences[PRECISION,], "kept buffers change no number"


@pytest.mark.parametrize(("seconds", "longest", "rounds"), [(0.0, 60.0, 3), (0.0, 0.5, 1), (5.0, 60.0, 5)])
def test_long_steps_are_measured_in_fewer_rounds(
    monkeypatch: pytest.MonkeyPatch, seconds: float, longest: float, rounds: int
) -> None:
    clock = iter(range(1_000))
    monkeypatch.setattr(calibration, "perf_counter", lambda: float(next(clock)))  # a round takes a second
    monkeypatch.setattr(calibration, "SECONDS", seconds)
    monkeypatch.setattr(calibration, "MAX_SECONDS", longest)
    taken: list[str | None] = []
    take_turns = calibration._take_turns

    def take(turns: Any, message: str | None = None) -> Any:
        taken.append(message)
        return take_turns(turns, message)

    monkeypatch.setattr(calibration, "_take_turns", take)
    measured = calibration._measure([tiny()], [MATMUL])
    assert measured is not None and taken.count("step") == rounds


def test_a_step_that_fails_is_not_measured(tmp_path: Path) -> None:
    assert measure_steps([tiny(), tiny(variant="no_such_variant")], [MATMUL], root=tmp_path) is None
    assert not (tmp_path / FILE).exists()


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    assert measure_steps([tiny()], [MATMUL], root=tmp_path / "runs") is not None


def test_mlflow_is_imported_meanwhile_and_a_failure_of_that_is_left_to_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bool] = []

    def fail() -> None:
        tried.append(True)
        raise ImportError("mlflow")

    monkeypatch.setattr(calibration, "import_mlflow", fail)
    for _ in range(2):
        assert measure_steps([tiny()], [MATMUL], root=tmp_path) is not None
    assert tried == [True], "a known measurement waits for no import"


def test_attnlab_plan_measures_and_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base: dict[str, Any] = {"task": {"name": "pydocs", "length": 24}, "model": {"dim": 12, "depth": 1, "heads": 2}}
    base |= {"train": {"steps": 4, "batch_size": 3}, "machine": {"device": "cpu", "matmul_precision": "auto"}}
    study = {"study": "s", "base": base, "grid": {"variant": ["dense", "none"]}}
    first = attnlab.plan(study, root=tmp_path)
    assert first.cells[0].config.machine.matmul_precision in ("highest", "medium")
    assert len(json.loads((tmp_path / FILE).read_text())) == 1
    monkeypatch.setattr(calibration, "_measure", lambda *_: pytest.fail("measured again"))
    assert attnlab.plan({**study, "seeds": [4, 5]}, root=tmp_path).auto_machine == first.auto_machine
    assert attnlab.plan(study, sets={"machine.matmul_precision": "high"}, root=tmp_path).auto_machine == {}
