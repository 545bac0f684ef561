"""Points of curves on their way to the store: in batches while it answers, in memory while it does not."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from attnlab.tracking.client import Point, write
from attnlab.tracking.delivery import Delivery

if TYPE_CHECKING:
    from mlflow import MlflowClient

FLUSH_POINTS, FLUSH_SECONDS = 400, 2.0


@dataclass
class _Buffer:
    """The points of a run that the store does not have yet."""

    points: list[Point] = field(default_factory=list)
    flushed: float = field(default_factory=time.monotonic)
    on_its_way: bool = False


class Points:
    """Collects what is logged and has it delivered; the time of a point is that of ``add``."""

    def __init__(self, client: MlflowClient, delivery: Delivery) -> None:
        self._client, self._delivery = client, delivery
        self._buffers: dict[str, _Buffer] = {}

    def add(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        """Add points to a run's curves.

        Raises:
            Refused: the store refused earlier ones.
        """
        buffer = self._buffers.setdefault(run_id, _Buffer())
        stamp = int(1_000 * time.time())
        buffer.points += [(name, value, stamp, step) for name, value in metrics.items()]
        if len(buffer.points) < FLUSH_POINTS and time.monotonic() - buffer.flushed < FLUSH_SECONDS:
            return
        buffer.flushed = time.monotonic()
        self._delivery.raise_pending(run_id)
        if not buffer.on_its_way:  # else the call that waits takes these points along
            buffer.on_its_way = True
            self._delivery.submit(partial(self._send, run_id, buffer), about=run_id)

    def take(self, run_id: str) -> list[Point]:
        """No more points of this run will be added: the list of those that are not delivered, which may still shrink."""
        return self._buffers.pop(run_id, _Buffer()).points

    def _send(self, run_id: str, buffer: _Buffer) -> None:
        points = buffer.points.copy()
        write(self._client, run_id, points=points)
        del buffer.points[: len(points)]  # more may have come meanwhile, behind them
        buffer.on_its_way = False
