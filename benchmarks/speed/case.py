"""What every section shares: a case, the size of what is timed, and how a step is timed."""

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
    """One thing that is timed in a process of its own.

    Attributes:
        name: whose code it is: ``attnlab``, or a peer.
        part: which of the section's comparisons it belongs to; cases of one part are compared.
        settings: of a peer, ``as shipped`` or with attnlab's process settings and the fused optimiser.
    """

    section: str
    name: str
    part: str = ""
    precision: str = "fp32"
    settings: str = SHIPPED
    device: str = "cpu"

    def __str__(self) -> str:
        beside = f" ({self.part})" if self.part not in ("", self.name) else ""
        return f"{self.section}: {self.name}{beside}, {self.device}, {self.precision}, {self.settings}"


def own_settings(case: Case) -> dict[str, Any]:
    """``machine`` of attnlab's side: on CUDA "medium" allows TF32, which a peer as shipped does not have."""
    exact = case.device == "cuda" and case.settings == SHIPPED
    return SETTINGS | ({"matmul_precision": "highest"} if exact else {})


class Row(NamedTuple):
    """One figure: ``quantity`` with its unit in the name, and which of several it is."""

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
    """Milliseconds of each step but the first few, and the losses at either end.

    Args:
        step: takes one and returns its loss.
        after: what follows each step and is not timed.
    """
    device, seconds, losses = torch.device(case.device), [], []
    for _ in range(size.warm + size.steps):
        synchronise(device)
        began = perf_counter()
        losses.append(step().detach())
        synchronise(device)
        seconds.append(perf_counter() - began)
        after()
    found = [float(loss) for loss in losses]
    check_falling(found, case)
    rows = [Row("ms", str(i), 1e3 * one) for i, one in enumerate(seconds[size.warm :])]
    return [*rows, Row("loss", "first", found[0]), Row("loss", "last", found[-1])]


def check_falling(losses: list[float], case: Case) -> None:
    """End the process where training does not train: its time would mean nothing."""
    end = max(1, len(losses) // 4)
    first, last = mean(losses[:end]), mean(losses[-end:])
    if not all(map(math.isfinite, losses)) or not last < first:
        sys.exit(f"{case}: expected finite losses that fall, got {first:.4g} at first and {last:.4g} at last")


def check_finite(loss: float, case: Case) -> None:
    """End the process where a model says nothing."""
    if not math.isfinite(loss):
        sys.exit(f"{case}: expected a finite loss, got {loss}")


def median_ms(act: Callable[[], object], device: torch.device, *, times: int = 15) -> float:
    """Of one call, after three that warm up."""
    seconds = []
    for _ in range(3 + times):
        synchronise(device)
        began = perf_counter()
        act()
        synchronise(device)
        seconds.append(perf_counter() - began)
    return 1e3 * median(seconds[3:])
