"""Tests of the number of runs at a time and their threads: by a rule, recorded, and never different within a study."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import attnlab
from attnlab.errors import UserError
from attnlab.planning.plan import Plan, plan
from attnlab.study.execution import concurrency
from attnlab.study.execution.concurrency import VARIABLE, Concurrency, choose, requested_workers
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.tracking.runs import load_runs


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


def test_small_runs_have_one_thread_each_and_large_ones_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(small_plan(), "auto") == Concurrency(4, 1)
    assert choose(small_plan(seeds=2), "auto") == Concurrency(2, 1), "no more than there are runs"
    monkeypatch.setattr(concurrency, "SMALL_STEP", 0.0)
    assert choose(small_plan(), "auto") == Concurrency(1, 4)


def test_the_threads_that_a_study_sets_or_began_with_decide_the_workers() -> None:
    assert choose(small_plan(threads=2), "auto") == Concurrency(2, 2)
    assert choose(small_plan(threads=2), "auto", recorded=4) == Concurrency(2, 2), "the recorded number has no effect"
    assert choose(small_plan(), "auto", recorded=2) == Concurrency(2, 2)
    assert choose(small_plan(), "auto", recorded=8) == Concurrency(1, 8), "begun on a larger machine"


def test_requested_workers_divide_the_threads() -> None:
    divided = {n: choose(small_plan(), n) for n in (1, 2, 3, 8)}
    assert divided == {1: Concurrency(1, 4), 2: Concurrency(2, 2), 3: Concurrency(3, 1), 8: Concurrency(8, 1)}
    assert choose(small_plan(seeds=2), 8) == Concurrency(8, 2), "a plan of two runs needs two shares"
    assert choose(small_plan(), 2, recorded=1) == Concurrency(2, 1)


@pytest.mark.parametrize(
    ("peak", "seeds", "expected"),
    [
        (1.0, 32, (16, 1)),  # small models leave most of the device idle
        (30 * 1024.0, 32, (4, 4)),  # two of 31 GiB fit into 0.8 x 80 GiB
        ("no estimate", 32, (2, 8)),
        (1.0, 5, (5, 3)),  # five runs: three on the first device
        (1.0, 1, (1, 16)),
    ],
)
def test_small_runs_share_a_cuda_device_as_far_as_its_memory_reaches(
    peak: float | str, seeds: int, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency, "processors", lambda: 16)
    monkeypatch.setattr("torch.get_num_threads", lambda: 16)
    monkeypatch.setattr(concurrency, "visible_devices", lambda: ["0", "1"])
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda *_: SimpleNamespace(total_memory=80 * 2**30))
    monkeypatch.setattr("attnlab.planning.costs.cuda_peaks", lambda cells: {cell.name: peak for cell in cells})
    on_cuda = small_plan(seeds=seeds, device="cuda")
    chosen = choose(on_cuda, "auto")
    assert (chosen.workers, chosen.threads) == expected
    assert choose(on_cuda, "auto", recorded=3) == Concurrency(chosen.workers, 3)
    monkeypatch.setattr(concurrency, "SMALL_STEP", 0.0)
    assert choose(on_cuda, "auto").workers == min(2, seeds), "large ones have a device each"


def test_a_study_records_its_threads_and_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"root": tmp_path, "display": ProgressDisplay(quiet=True), "reference_scores": False}
    assert attnlab.run(small_plan(seeds=2), workers="auto", **options).ok
    monkeypatch.setattr(concurrency, "SMALL_STEP", 0.0)
    assert attnlab.run(small_plan(seeds=3), workers=1, **options).ok
    devices = load_runs("small", tmp_path)["device"]
    assert len(devices) == 3 and all(device.endswith("(1 thread)") for device in devices)
