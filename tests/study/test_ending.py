"""Tests of the decision on how a run ended, from its last message, its exit code and the state of the machine's memory."""

import signal

import pytest

from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.study.execution.job import DiskFull, Ending, MemoryEvidence, decide_ending, timed_out

CALM = MemoryEvidence(oom_kill=False, peak=3 << 20)
OOM_KILL = MemoryEvidence(oom_kill=True, peak=3 << 20)


@pytest.mark.parametrize("exit_code", [0, 1, -signal.SIGKILL, None])
def test_a_result_counts_however_its_process_ended(exit_code: int | None) -> None:
    ending = decide_ending(Ending(RunState.DIVERGED, {"steps": 5.0}, "the loss became nan"), exit_code, OOM_KILL)
    assert ending == Ending(RunState.DIVERGED, {"steps": 5.0}, "the loss became nan")


def test_an_exception_is_a_failure_that_would_repeat() -> None:
    ending = decide_ending(Ending(RunState.FAILED, reason="ValueError: no", traceback="Traceback ..."), 0, CALM)
    assert ending == Ending(RunState.FAILED, reason="ValueError: no", traceback="Traceback ...", retry=False)


def test_a_full_disk_stops_the_study() -> None:
    with pytest.raises(UserError, match="the disk is full"):
        decide_ending(DiskFull("the disk is full"), 1, CALM)


def test_a_kill_by_the_kernel_for_memory_is_a_result_with_the_peak() -> None:
    ending = decide_ending(None, -signal.SIGKILL, OOM_KILL)
    assert (ending.state, ending.summary, ending.retry) == (RunState.OUT_OF_MEMORY, {"host_peak_mib": 3.0}, False)
    assert "3 MiB" in ending.reason


@pytest.mark.parametrize(
    ("exit_code", "memory", "words"),
    [
        (-signal.SIGKILL, CALM, "SIGKILL"),  # a user's kill -9
        (-signal.SIGSEGV, OOM_KILL, "SIGSEGV"),  # while another process ran out of memory
        (3, CALM, "exit code 3"),
        (0, CALM, "exit code 0"),
        (None, CALM, "did not end"),
    ],
)
def test_a_process_that_is_lost_is_tried_again(exit_code: int | None, memory: MemoryEvidence, words: str) -> None:
    ending = decide_ending(None, exit_code, memory)
    assert (ending.state, ending.summary, ending.retry) == (RunState.FAILED, {}, True) and words in ending.reason


def test_a_run_beyond_its_time_is_not_tried_again_at_once() -> None:
    ending = timed_out(2.5)
    assert (ending.state, ending.retry) == (RunState.TIMED_OUT, False) and "2.5 s" in ending.reason
