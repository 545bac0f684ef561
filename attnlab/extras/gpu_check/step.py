"""Steps, their cases, and the setting that they run in."""

from __future__ import annotations

import gc
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import torch

from attnlab._util.machine import peak_memory
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.training.device import synchronise

MIB = 2**20
T = TypeVar("T")
Values = dict[str, Any]  # that JSON can hold
Rows = dict[str, Values]  # case -> its values
Summary = list[tuple[str, str]]  # what was measured, and the result


class Case(NamedTuple):
    """A measurement or a comparison; ``run`` returns its values, and raises if it fails."""

    name: str
    run: Callable[[], Values]


@dataclass(frozen=True)
class Step:
    """Cases that belong together.

    Attributes:
        name: as in ``results.jsonl`` and on the command line.
        title: its heading on the page.
        seconds: its time limit.
        cases: returns its cases.
        summarize: returns what the table says of the cases that are done, of which there is at least one.
        processes: how many cases may run at a time, where the machine has as many processors.
    """

    name: str
    title: str
    seconds: float
    cases: Callable[[Setting], Iterable[Case]]
    summarize: Callable[[Rows], Summary]
    processes: int = 1


@dataclass(frozen=True)
class Setting:
    """Where a step runs.

    Attributes:
        folder: of the results.
        rehearse: run on the CPU at small sizes, with a stand-in for the card.
        seconds: that are left for the step.
    """

    folder: Path
    rehearse: bool = False
    seconds: float = 3600.0

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.rehearse else "cuda")

    @cached_property
    def card(self) -> Card:
        return StandIn() if self.rehearse else Card()

    def size(self, whole: T, small: T) -> T:
        """Return the size of a measurement: ``small`` in a rehearsal."""
        return small if self.rehearse else whole

    def resolved(self, base: dict[str, Any], *, variant: Any = "dense") -> RunConfig:
        """Return the configuration of one cell, resolved as in a study.

        Raises:
            UserError: the plan refuses it; the message is the reason.
        """
        machine = {"device": self.device.type, "threads": 1 if self.rehearse else None, **base.get("machine", {})}
        study = {"study": "gpu-check", "base": {**base, "machine": machine}, "grid": {"variant": [variant]}}
        (cell,) = plan(study).cells
        if cell.refusal is not None:
            raise UserError(cell.refusal)
        return cell.config

    def median_seconds(self, act: Callable[[], object]) -> float:
        """Return the median time of a call over 7 rounds of at least 0.05 seconds each, after two calls."""
        return self.interleaved([act])[0]

    def interleaved(self, acts: Sequence[Callable[[], object]], *, rounds: int = 7, least: float = 0.05) -> list[float]:
        """Return the median seconds of a call of each function; the functions take turns."""
        rounds, least = self.size((rounds, least), (1, 0.0))
        repeats = []
        for act in acts:
            act()
            repeats.append(max(1, round(least / max(self._seconds(act), 1e-6))))
        turns = [[self._seconds(act, n) for act, n in zip(acts, repeats, strict=True)] for _ in range(rounds)]
        return [median(column) for column in zip(*turns, strict=True)]

    def _seconds(self, act: Callable[[], object], repeats: int = 1) -> float:
        synchronise(self.device)
        began = perf_counter()
        for _ in range(repeats):
            act()
        synchronise(self.device)
        return (perf_counter() - began) / repeats


class Card:
    """What the check asks of CUDA, in one place, so that a rehearsal can replace it."""

    def describe(self) -> Values:
        """Return the card's name, its memory in MiB, its compute capability and its multiprocessors."""
        seen = torch.cuda.get_device_properties(0)
        return {
            "card": seen.name,
            "memory_mib": seen.total_memory // MIB,
            "capability": f"{seen.major}.{seen.minor}",
            "multiprocessors": seen.multi_processor_count,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }

    def allocated(self) -> int:
        """Return the bytes of all tensors, and begin a new peak."""
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()

    def peak(self) -> int:
        """Return the most bytes of tensors since ``allocated``."""
        return torch.cuda.max_memory_allocated()

    def failed(self) -> bool:
        """Return whether an earlier error has left the device unusable for this process."""
        try:
            torch.cuda.synchronize()
        except Exception:  # of any class that CUDA's errors have
            return True
        return False


class StandIn(Card):
    """The card of a rehearsal: this machine's CPU, and the memory of the process."""

    def describe(self) -> Values:
        return {"card": f"rehearsal on {platform.machine()}", "memory_mib": 0, "capability": "0.0", "multiprocessors": 0}

    def allocated(self) -> int:
        gc.collect()
        return 0

    def peak(self) -> int:
        return peak_memory()

    def failed(self) -> bool:
        return False
