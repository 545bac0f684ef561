"""The decision on how a run ended, from the messages and the exit of its process."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, replace

from attnlab._util.process import describe_exit_code
from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.study.execution.job import DiskFull, Ended, Killed, Outcome, Raised


@dataclass(frozen=True)
class MemoryEvidence:
    """Observations of the machine about the memory of a process that has ended.

    Args:
        oom_kill: the kernel's out-of-memory killer was active on this machine while the process lived.
        peak: the largest resident size that was seen, in bytes.
    """

    oom_kill: bool
    peak: int


@dataclass(frozen=True)
class Ending:
    """The end of a run.

    Args:
        summary: final metrics by name.
        reason: one line; empty when the state is ``completed``.
        retry: the process was lost for an unknown reason, so one more attempt may succeed.
    """

    state: RunState
    summary: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    traceback: str = ""
    retry: bool = False


def decide_ending(
    outcome: Outcome | None, exit_code: int | None, memory: MemoryEvidence, *, lost_server: bool = False
) -> Ending:
    """Decide how a run ended.

    Args:
        outcome: the last message of the process; None when it was lost before it sent one.
        exit_code: of the process, negative for a signal; None when the process closed its pipe but did not end.
        lost_server: the server that the process was forked from has ended; nobody knows the process's exit code then.

    Raises:
        UserError: the disk is full or read-only, which stops the study.
    """
    match outcome:
        case Ended(state, summary, reason):
            return Ending(state, summary, reason)
        case Raised(reason, traceback):
            return Ending(RunState.FAILED, reason=reason, traceback=traceback)
        case Killed(number, peak):
            exit_code, memory, lost_server = -number, replace(memory, peak=int(peak * 2**20)), False
        case DiskFull(reason):
            raise UserError(reason)
    if lost_server:  # not a fault of the run
        return Ending(RunState.INTERRUPTED, reason="the server that its process was forked from ended", retry=True)
    # Without an outcome the process was lost. SIGKILL alone proves nothing: an operator sends it too.
    if exit_code == -signal.SIGKILL and memory.oom_kill:
        mib = memory.peak / 2**20
        reason = f"the kernel killed it because the machine has no memory left; it held {mib:,.0f} MiB"
        return Ending(RunState.OUT_OF_MEMORY, {"host_peak_mib": mib}, reason)
    lost = "the process closed its pipe and did not end" if exit_code is None else describe_exit_code(exit_code)
    return Ending(RunState.FAILED, reason=lost, retry=True)


def timed_out(limit: float) -> Ending:
    """Return the ending of a run that exceeded ``run.timeout``, in seconds."""
    return Ending(RunState.TIMED_OUT, reason=f"no end after {limit:g} s (run.timeout)")
