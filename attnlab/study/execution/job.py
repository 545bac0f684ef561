"""The instructions of one run for the process that trains it, and the messages that this process sends to its parent.

A child sends any number of ``Update``s and then one ``Outcome``. A child that is killed sends no outcome.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from attnlab._util.run_state import Reset, RunState
from attnlab.config.command import CommandConfig
from attnlab.config.run import RunConfig

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
class Ended:
    """The training function returned."""

    state: RunState
    summary: dict[str, float]
    reason: str = ""


@dataclass(frozen=True)
class Raised:
    """The training function raised an exception: one line, and the traceback if the fault is not the user's input."""

    reason: str
    traceback: str = ""


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
Outcome = Ended | Raised | Killed | DiskFull
Message = Update | Outcome
