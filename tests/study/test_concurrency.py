"""Tests of the number of runs at a time and their threads: measured, recorded, and never different within a study."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab.errors import UserError
from attnlab.planning.plan import Plan, plan
from attnlab.registry import TASKS
from attnlab.study.execution import concurrency, measurements
from attnlab.study.execution.concurrency import VARIABLE, Concurrency, choose, describe, known_step_seconds, requested_workers
from attnlab.study.execution.measurements import FILE, StepTimes
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.tracking.runs import load_runs
from tests.support.small_runs import tiny

GIB = 2**30


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(concurrency, "processors", lambda: 4)
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)


def small_plan(*, seeds: int = 8, threads: int | None = None, device: str = "cpu", **more: Any) -> Plan:
    base = {
        "task": {"name": "pydocs", "length": 24},
        "model": {"dim": 12, "depth": 1, "heads": 2},
        "train": {"steps": 4, "batch_size": 3},
        "evaluate": {"valid_limit": 100, "test_limit": 100},
        "machine": {"device": device, "threads": threads},
    }
    return plan({"study": "small", "base": base, "grid": {"variant": ["dense"]}, "seeds": list(range(seeds)), **more})


@pytest.mark.parametrize(
    ("given", "variable", "expected"),
    [(None, None, "auto"), ("auto", "3", "auto"), (None, "3", 3), (None, "auto", "auto"), (2, "3", 2)],
)
def test_the_variable_is_the_default(
    given: Any, variable: str | None, expected: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv(VARIABLE, variable)
    assert requested_workers(given) == expected


def test_a_variable_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("0", "many", "-1"):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(UserError, match=f"'auto', got '?{text}'?") as refused:
            requested_workers(None)
        assert refused.value.where == VARIABLE


def test_a_given_number_divides_the_threads(tmp_path: Path) -> None:
    divided = {n: choose(small_plan(), n, root=tmp_path) for n in (1, 2, 3, 8)}
    assert divided == {1: Concurrency(1, 4), 2: Concurrency(2, 2), 3: Concurrency(3, 1), 8: Concurrency(8, 1)}
    assert choose(small_plan(seeds=2), 8, root=tmp_path) == Concurrency(8, 2), "a plan of two runs needs two shares"


def test_a_study_keeps_the_threads_that_it_began_with(tmp_path: Path) -> None:
    assert choose(small_plan(), "auto", root=tmp_path, recorded=2) == Concurrency(2, 2)
    assert choose(small_plan(), 2, root=tmp_path, recorded=1) == Concurrency(2, 1)
    crowded = choose(small_plan(), 4, root=tmp_path, recorded=4)
    assert (crowded.workers, crowded.threads) == (4, 4) and "began with 4 threads" in crowded.reason


def test_threads_of_the_configuration_need_no_measurement(tmp_path: Path) -> None:
    for recorded in (None, 4):
        assert choose(small_plan(threads=1), "auto", root=tmp_path, recorded=recorded).workers == 4
        assert choose(small_plan(threads=1), 4, root=tmp_path, recorded=recorded).reason == ""
    assert choose(small_plan(threads=2), "auto", root=tmp_path).workers == 2
    assert choose(small_plan(threads=2, seeds=1), "auto", root=tmp_path).workers == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("memory", "workers"), [(16 * GIB, 4), (10 * GIB, 3), (5 * GIB, 1), (None, 4)])
def test_runs_whose_batches_vary_start_as_they_fit(
    memory: int | None, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TASKS.get("pydocs"), "shapes_vary", True)
    monkeypatch.setattr(concurrency, "available_memory", lambda: memory)
    monkeypatch.setattr(measurements, "measure", lambda configs, **_: [(1.0, 5 * GIB // 2, None)] * len(configs))
    chosen = choose(small_plan(threads=1), "auto", root=tmp_path)
    assert chosen.workers == workers and ("do not fit" in chosen.reason) == (workers < 4)
    assert choose(small_plan(threads=1), "auto", root=tmp_path, measure=False) == chosen, "it is kept"


LAYOUTS = {1: 4, 2: 2, 4: 1}


@pytest.mark.parametrize(
    ("seconds", "runs", "workers"),
    [
        ({1: 1.0, 2: 1.4, 4: 2.0}, 8, 4),  # small models: one thread each is best
        ({1: 1.0, 2: 2.1, 4: 4.2}, 8, 4),  # a smaller gain than the noise
        ({1: 1.0, 2: 2.3, 4: 5.0}, 8, 1),  # runs that disturb each other
        ({1: 1.0, 2: 1.4, 4: 3.2}, 8, 2),
        ({1: 1.0, 2: 1.6, 4: 2.8}, 5, 2),  # five runs are 3 x 1.6 in pairs, but 2 x 2.8 in fours
    ],
)
def test_the_layout_is_the_one_with_which_all_runs_end_soonest(seconds: dict[int, float], runs: int, workers: int) -> None:
    chosen = concurrency._fastest(StepTimes(seconds, peak=1), LAYOUTS, runs=runs)
    assert (chosen.workers, chosen.threads) == (workers, LAYOUTS[workers])


def test_runs_together_fit_into_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "available_memory", lambda: 10 * GIB)
    chosen = concurrency._fastest(StepTimes({1: 1.0, 2: 1.0, 4: 1.0}, peak=3 * GIB), LAYOUTS, runs=8)
    assert chosen.workers == 2 and "do not fit into 10 GiB" in chosen.reason
    chosen = concurrency._fastest(StepTimes({1: 1.0, 2: 1.0, 4: 1.0}, peak=20 * GIB), LAYOUTS, runs=8)
    assert chosen.workers == 1


def test_steps_are_measured_once_for_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "SECONDS", 0.05)
    monkeypatch.setattr(concurrency, "processors", lambda: 2)
    first = choose(small_plan(), "auto", root=tmp_path)
    (times,) = json.loads((tmp_path / FILE).read_text()).values()
    assert set(times["seconds"]) == {"1", "2"} and all(0 < value < 60 for value in times["seconds"].values())
    assert 50e6 < times["peak"] < 10e9
    assert first.workers in (1, 2) and "times as many steps/s as" in first.reason
    monkeypatch.setattr(measurements, "measure", lambda *_, **__: pytest.fail("measured again"))
    assert choose(small_plan(), "auto", root=tmp_path) == first
    (tmp_path / FILE).write_text("{")
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        choose(small_plan(), "auto", root=tmp_path)


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 16 processors and two CUDA devices, as far as the choice asks for them."""
    monkeypatch.setattr(concurrency, "processors", lambda: 16)
    monkeypatch.setattr("torch.get_num_threads", lambda: 16)
    monkeypatch.setattr(concurrency, "visible_devices", lambda: ["0", "1"])
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda *_: "a device")


