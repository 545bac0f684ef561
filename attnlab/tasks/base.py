"""Tasks: data, role, loss and primary metric. The contract of each, and what they share.

A task's splits are ``train``, ``valid`` and ``test``. Selection sees ``valid`` only; ``test`` is read once,
at the end of a run that will be reported. Training batches are a pure function of (step, seed, batch size): a
run that is resumed needs no state of the data's, and two cells with one seed see the same batches in the same
order.

A task of one's own is a subclass of ``Task`` (``examples/my_task/recall.py`` is one). It needs the class attributes, and
``identity``, ``prepare``, ``steps_per_epoch``, ``train_batch`` and ``eval_batches``. What it may leave as it is here:

- ``loss`` and ``score``: cross-entropy; bits per byte of a language model, accuracy and loss of a classifier. A ``metric`` of
  another name needs a ``score`` that returns one of that name.
- ``eval_tokens``: without it ``attnlab plan`` leaves out what evaluation costs.
- ``encode`` and ``decode``: ``attnlab generate`` needs both; the maps of a report show token numbers without ``decode``.
- ``unsupported``: the reason why the task does not support a configuration, such as memory where batches are not consecutive.
- ``reference_scores``: what stands beside the variants in a report.

``conform`` looks at the definition in the plan, and at the first batch before the first step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.errors import UserError, nearest

if TYPE_CHECKING:
    from attnlab._util.metrics import Score
    from attnlab.config.run import RunConfig
    from attnlab.tasks.reference_scores.base import Reference

IGNORED = -100
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Batch:
    """One batch of ``b`` rows of ``t`` tokens.

    Args:
        inputs: (b, t) int64 token numbers.
        targets: (b, t) int64 next tokens, -100 where none is to be predicted; or (b,) classes.
        mask: (b, t) bool, True = a real token; None = all are.
        fresh: the rows begin anew here rather than going on from the batch before: empty the memory.
    """

    inputs: Tensor
    targets: Tensor
    mask: Tensor | None = None
    fresh: bool = False

    @cached_property
    def tokens(self) -> int:
        """How many real tokens there are to read."""
        return self.inputs.numel() if self.mask is None else int(self.mask.sum())

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on ``device``; a copy to CUDA is begun from pinned memory, and nobody waits for it."""
        mask = None if self.mask is None else _to(self.mask, device)
        moved = replace(self, inputs=_to(self.inputs, device), targets=_to(self.targets, device), mask=mask)
        vars(moved)["tokens"] = self.tokens  # counted here: there it would wait for the device
        return moved

    def split(self, n: int) -> list[Batch]:
        """``n`` micro-batches of nearly equal numbers of rows (fewer where there are fewer rows).

        A row is the same row of the same micro-batch in every batch of one size, so each can keep its own
        memory.
        """
        n = min(n, len(self.inputs))
        masks = [None] * n if self.mask is None else self.mask.tensor_split(n)
        parts = zip(self.inputs.tensor_split(n), self.targets.tensor_split(n), masks, strict=True)
        return [Batch(inputs, targets, mask, self.fresh) for inputs, targets, mask in parts]


def _to(tensor: Tensor, device: torch.device | str) -> Tensor:
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class Task:
    """What a run is trained and judged on.

    A subclass sets the class attributes, takes its options as keyword-only arguments with defaults, and makes
    nothing heavy in its constructor: ``prepare`` is where data are fetched and read.
    """

    kind: Literal["language_model", "classifier"]
    role: Literal["causal", "bidirectional"]
    metric: str  # the primary one, as ``score`` names it
    direction: Literal["min", "max"]
    length: int  # longest row, tokens
    vocabulary: int
    classes: int = 0  # 0 for language models

    def identity(self) -> str:
        """A checksum that decides the data's content; cheap, and without fetching anything."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Fetch, verify and prepare what is not yet there; the second time takes no time to speak of.

        Raises:
            UserError: the data cannot be had, or are not what they should be.
        """
        raise NotImplementedError

    def steps_per_epoch(self, batch_size: int) -> int:
        """How many batches make one pass over ``train``; known without ``prepare``."""
        raise NotImplementedError

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        """Batch number ``step`` (from 0, through all epochs): a pure function of its arguments."""
        raise NotImplementedError

    def eval_batches(
        self,
        split: str,
        *,
        batch_size: int,
        limit: int | None = None,
        protocol: str = "segment",
        stride: int | None = None,
    ) -> Iterator[Batch]:
        """All of a split once, or ``limit`` of its items (bytes, reviews), always the same ones."""
        raise NotImplementedError

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int | None:
        """About how many positions ``eval_batches`` reads, every row counted at full length; without ``prepare``.

        None where the task does not say: the plan then leaves evaluation out.
        """
        return None

    def encode(self, text: str) -> list[int]:
        """The token numbers of ``text``."""
        raise NotImplementedError

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token numbers."""
        raise NotImplementedError

    def unsupported(self, config: RunConfig) -> str | None:
        """Return the reason why this task does not support ``config``, or None. The plan calls it without ``prepare``."""
        return None

    def reference_scores(self) -> dict[str, Reference]:
        """What stands beside the variants in a report, trained without a network: name -> baseline."""
        return {}

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Mean negative log-likelihood in nats over what is to be predicted, with its gradient.

        Args:
            logits: (b, t, vocabulary) of a language model or (b, classes) of a classifier.
        """
        return F.cross_entropy(logits.float().flatten(0, -2), batch.targets.flatten(), ignore_index=IGNORED)

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        """Every metric of one batch as (sum, count); sums in float64, so that a long split loses nothing.

        They may be tensors, and ours are: a number would have to be waited for, batch by batch.
        """
        targets = batch.targets.flatten()
        nats = F.cross_entropy(logits.float().flatten(0, -2), targets, ignore_index=IGNORED, reduction="none")
        total = nats.double().sum()
        if self.kind == "language_model":
            return {"bits_per_byte": (total / math.log(2), (targets != IGNORED).sum())}
        right = (logits.argmax(-1) == targets).sum().double()
        return {"accuracy": (right, len(targets)), "loss": (total, len(targets))}


def known_split(split: str) -> str:
    """``split`` if it is one; else ``UserError``."""
    if split not in SPLITS:
        raise UserError(f"unknown split {split!r}{nearest(split, SPLITS)}; known: {', '.join(SPLITS)}")
    return split


def whole_number(value: object, *, name: str, least: int = 1) -> int:
    """``value`` if it is a whole number of at least ``least``; else ``UserError``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{name}: expected a whole number of at least {least:,}, got {value!r}")
    return value
