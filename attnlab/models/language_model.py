"""Causal language model: a prediction of each next token."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from attnlab.config.run import RunConfig
from attnlab.models.backbone import Backbone
from attnlab.models.base import Model, TaskShape
from attnlab.tasks import Batch


class LanguageModel(Model):
    """Logits of the token after each position."""

    kind: ClassVar[str] = "language_model"

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__()
        self.backbone = Backbone(config, task, block=self.block)
        self.head = nn.Linear(config.model.dim, task.vocabulary, bias=config.model.head_bias)
        if config.model.tie_embeddings:
            self.head.weight = self.backbone.embedding.weight

    def forward(self, tokens: Tensor, memory: list[Tensor] | None = None, *, start: int = 0) -> tuple[Tensor, list[Tensor]]:
        """Predict the next tokens.

        Args:
            tokens: (b, t) integers.
            memory: the second value that the call for the previous segment returned, or None.
            start: the position of the first token in its segment, when a cache holds the positions before it
                (``attnlab.models.decoding``) and the memory. ``memory`` is then None, and the returned memory has no meaning.

        Returns:
            The logits (b, t, vocabulary) of the token after each position, and the memory for the next segment.
        """
        x, new_memory = self.backbone(tokens, memory=memory, start=start)
        return self.head(x), new_memory

    @property
    def stacks(self) -> tuple[nn.ModuleList, ...]:
        return (self.backbone.blocks,)

    def forward_batch(self, batch: Batch, memory: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        return self(batch.inputs, None if batch.fresh else memory)

    @classmethod
    def example_batch(cls, task: TaskShape, rows: int, *, device: torch.device, padded: bool = False) -> Batch:
        tokens = torch.ones(rows, task.length, dtype=torch.long, device=device)
        return Batch(tokens, tokens)
