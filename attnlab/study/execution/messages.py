"""The messages that the process of a run sends to its parent.

A child sends any number of ``Update``s and then one ``Outcome``. A child that is killed sends no outcome.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlab._util.run_state import RunState


@dataclass(frozen=True)
class Notice:
    """A line for the user: the process waits for another one, takes over an earlier result, or skips a damaged file."""

    text: str


@dataclass(frozen=True)
class Started:
    """Training starts, on ``device``; ``total_steps`` is None where the length is not known in advance."""

    device: str
    total_steps: int | None


@dataclass(frozen=True)
class Metrics:
    """Points of curves at one step."""

    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class Evaluation:
    """The progress of an evaluation that takes long: its name, such as ``test``, and how much of it is done."""

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
