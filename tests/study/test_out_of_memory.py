"""Tests of running out of memory: a result wherever it happens, with the requested size and the peak."""

import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from attnlab._util import machine
from attnlab.errors import UserError
from attnlab.tasks import Task
from attnlab.training import trainer
from attnlab.training.device import describe_out_of_memory, is_out_of_memory
from attnlab.training.train import train
from tests.support.paths import ROOT
from tests.support.small_runs import recorded, tiny

PEAKS = {"host_peak_mib": 512.0, "gpu_peak_mib": 3 * 1024.0}
ON_DEVICE = torch.OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 1.20 GiB. GPU 0 has a total capacity of 79.10 GiB of which 512.00 MiB is free."
)


def raised(act: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        act()
    return caught.value


def test_the_reason_names_the_requested_memory_and_the_peak() -> None:
    host = raised(lambda: torch.empty(1_288_490_188 << 20, dtype=torch.uint8))
    requested = "requested 1.2 PiB (1,351,079,887,372,288 bytes)"
    assert describe_out_of_memory(host, step=12, peaks=PEAKS) == f"out of memory at step 12: {requested}, peak 512.0 MiB"
    assert (
        describe_out_of_memory(ON_DEVICE, step=0, peaks=PEAKS)
        == "out of memory before the first step: requested 1.20 GiB, peak 3.0 GiB"
    )
    array = raised(lambda: np.empty(1 << 60, dtype=np.uint8))
    assert "requested 1.00 EiB, peak 512.0 MiB" in describe_out_of_memory(array, step=1, peaks=PEAKS)
    assert "requested an unknown amount, peak" in describe_out_of_memory(MemoryError(), step=1, peaks=PEAKS)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ON_DEVICE,
        RuntimeError("std::bad_alloc"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
        RuntimeError("could not create a memory object"),
        ImportError("x.so: failed to map segment from shared object: Cannot allocate memory"),
        OSError(12, "Cannot allocate memory"),
    ],
    ids=repr,
)
def test_what_counts(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error", [RuntimeError("shapes do not match"), OSError(28, "No space left on device"), ValueError("out of memory")]
)
def test_what_does_not_count(error: Exception) -> None:
    assert not is_out_of_memory(error)


def starve(*_: Any, **__: Any) -> Any:
    return torch.empty(2**60)


class Hungry(torch.autograd.Function):
    """Requests too much memory, in the backward pass only."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return starve()


@pytest.mark.parametrize(("place", "step"), [("building", 0), ("forward", 0), ("backward", 0), ("valid", 4), ("test", 12)])
def test_wherever_it_happens(place: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, evaluate = Task.loss, trainer.evaluate

    def hungry_loss(*words: Any) -> Any:
        return Hungry.apply(loss(*words))

    def hungry_evaluate(model: Any, task: Any, split: str, **more: Any) -> dict[str, float]:
        return starve() if split == place else evaluate(model, task, split, **more)

    if place == "building":
        monkeypatch.setattr(trainer, "build", starve)
    elif place == "forward":
        monkeypatch.setattr(Task, "loss", starve)
    elif place == "backward":
        monkeypatch.setattr(Task, "loss", hungry_loss)
    else:
        monkeypatch.setattr(trainer, "evaluate", hungry_evaluate)
    result = train(tiny())
    assert (result.state, result.step) == ("out_of_memory", step)
    assert "requested 4.0 EiB (4,611,686,018,427,387,904 bytes), peak " in result.reason
    assert result.summary["host_peak_mib"] > 0 and ("parameters" in result.summary) == (place != "building")


SCRIPT = """
import sys, torch._dynamo
from tests.support.small_runs import tiny
from attnlab._util import machine
from attnlab.training.train import train
torch.set_num_threads(1)
train(tiny(train__steps=1))
machine.limit_memory(machine.peak_memory() + ({room} << 20))
result = train(tiny(**{changes}))
print(result.state, result.step, result.reason, sep="|")
"""


WIDE = {"model__heads": 4, "model__depth": 8}


@pytest.mark.parametrize(
    ("changes", "room", "step"),
    [
        ({**WIDE, "model__dim": 1024}, 160, 0),  # MiB; the weights take 400
        ({**WIDE, "model__dim": 512}, 160, 0),  # the weights take 100, and the gradients as much
        ({"evaluate__batch_size": 4096, "evaluate__valid_limit": None, "model__ff_mult": 500.0}, 160, 4),
    ],
    ids=["building", "training", "evaluating"],
)
def test_under_a_limit(changes: dict[str, Any], room: int, step: int) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    script = SCRIPT.format(changes=changes, room=room)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    state, last, line = done.stdout.strip().split("|")
    assert (state, int(last)) == ("out_of_memory", step)
    match = re.search(r"requested [\d.]+ [KM]iB \(([\d,]+) bytes\), peak ([\d.]+) MiB$", line)
    assert match, line
    assert int(match[1].replace(",", "")) > 1 << 10 and float(match[2]) > 200  # a small request may be the one too many


def test_a_limit_below_what_the_process_has_is_refused() -> None:
    with pytest.raises(UserError, match=r"above the [\d,]+ bytes .* got 1,000 bytes"):
        machine.limit_memory(1_000)


def test_the_peak_is_the_run_s_own() -> None:
    block = bytearray(300 << 20)
    before = machine.peak_memory()
    del block
    result, _ = recorded(tiny(train__steps=1))
    assert result.state == "completed"
    assert machine.peak_memory() < before - (200 << 20)
    inherited = "import sys; sys.path.insert(0, '.'); from attnlab._util.machine import peak_memory; print(peak_memory())"
    block = bytearray(900 << 20)
    done = subprocess.run([sys.executable, "-c", inherited], capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) < len(block) / 2, "a process remembers nothing of the one that started it"
