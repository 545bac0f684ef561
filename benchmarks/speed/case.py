"""Cases, model sizes and timing of steps, shared by all sections."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.training.device import synchronise

OURS = "attnlab"
SETTINGS = {"matmul_precision": "medium", "reuse_memory": True}  # attnlab's ``machine`` in its own CPU studies
PRECISIONS = ("fp32", "bf16")
SHIPPED, EQUAL = "as shipped", "equal settings"


@dataclass(frozen=True)
class Case:
    """A measurement in a process of its own.

    Attributes:
        name: ``attnlab``, or the name of a peer.
        part: comparison that the case belongs to; cases of one part are compared.
        settings: ``as shipped``, or ``equal settings``: attnlab's process settings and the fused optimizer for peers, too.
    """

    section: str
    name: str
    part: str = ""
    precision: str = "fp32"
    settings: str = SHIPPED
    device: str = "cpu"

    def __str__(self) -> str:
        part = f" ({self.part})" if self.part not in ("", self.name) else ""
        return f"{self.section}: {self.name}{part}, {self.device}, {self.precision}, {self.settings}"


def own_settings(case: Case) -> dict[str, Any]:
    """Return attnlab's ``machine`` settings: on CUDA "medium" allows TF32, which peers as shipped do not use."""
    exact = case.device == "cuda" and case.settings == SHIPPED
    return SETTINGS | ({"matmul_precision": "highest"} if exact else {})


class Row(NamedTuple):
    """A measured value: ``quantity`` has the unit in its name, ``item`` distinguishes several values of one quantity."""

    quantity: str
    item: str
    value: float


@dataclass(frozen=True)
class Size:
    """The shapes of the model and the batch, and the numbers of warm-up steps (``warm``) and timed steps."""

    dim: int = 256
    depth: int = 12
    heads: int = 8
    length: int = 256
    memory: int = 256
    batch: int = 8
    lr: float = 3e-4
    warm: int = 2
    steps: int = 6


def timed(step: Callable[[], Tensor], case: Case, *, size: Size, after: Callable[[], object] = lambda: None) -> list[Row]:
    """Return the milliseconds of each step after warm-up, and the first and last loss.

    Args:
        step: takes a step and returns its loss.
        after: called after each step, not timed.
    """
    device, seconds, losses = torch.device(case.device), [], []
    for _ in range(size.warm + size.steps):
        synchronise(device)
        began = perf_counter()
        losses.append(step().detach())
        synchronise(device)
        seconds.append(perf_counter() - began)
        after()
    values = [float(loss) for loss in losses]
    check_falling(values, case)
    rows = [Row("ms", str(i), 1e3 * duration) for i, duration in enumerate(seconds[size.warm :])]
    return [*rows, Row("loss", "first", values[0]), Row("loss", "last", values[-1])]


def check_falling(losses: list[float], case: Case) -> None:
    """Exit with an error if the loss is not finite or does not fall, because the timing would be meaningless."""
    end = max(1, len(losses) // 4)
    first, last = mean(losses[:end]), mean(losses[-end:])
    if not all(map(math.isfinite, losses)) or not last < first:
        sys.exit(f"{case}: expected finite losses that fall, got {first:.4g} at first and {last:.4g} at last")


def check_finite(loss: float, case: Case) -> None:
    """Exit with an error if the loss is not finite."""
    if not math.isfinite(loss):
        sys.exit(f"{case}: expected a finite loss, got {loss}")


def median_ms(act: Callable[[], object], device: torch.device) -> float:
    """Return the median milliseconds of 15 calls after three warm-up calls."""
    seconds = []
    for _ in range(3 + 15):
        synchronise(device)
        began = perf_counter()
        act()
        synchronise(device)
        seconds.append(perf_counter() - began)
    return 1e3 * median(seconds[3:])
