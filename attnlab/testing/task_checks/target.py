"""The target of the checks of tasks, and the measurements that several of them share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from attnlab._util.metrics import Mean, merge
from attnlab._util.packages import require
from attnlab.tasks import IGNORED, Batch, Task
from attnlab.tasks.masking import MaskedOutput, predicted_tokens, uniform_output

ROWS = 3  # of a batch
FEW_ROWS = 8  # that scores are computed of
LOGIT = 20.0  # of a predicted token or class; the others are 0


@dataclass(frozen=True, eq=False)
class TaskTarget:
    """A task with its options.

    Attributes:
        cls: the class to check.
        options: keyword arguments of its constructor.
    """

    cls: type[Task]
    options: dict[str, Any]

    def construct(self) -> Task:
        """Return a new task, not prepared."""
        return self.cls(**self.options)

    @cached_property
    def task(self) -> Task:
        """A prepared task, the same in all checks."""
        task = self.construct()
        require(f"the task {self.cls.__name__}", *task.packages)
        task.prepare()
        return task

    @property
    def is_language_model(self) -> bool:
        """True for a task that predicts tokens, False for one that predicts a class."""
        return self.task.kind != "classifier"

    def train(self, step: int, *, seed: int = 0, batch_size: int = ROWS) -> Batch:
        """Return a training batch."""
        return self.task.train_batch(step, seed=seed, batch_size=batch_size)

    @property
    def is_masked(self) -> bool:
        """True for a task of masked language models: targets are tokens of the row itself."""
        return self.task.kind == "masked_language_model"

    @property
    def counts_tokens(self) -> bool:
        """True for a task over one text, where ``limit`` counts tokens; False when it counts rows."""
        return self.task.metric.startswith("bits_per_") and not self.is_masked

    def limit(self, rows: int) -> int:
        """Return the ``limit`` of an evaluation with about so many rows."""
        return rows * self.task.length if self.counts_tokens else rows

    def evaluation(self, split: str, *, rows: int, batch_size: int = ROWS, **protocol: Any) -> Iterator[Batch]:
        """Return the batches of an evaluation of about ``rows`` rows."""
        return iter(self.task.eval_batches(split, batch_size=batch_size, limit=self.limit(rows), **protocol))

    def few_rows(self) -> list[Batch]:
        """Return a few rows of ``valid``, each as a batch."""
        rows = (row for batch in self.evaluation("valid", rows=FEW_ROWS) for row in batch.split(len(batch.inputs)))
        return list(islice(rows, FEW_ROWS))

    def score(self, batches: list[Batch], predicted: str) -> dict[str, Mean]:
        """Return the scores of batches.

        Args:
            predicted: ``nothing`` (uniform), ``right`` or ``wrong``.
        """
        return merge(self.task.score(self.logits(batch, predicted), batch) for batch in batches)

    @property
    def generates(self) -> bool:
        """True for a task that scores what an encoder-decoder generates."""
        return type(self.task).generated_scores is not Task.generated_scores

    def generated(self, predicted: str) -> dict[str, float]:
        """Return the scores of a few rows of ``valid`` with generated tokens that are ``right`` or ``wrong``."""

        def generate(batch: Batch, **options: Any) -> list[list[int]]:
            shift = 0 if predicted == "right" else 1
            rows = [
                [(token + shift) % self.task.vocabulary for token in row if token != IGNORED] for row in batch.targets.tolist()
            ]
            return [row[:-1] for row in rows]  # without the end token

        return self.task.generated_scores(generate, "valid", batch_size=ROWS, limit=self.limit(FEW_ROWS))

    def logits(self, batch: Batch, predicted: str) -> Any:
        """Return logits of a batch; see ``score``."""
        if self.is_masked:
            return self._masked_output(batch, predicted)
        size = self.task.vocabulary if self.is_language_model else self.task.classes
        logits = torch.zeros(*batch.targets.shape, size, requires_grad=True)
        with torch.enable_grad():
            target_logits = self.task.target_logits(logits)
        # The gradient carries the logits of the targets back to the outputs of the model that predict them.
        chosen = _favour(torch.zeros_like(target_logits), batch.targets, predicted)
        return torch.autograd.grad(target_logits, logits, chosen)[0]

    def _masked_output(self, batch: Batch, predicted: str) -> MaskedOutput:
        """Return the output of a masked language model for a batch."""
        tokens, labels = uniform_output(batch, vocabulary=self.task.vocabulary, classes=self.task.classes)
        tokens = _favour(tokens, predicted_tokens(batch), predicted)
        if labels is None or batch.labels is None:
            return MaskedOutput(tokens)
        return MaskedOutput(tokens, _favour(labels, batch.labels, predicted))


def _favour(logits: Tensor, targets: Tensor, predicted: str) -> Tensor:
    """Raise the logits (..., n) of the targets (...), or of wrong classes; unchanged if nothing is predicted."""
    if predicted == "nothing":
        return logits
    chosen = torch.where(targets == IGNORED, 0, targets)
    chosen = chosen if predicted == "right" else (chosen + 1) % logits.shape[-1]
    return logits.scatter(-1, chosen.unsqueeze(-1), LOGIT)


def same(one: Batch, other: Batch) -> bool:
    """Return True for two batches with the same content."""
    fields = [{name: v for name, v in vars(batch).items() if isinstance(v, Tensor)} for batch in (one, other)]
    if fields[0].keys() != fields[1].keys() or one.fresh != other.fresh:
        return False
    return all(torch.equal(tensor, fields[1][name]) for name, tensor in fields[0].items())


def real_tokens(batch: Batch) -> Tensor:
    """Return the inputs with -1 at padding, which may have no mask behind the last target of a row."""
    inputs = batch.inputs if batch.mask is None else batch.inputs.masked_fill(~batch.mask, -1)
    if batch.targets.dim() == 1:
        return inputs
    ahead = (batch.targets != IGNORED).flip(1).cumsum(1).flip(1)  # targets from a position on
    return inputs.masked_fill(ahead == 0, -1)
