"""Sequence classifier: one class for each sequence."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from attnlab.config.run import ModelConfig, RunConfig
from attnlab.models.backbone import Backbone
from attnlab.models.base import Model, TaskShape
from attnlab.nn.layers import POOLS
from attnlab.tasks import Batch


class Classifier(Model):
    """Logits of the classes, from the sequence's mean, maximum, first or last token, or a class token (``model.pool``)."""

    kind: ClassVar[str] = "classifier"

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__()
        self.backbone = Backbone(config, task, block=self.block)
        self.pool = config.model.pool
        self.head = nn.Linear(config.model.dim, task.classes, bias=config.model.head_bias)

    @classmethod
    def has_class_token(cls, config: ModelConfig) -> bool:
        """Return True when the backbone puts a class token before the sequence."""
        return config.pool == "class"

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits (b, classes) of tokens (b, t); mask (b, t), True = a real token, or None: all are."""
        x, _ = self.backbone(tokens, mask=mask)
        if self.pool in ("class", "first"):
            return self.head(x[:, 0])
        return self.head(POOLS[self.pool](x, mask))

    @property
    def stacks(self) -> tuple[nn.ModuleList, ...]:
        return (self.backbone.blocks,)

    def forward_batch(self, batch: Batch, memory: list[Tensor] | None = None) -> tuple[Tensor, None]:
        return self(batch.inputs, batch.mask), None

    @classmethod
    def example_batch(cls, task: TaskShape, rows: int, *, device: torch.device, padded: bool = False) -> Batch:
        tokens = torch.ones(rows, task.length, dtype=torch.long, device=device)
        mask = torch.ones_like(tokens, dtype=torch.bool) if padded else None
        return Batch(tokens, torch.zeros(rows, dtype=torch.long, device=device), mask)
