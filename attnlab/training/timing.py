"""Where a run's time goes: its training steps, and everything besides."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch

from attnlab.training.device import synchronise

BESIDES = ("startup", "evaluation", "logging", "checkpoint")


class Timer:
    """Seconds and tokens of training steps, and apart from them the seconds that went to something else.

    The first interval between two stops of a process is warm-up: it counts as time and tokens, but not for tokens/s.

    Attributes:
        seconds, tokens: of training steps alone, drawing their batches included.
        parts: seconds of each of ``BESIDES``.
        last: of the newest evaluation on each split.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds, self.tokens = 0.0, 0
        self.warm_seconds, self.warm_tokens = 0.0, 0
        self.parts: dict[str, float] = dict.fromkeys(BESIDES, 0.0)
        self.last: dict[str, float] = {}
        self._warm = False
        self._began: float | None = None
        self._interval = 0

    def start(self) -> None:
        if self._began is None:
            self._began = perf_counter()

    def count(self, tokens: int) -> None:
        self._interval += tokens

    def stop(self) -> None:
        if self._began is None:
            return
        synchronise(self.device)
        elapsed = perf_counter() - self._began
        if not self._warm:
            self.warm_seconds += elapsed
            self.warm_tokens += self._interval
            self._warm = True
        self.seconds += elapsed
        self.tokens += self._interval
        self._began, self._interval = None, 0

    @contextmanager
    def exclude(self, part: str, *, split: str = "") -> Iterator[None]:
        """Stop counting the time as that of steps: inside it is that of one of ``BESIDES``.

        Args:
            split: of an evaluation.
        """
        self.stop()
        began = perf_counter()
        try:
            yield
        finally:
            took = perf_counter() - began
            self.parts[part] += took
            if split:
                self.last[split] = took

    def tokens_per_s(self) -> float:
        after = self.tokens - self.warm_tokens
        if after == 0:  # a run of one interval has nothing but its warm-up
            return self.tokens / self.seconds if self.seconds else float("nan")
        return after / (self.seconds - self.warm_seconds)

    def summary(self) -> dict[str, float]:
        """The metrics of a run's end, all in seconds but for the first two."""
        return {
            "tokens_per_s": self.tokens_per_s(),
            "tokens": self.tokens,
            "train_seconds": self.seconds,
            **{f"{part}_seconds": seconds for part, seconds in self.parts.items()},
            **{f"{split}_seconds": seconds for split, seconds in self.last.items()},
        }

    def state(self) -> dict[str, Any]:
        names = ("seconds", "tokens", "warm_seconds", "warm_tokens", "parts", "last")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there; what this process spent on starting counts, too."""
        startup = self.parts["startup"]
        for name, value in state.items():
            setattr(self, name, value)
        self.parts["startup"] += startup
