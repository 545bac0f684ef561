"""Tests of a run that several processes share: on the CPU, two ranks that gloo connects."""

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from attnlab.config.run import RunConfig
from attnlab.training import checkpoint, distributed
from attnlab.training.distributed import unsupported
from attnlab.training.train import train
from tests.support.small_runs import recorded, tiny

# Micro-batches of one row, with 2 to 4 predicted tokens: a mean of the ranks' means would be another loss.
UNEVEN: dict[str, Any] = {"task": {"name": "flip_flop", "length": 24}, "train__gradient_accumulation": 2}
SHARED: dict[str, Any] = {"machine__processes_per_run": 2}


def is_running(pid: int) -> bool:
    """Return False for a process that has ended, even if no parent has waited for it."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def killed(config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch, *, rank: int, step: int) -> list[int]:
    """Kill a rank at a step, check that the run ends with an error that names the rank, and return the pids of all ranks."""
    pids: list[int] = []
    fork = distributed.fork_with_pipe

    def watched(*arguments: Any, **options: Any) -> Any:
        process, pipe = fork(*arguments, **options)
        pids.append(process.pid or 0)
        return process, pipe

    def report(at: int, metrics: dict[str, float]) -> bool:
        if at == step and is_running(pids[rank]):
            os.kill(pids[rank], signal.SIGKILL)
        return False

    monkeypatch.setattr(distributed, "fork_with_pipe", watched)
    with pytest.raises(RuntimeError, match=f"rank {rank} of 2 died"):
        train(config, report=report, folder=folder)
    return pids


@pytest.mark.timeout(120)  # ranks that wait for a dead one would wait for days
def test_two_ranks_train_as_one_process_even_if_one_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(**UNEVEN, **SHARED)
    expected, curve = recorded(tiny(**UNEVEN))
    pids = killed(config, tmp_path, monkeypatch, rank=1, step=9)
    assert len(pids) == 2 and not any(map(is_running, pids))
    assert [state["step"] for _, state in checkpoint.load_usable(tmp_path, config=config)] == [8, 4]
    result, points = recorded(config, tmp_path)
    assert result.state == "completed" and not checkpoint.exists(tmp_path)
    for (step, metrics), (expected_step, expected_metrics) in zip(points, curve, strict=True):
        assert step == expected_step and metrics == pytest.approx(expected_metrics, abs=1e-6)
    assert result.summary["accuracy"] == pytest.approx(expected.summary["accuracy"], abs=1e-6)


@pytest.mark.exhaustive
@pytest.mark.timeout(120)
def test_a_run_resumes_to_the_same_bits_when_rank_zero_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(**UNEVEN, **SHARED, model__dropout=0.2)
    undisturbed = recorded(config)
    pids = killed(config, tmp_path, monkeypatch, rank=0, step=9)
    assert not any(map(is_running, pids))
    assert recorded(config, tmp_path) == undisturbed


@pytest.mark.parametrize(
    ("changes", "part"),
    [({}, None), ({"train__batch_size": 6}, "divisible"), ({"machine__device": "cuda:1"}, "machine.device cuda")],
)
def test_batches_that_ranks_cannot_share_equally_are_refused(changes: dict[str, Any], part: str | None) -> None:
    reason = unsupported(tiny(**UNEVEN, **SHARED, **changes))
    assert reason is None if part is None else part in (reason or "")