@pytest.mark.parametrize(
    ("seconds", "peak", "seeds", "expected"),
    [
        ({1: 1.0, 2: 1.1, 4: 1.3, 8: 2.0}, 1, 32, (16, 1)),  # small models leave most of the device idle
        ({1: 1.0, 2: 1.9, 4: 3.9, 8: 9.0}, 1, 32, (8, 2)),  # no gain from two on, beyond the noise
        ({1: 1.0, 2: 2.3, 4: 5.0, 8: 11.0}, 1, 32, (2, 8)),  # large ones slow each other down
        ({1: 1.0, 2: 1.1, 4: 1.3, 8: 2.0}, 30, 32, (4, 4)),  # two of 30 GiB fit into 0.8 x 80 GiB
        ({1: 1.0, 2: 1.1, 3: 1.2}, 1, 5, (5, 2)),  # five runs: three on the first device
    ],
)
@pytest.mark.usefixtures("two_devices")
def test_small_runs_share_a_cuda_device(
    seconds: dict[int, float], peak: int, seeds: int, expected: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(configs: Any, **_: Any) -> list[tuple[float, int, int | None]]:
        return [(seconds[len(configs)], peak * GIB, 80 * GIB)] * len(configs)

    monkeypatch.setattr(measurements, "measure", measured)
    on_cuda = small_plan(seeds=seeds, device="cuda")
    chosen = choose(on_cuda, "auto", root=tmp_path)
    assert (chosen.workers, chosen.threads) == expected and chosen.reason.startswith("on each device, ")
    assert choose(on_cuda, "auto", root=tmp_path, recorded=3) == Concurrency(chosen.workers, 3, chosen.reason)


@pytest.mark.usefixtures("two_devices")
def test_a_device_has_one_run_where_sharing_was_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cuda = small_plan(device="cuda")
    assert choose(on_cuda, "auto", root=tmp_path, measure=False) == Concurrency(2, 8)
    assert known_step_seconds(on_cuda, Concurrency(2, 8), root=tmp_path) is None
    assert choose(small_plan(seeds=1, device="cuda"), "auto", root=tmp_path) == Concurrency(1, 16)
    monkeypatch.setattr(measurements, "measure", lambda *_, **__: None)
    assert choose(on_cuda, "auto", root=tmp_path) == Concurrency(2, 8)


def test_a_run_on_cuda_needs_its_tensors_and_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (70 * GIB, 80 * GIB))
    monkeypatch.setattr("torch.cuda.max_memory_reserved", lambda device: 3 * GIB)
    assert measurements._memory(torch.device("cuda")) == (3 * GIB + measurements.CUDA_CONTEXT, 80 * GIB)
    assert measurements._memory(torch.device("cpu"))[1] is None


def test_a_run_that_cannot_take_a_step_leaves_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(variant="no_such_variant")
    assert measurements.measure([config, config], threads=1, seconds=0.01) is None
    monkeypatch.setattr(measurements, "measure", lambda *_, **__: None)
    chosen = choose(small_plan(), "auto", root=tmp_path)
    assert (chosen.workers, chosen.threads) == (1, 4) and "could not be measured" in chosen.reason


def test_a_study_records_its_threads_and_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "_fastest", lambda *_, **__: Concurrency(2, 3, "measured"))
    monkeypatch.setattr(concurrency, "known_step_times", lambda *_, **__: StepTimes({}, 0))
    options: dict[str, Any] = {"root": tmp_path, "display": ProgressDisplay(quiet=True), "reference_scores": False}
    assert attnlab.run(small_plan(seeds=2), workers="auto", **options).ok
    assert attnlab.run(small_plan(seeds=3), workers=1, **options).ok
    devices = load_runs("small", tmp_path)["device"]
    assert len(devices) == 3 and all(device.endswith("(3 threads)") for device in devices)


def test_the_description_is_a_phrase() -> None:
    assert describe(Concurrency(1, 4)) == "1 run at a time with 4 threads"
    assert describe(Concurrency(2, 1)) == "2 runs at a time with 1 thread each"
