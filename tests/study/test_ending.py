"""Tests of the result of a process that was lost, from its exit code and the state of the machine's memory."""

import signal

import pytest

from attnlab._util.run_state import RunState
from attnlab.study.execution.job import describe_loss


def test_a_kill_by_the_kernel_for_memory_is_a_result_with_the_peak() -> None:
    result = describe_loss(-signal.SIGKILL, oom_kill=True, peak=3 << 20)
    assert (result.state, result.summary, result.is_lost) == (RunState.OUT_OF_MEMORY, {"host_peak_mib": 3.0}, False)
    assert "3 MiB" in result.reason


@pytest.mark.parametrize(
    ("exit_code", "oom_kill", "words"),
    [
        (-signal.SIGKILL, False, "SIGKILL"),  # a user's kill -9
        (-signal.SIGSEGV, True, "SIGSEGV"),  # while another process ran out of memory
        (3, False, "exit code 3"),
        (0, False, "exit code 0"),
        (None, False, "did not end"),
    ],
)
def test_a_process_that_is_lost_is_tried_again(exit_code: int | None, oom_kill: bool, words: str) -> None:
    result = describe_loss(exit_code, oom_kill=oom_kill, peak=3 << 20)
    assert (result.state, result.summary, result.is_lost) == (RunState.FAILED, {}, True) and words in result.reason
