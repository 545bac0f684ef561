"""Tests of the measurement of machine settings: real steps, the file that keeps them, and failures."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab.planning.machine import BACKEND, MATMUL, MAX_BF16_DIFFERENCE, MEMORY, PRECISION, StepTime, choose_levers
from attnlab.study.execution import measurements
from attnlab.study.execution.measurements import FORGET, SETTINGS_FILE, measure_steps
from tests.support.small_runs import tiny


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for limit in ("MAX_SECONDS", "LONGEST"):
        monkeypatch.setattr(measurements, limit, 0.05)
    monkeypatch.setattr(measurements, "TURN_SECONDS", 0.01)
    monkeypatch.setenv("ATTNLAB_STATE", str(tmp_path / "state"))
    monkeypatch.delenv(FORGET, raising=False)


def test_steps_are_measured_once_for_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [tiny(), tiny(model__dim=24)]
    measured = measure_steps(configs, [MATMUL, MEMORY])
    assert measured is not None and len(measured) == 2
    for steps in measured:
        assert [step.changed for step in steps] == [(), (MATMUL,), (MEMORY,), (MATMUL, MEMORY)]
        assert all(0 < step.seconds < 60 for step in steps)
        assert steps[0].difference == steps[2].difference == 0.0, "the same kernels give the same bits"
    monkeypatch.setattr(measurements, "_measure", lambda *_: pytest.fail("measured again"))
    assert measure_steps(configs, [MATMUL, MEMORY]) == measured
    for other, paths in ((configs[:1], [MATMUL, MEMORY]), (configs, [MEMORY])):
        with pytest.raises(pytest.fail.Exception, match="measured again"):
            measure_steps(other, paths)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        measure_steps(configs, [MATMUL, MEMORY])


def test_one_field_needs_no_other_steps() -> None:
    for path in (MATMUL, MEMORY, BACKEND):
        measured = measure_steps([tiny(backend="blocked")], [path])
        assert measured is not None and [step.changed for step in measured[0]] == [(), (path,)]


def test_steps_of_both_precisions_and_of_each_with_the_other_fields() -> None:
    measured = measure_steps([tiny()], [MATMUL, PRECISION, MEMORY])
    assert measured is not None
    in_order = [(), (MATMUL,), (PRECISION,), (MATMUL, PRECISION)]
    assert [step.changed for step in measured[0]] == in_order + [(*changed, MEMORY) for changed in in_order]
    differences = {step.changed: step.difference for step in measured[0]}
    assert 1e-5 < differences[PRECISION,] < MAX_BF16_DIFFERENCE
    assert differences[PRECISION, MEMORY] == differences[PRECISION,], "kept buffers change no number"


@pytest.mark.parametrize(
    ("speedups", "longest", "rounds"),
    [
        ([2.0], 60, 8),  # clear at once
        ([0.5], 60, 8),
        ([1.0, 1.1], 60, 60),  # one of two rounds: never clear
        ([0.9, 1.1, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3] + [1.3] * 40, 60, 8),
        ([1.0, 1.1], 0.5, 1),  # a round takes longer
    ],
)
def test_steps_are_measured_until_the_choice_is_clear(
    speedups: list[float], longest: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, taken = iter(range(1_000)), iter(speedups * 100)
    monkeypatch.setattr(measurements, "perf_counter", lambda: float(next(clock)))  # a round takes a second
    monkeypatch.setattr(measurements, "MAX_SECONDS", 60)
    monkeypatch.setattr(measurements, "LONGEST", longest)
    monkeypatch.setattr(measurements, "forked", lambda *_, **__: nullcontext([None]))

    def take(turns: Any, message: str | None = None) -> list[list[float]]:
        return [[0.0, 1e-7]] if message is None else [[1.0, 1 / next(taken)]]

    monkeypatch.setattr(measurements, "_take_turns", take)
    measured = measurements._measure([tiny()], [MATMUL])
    assert measured is not None and {len(step.rounds) for step in measured[0]} == {rounds}
    setting = choose_levers([MATMUL], {"dense": measured[0]})[MATMUL]
    assert setting.value == ("medium" if speedups[-1] > 1.2 else "highest")


def test_load_that_comes_and_goes_slows_no_setting_more_than_another(monkeypatch: pytest.MonkeyPatch) -> None:
    load = iter([1.0, 7.0, 1.0, 30.0] * 100)

    def take(turns: Any, message: str | None = None) -> list[list[float]]:
        now = next(load)
        return [[0.0, 1e-7]] if message is None else [[now, now / 1.2]]

    for limit in ("MAX_SECONDS", "LONGEST"):
        monkeypatch.setattr(measurements, limit, 60.0)
    monkeypatch.setattr(measurements, "forked", lambda *_, **__: nullcontext([None]))
    monkeypatch.setattr(measurements, "_take_turns", take)
    measured = measurements._measure([tiny()], [MATMUL])
    assert measured is not None and len(measured[0][0].rounds) == measurements.MIN_ROUNDS
    assert measured[0][0].seconds / measured[0][1].seconds == pytest.approx(1.2)


@pytest.mark.parametrize(
    "damage",
    [
        "no JSON",
        "[]",
        '{"KEY": 1}',
        '{"KEY": [[]]}',
        '{"KEY": [[[[], 1.0, 0.0, []]]]}',  # no step with the field
        '{"KEY": [[[[], 1.0, 0.0, []], [["machine.matmul_precision"], -1.0, 0.0, []]]]}',
        '{"KEY": [[[[], 1.0, 0.0, [1.0]], [["machine.matmul_precision"], 1.0, 0.0, []]]]}',
        '{"KEY": [[[[], 1.0, 0.0, []], [["machine.matmul_precision"], "fast", 0.0, []]]]}',
    ],
)
def test_a_damaged_file_is_measured_again(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = [[StepTime((), 1.0, 0.0), StepTime((MATMUL,), 0.5, 0.0)]]
    monkeypatch.setattr(measurements, "_measure", lambda *_: again)
    measure_steps([tiny()], [MATMUL])
    file = tmp_path / "state" / SETTINGS_FILE
    (key,) = json.loads(file.read_text())
    file.write_text(damage.replace("KEY", key))
    assert measure_steps([tiny()], [MATMUL]) == again
    assert json.loads(file.read_text())[key]


def test_a_variable_replaces_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.5, 0.4])
    monkeypatch.setattr(
        measurements, "_measure", lambda *_: [[StepTime((), 1.0, 0.0), StepTime((MATMUL,), next(seconds), 0.0)]]
    )
    first = measure_steps([tiny()], [MATMUL])
    assert measure_steps([tiny()], [MATMUL]) == first
    monkeypatch.setenv(FORGET, "1")
    other = measure_steps([tiny()], [MATMUL])
    monkeypatch.delenv(FORGET)
    assert other != first and measure_steps([tiny()], [MATMUL]) == other


def test_a_step_that_fails_is_not_measured(tmp_path: Path) -> None:
    assert measure_steps([tiny(), tiny(variant="no_such_variant")], [MATMUL]) is None
    assert not (tmp_path / "state" / SETTINGS_FILE).exists()


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    assert measure_steps([tiny()], [MATMUL]) is not None


def test_mlflow_is_imported_meanwhile_and_a_failure_of_that_is_left_to_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bool] = []

    def fail() -> None:
        tried.append(True)
        raise ImportError("mlflow")

    monkeypatch.setattr(measurements, "import_mlflow", fail)
    for _ in range(2):
        assert measure_steps([tiny()], [MATMUL]) is not None
    assert tried == [True], "a known measurement waits for no import"


def test_attnlab_plan_measures_and_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base: dict[str, Any] = {"task": {"name": "pydocs", "length": 24}, "model": {"dim": 12, "depth": 1, "heads": 2}}
    base |= {"train": {"steps": 4, "batch_size": 3}, "machine": {"device": "cpu", "matmul_precision": "auto"}}
    study = {"study": "s", "base": base, "grid": {"variant": ["dense", "none"]}}
    first = attnlab.plan(study, root=tmp_path)
    assert first.cells[0].config.machine.matmul_precision in ("highest", "medium")
    assert len(json.loads((tmp_path / "state" / SETTINGS_FILE).read_text())) == 1
    monkeypatch.setattr(measurements, "_measure", lambda *_: pytest.fail("measured again"))
    assert attnlab.plan({**study, "seeds": [4, 5]}, root=tmp_path).auto_machine == first.auto_machine
    assert attnlab.plan(study, root=tmp_path / "fresh").auto_machine == first.auto_machine, "in another folder of runs, too"
    assert attnlab.plan(study, sets={"machine.matmul_precision": "high"}, root=tmp_path).auto_machine == {}
