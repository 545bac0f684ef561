"""Small resolved configurations for tests that train, a small task, and the record of a run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab._util.rng import derive_seed
from attnlab.config.run import RunConfig
from attnlab.tasks import Batch, Task
from attnlab.training.train import Result, train

Point = tuple[int, dict[str, float]]
CLOCK = ("_seconds", "per_s", "peak_mib")  # suffixes of metrics that differ between repetitions


def tiny(**changes: Any) -> RunConfig:
    """Return a byte language model that trains in a second; keywords are dotted paths with ``__`` for the dot."""
    base: dict[str, Any] = {
        "task": {"name": "pydocs", "length": 24, "sampling": "contiguous"},
        "variant": "dense",
        "position": "rotary",
        "backend": "reference",
        "model": {"dim": 12, "depth": 2, "heads": 3},
        "train": {"steps": 12, "batch_size": 4, "lr": 3e-3, "log_every": 3, "eval_every": 4},
        "evaluate": {"valid_limit": 300, "test_limit": 300},
        "machine": {"device": "cpu", "threads": 1},
    }
    config = RunConfig.model_validate(base)
    return config.replace({name.replace("__", "."): value for name, value in changes.items()})


class Reviews(Task):
    """Generated reviews of unequal lengths; the class is whether the first half has more even words than odd ones."""

    kind = "classifier"
    role = "bidirectional"
    metric = "accuracy"
    direction = "max"
    classes = 2

    def __init__(self, *, length: int = 13) -> None:
        self.length, self.vocabulary = length, 29

    def identity(self) -> str:
        return "made up"

    def prepare(self) -> None:
        return None

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-19 // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        return self._batch(derive_seed(seed, "order", step), batch_size)

    def eval_batches(self, split: str, *, batch_size: int, limit: int | None = None, **_: Any) -> Iterator[Batch]:
        yield from (self._batch(derive_seed(0, split, i), batch_size) for i in range(5))

    def _batch(self, number: int, rows: int) -> Batch:
        random = torch.Generator().manual_seed(number)
        words = torch.randint(1, 29, (rows, self.length), generator=random)
        lengths = torch.randint(3, self.length + 1, (rows, 1), generator=random)
        real = torch.arange(self.length) < lengths
        labels = (words[:, :6] % 2 == 0).sum(1) > 3
        return Batch(words.masked_fill(~real, 0), labels.long(), real)


class CausalReviews(Reviews):
    """The same reviews, read from left to right."""

    role = "causal"


def recorded(config: RunConfig, folder: Path | None = None, *, prune_at: int | None = None) -> tuple[Result, list[Point]]:
    """Train, and return the result and every reported point, both without values that depend on the clock or the machine."""
    points: list[Point] = []

    def report(step: int, metrics: dict[str, float]) -> bool:
        points.append((step, {name: value for name, value in metrics.items() if name != "train/tokens_per_s"}))
        return step == prune_at

    result = train(config, report=report, folder=folder)
    return replace(result, summary={k: v for k, v in result.summary.items() if not k.endswith(CLOCK)}), points


def tokens(b: int = 2, t: int = 11) -> Tensor:
    return torch.randint(0, 31, (b, t), generator=torch.Generator().manual_seed(4))
