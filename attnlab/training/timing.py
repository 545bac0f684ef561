"""Timing of a run: the seconds of its training steps, and of everything else."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch

from attnlab.training.device import synchronise

EXCLUDED = ("startup", "evaluation", "logging", "checkpoint")


class Timer:
    """Measure training steps in seconds and tokens, and the time of other activities separately.

    The first interval of a process, up to the first ``stop``, is warm-up: it counts towards ``seconds`` and ``tokens`` but
    not towards tokens per second.

    Attributes:
        seconds, tokens: of training steps alone, including the time to draw their batches.
        parts: seconds of each activity in ``EXCLUDED``.
        last: seconds of the latest evaluation of each split.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds, self.tokens = 0.0, 0
        self.warm_seconds, self.warm_tokens = 0.0, 0
        self.parts: dict[str, float] = dict.fromkeys(EXCLUDED, 0.0)
        self.last: dict[str, float] = {}
        self._warm = False
        self._start: float | None = None
        self._interval = 0

    def start(self) -> None:
        """Start an interval of training steps, unless one is running."""
        if self._start is None:
            self._start = perf_counter()

    def count(self, tokens: int) -> None:
        """Add the tokens of one training step to the current interval."""
        self._interval += tokens

    def stop(self) -> None:
        """End the current interval, after the device has finished its work; do nothing if none is running."""
        if self._start is None:
            return
        synchronise(self.device)
        elapsed = perf_counter() - self._start
        if not self._warm:
            self.warm_seconds += elapsed
            self.warm_tokens += self._interval
            self._warm = True
        self.seconds += elapsed
        self.tokens += self._interval
        self._start, self._interval = None, 0

    @contextmanager
    def exclude(self, part: str, *, split: str = "") -> Iterator[None]:
        """Count the time inside the block as ``part`` instead of as training steps.

        Args:
            part: one of ``EXCLUDED``.
            split: the evaluated split, if ``part`` is an evaluation.
        """
        self.stop()
        start = perf_counter()
        try:
            yield
        finally:
            elapsed = perf_counter() - start
            self.parts[part] += elapsed
            if split:
                self.last[split] = elapsed

    def tokens_per_s(self) -> float:
        """Return the training throughput without warm-up; NaN before the first interval has ended."""
        after = self.tokens - self.warm_tokens
        if after == 0:  # a run of one interval has only its warm-up
            return self.tokens / self.seconds if self.seconds else float("nan")
        return after / (self.seconds - self.warm_seconds)

    def summary(self) -> dict[str, float]:
        """Return the final metrics by name: ``tokens_per_s``, ``tokens``, and seconds in all others."""
        return {
            "tokens_per_s": self.tokens_per_s(),
            "tokens": self.tokens,
            "train_seconds": self.seconds,
            **{f"{part}_seconds": seconds for part, seconds in self.parts.items()},
            **{f"{split}_seconds": seconds for split, seconds in self.last.items()},
        }

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint stores."""
        names = ("seconds", "tokens", "warm_seconds", "warm_tokens", "parts", "last")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``; the startup time of this process is added to the startup time of earlier ones."""
        startup = self.parts["startup"]
        for name, value in state.items():
            setattr(self, name, value)
        self.parts["startup"] += startup
