"""The instructions of a run for the process that trains it, and the messages of this process to its parent.

A message is a tuple of its kind and its values; the last one is ``("end", result)``. A child that is killed sends none.

- ``("notice", text)``: a line for the user, for example because the process waits for another one.
- ``("started", device)``: training starts.
- ``("metrics", step, values)``: points of curves at one step.
- ``("evaluation", label, done, total)``: the progress of an evaluation that takes long.
- ``("stop", reason)``: a file of the study could not be written because the disk is full: every other run would fail too.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnlab._util.process import describe_exit_code
from attnlab._util.run_state import Reset, RunState
from attnlab.config.command import CommandConfig
from attnlab.config.run import RunConfig
from attnlab.training.result import Result

Message = tuple[Any, ...]

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


def describe_loss(exit_code: int | None, *, oom_kill: bool, peak: int) -> Result:
    """Return the result of a process that was lost before it sent one.

    Args:
        exit_code: of the process, negative for a signal; None when the process closed its pipe but did not end.
        oom_kill: the kernel's out-of-memory killer was active on this machine while the process lived. SIGKILL alone proves
            nothing: an operator sends it too.
        peak: its largest resident size that was seen, in bytes.
    """
    if exit_code == -signal.SIGKILL and oom_kill:
        mib = peak / 2**20
        reason = f"the kernel killed it because the machine has no memory left; it held {mib:,.0f} MiB"
        return Result(RunState.OUT_OF_MEMORY, {"host_peak_mib": mib}, reason=reason)
    lost = "the process closed its pipe and did not end" if exit_code is None else describe_exit_code(exit_code)
    return Result(RunState.FAILED, reason=lost, is_lost=True)
