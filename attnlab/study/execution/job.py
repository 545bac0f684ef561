"""The instructions of a run for the process that trains it, the messages of this process to its parent, and how the run ended.

A child sends any number of ``Update``s and then one ``Outcome``. A child that is killed sends no outcome.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

from attnlab._util.process import describe_exit_code
from attnlab._util.run_state import Reset, RunState
from attnlab.config.command import CommandConfig
from attnlab.config.run import RunConfig
from attnlab.errors import UserError

TRAIN = "attnlab.training.train:train"
PRELOAD = "attnlab.study.execution.preload"
PRELOAD_OF_COMMANDS = "attnlab.study.execution.child"  # without torch, whose memory would count as the program's


@dataclass(frozen=True, kw_only=True)
class Job:
    """The instructions for a child process.

    Args:
        settings: the configuration of attnlab's training, or of a program.
        folder: for checkpoints and the child's output (``log.txt``).
        metric: by which the study compares its cells.
        threads: CPU threads, where the configuration leaves their number open.
        figures: the costs of the model as the plan traced them; None: the run traces them itself.
        train: ``"module:function"``, called as ``function(config, report=..., folder=...)``; not of a program. attnlab's
            function also gets the ``figures``.
        pruning_metric: the curve by which a trial is judged; after each of its points the child waits for an answer.
        memory_limit: in bytes; None for no limit.
        reset: the files of an earlier attempt that are removed from the folder before training.
        environment: the environment variables of the child.
    """

    settings: RunConfig | CommandConfig
    folder: Path
    metric: str = ""
    threads: int = 1
    figures: dict[str, int] | None = None
    train: str = TRAIN
    pruning_metric: str | None = None
    memory_limit: int | None = None
    reset: Reset = Reset.NONE
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def preload(self) -> str:
        """The module that the server of the run's process has imported."""
        return PRELOAD_OF_COMMANDS if isinstance(self.settings, CommandConfig) else PRELOAD


@dataclass(frozen=True)
class Notice:
    """A line for the user: the process waits for another one, takes over an earlier result, or skips a damaged file."""

    text: str


@dataclass(frozen=True)
class Started:
    """Training starts, on ``device``; ``total_steps`` is None when the length is not known in advance."""

    device: str
    total_steps: int | None


@dataclass(frozen=True)
class Metrics:
    """Points of curves at one step."""

    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class Evaluation:
    """The progress of an evaluation that takes long: its name, for example ``test``, and how much of it is done."""

    label: str
    done: int
    total: int


@dataclass(frozen=True)
class Tag:
    """A text to record with the run: ``length.1024`` -> the reason why that length has no score."""

    name: str
    text: str


@dataclass(frozen=True)
class Ending:
    """The end of a run.

    Args:
        summary: final metrics by name.
        reason: one line; empty when the state is ``completed``.
        traceback: of an exception that is not the user's mistake.
        retry: the process was lost for an unknown reason, so one more attempt may succeed.
    """

    state: RunState
    summary: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    traceback: str = ""
    retry: bool = False


@dataclass(frozen=True)
class Killed:
    """A signal ended the program of the run; its peak memory was ``peak_mib`` MiB (0: unknown)."""

    signal: int
    peak_mib: float


@dataclass(frozen=True)
class DiskFull:
    """A file of the study could not be written because the disk is full or read-only: every other run would fail too."""

    reason: str


Update = Notice | Started | Metrics | Evaluation | Tag
Outcome = Ending | Killed | DiskFull
Message = Update | Outcome


@dataclass(frozen=True)
class MemoryEvidence:
    """Observations of the machine about the memory of a process that has ended.

    Args:
        oom_kill: the kernel's out-of-memory killer was active on this machine while the process lived.
        peak: the largest resident size that was seen, in bytes.
    """

    oom_kill: bool
    peak: int


def decide_ending(outcome: Outcome | None, exit_code: int | None, memory: MemoryEvidence) -> Ending:
    """Decide how a run ended.

    Args:
        outcome: the last message of the process; None when it was lost before it sent one.
        exit_code: of the process, negative for a signal; None when the process closed its pipe but did not end.

    Raises:
        UserError: the disk is full or read-only, which stops the study.
    """
    match outcome:
        case Ending():
            return outcome
        case Killed(number, peak):
            exit_code, memory = -number, replace(memory, peak=int(peak * 2**20))
        case DiskFull(reason):
            raise UserError(reason)
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
