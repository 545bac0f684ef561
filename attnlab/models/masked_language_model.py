"""Masked language model: BERT (Devlin et al. 2019, arXiv:1810.04805, section 3).

    x = Norm(token embedding + segment embedding + position embedding)     figure 2; the norm with model.embedding_norm
    T = Transformer encoder (x)                                            the final hidden vectors; C = T of [CLS]
    p(token i) = softmax(E Norm(GELU(W T_i)) + b)                          at the chosen positions; E: the token embeddings
    p(label) = softmax(V tanh(P C))                                        next-sentence prediction

The output layer is computed at the predicted positions alone: for one position, with 8,192 tokens and width 256, it costs as
much as three blocks.

The paper has ``tie_embeddings``, which shares E with the embeddings, ``norm: post``, ``embedding_norm``, ``attention_bias``,
and no ``scale_embeddings``. With a task of the role ``causal``, the same network is a language model from left to right: the
paper's "LTR & No NSP".
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.config.run import RunConfig
from attnlab.models.backbone import Backbone
from attnlab.models.base import Model, TaskShape
from attnlab.tasks import IGNORED, Batch
from attnlab.tasks.masking import CHOSEN, MaskedOutput


class MaskedLanguageModel(Model):
    """Logits of the predicted tokens, and with ``task.classes`` logits of the classes of each row, from its first token."""

    kind: ClassVar[str] = "masked_language_model"

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__()
        dim = config.model.dim
        self.backbone = Backbone(config, task, block=self.block)
        self.transform = nn.Linear(dim, dim)
        self.transform_norm = self.block.make_norm(config.model)
        self.head = nn.Linear(dim, task.vocabulary, bias=config.model.head_bias)
        if config.model.tie_embeddings:
            self.head.weight = self.backbone.embedding.weight
        self.pooler = nn.Linear(dim, dim) if task.classes else None
        self.label_head = nn.Linear(dim, task.classes) if task.classes else None

    def forward(
        self, tokens: Tensor, *, segments: Tensor | None = None, mask: Tensor | None = None, positions: Tensor | None = None
    ) -> MaskedOutput:
        """Predict tokens, and the class of each row.

        Args:
            tokens: (b, t) integers.
            segments: (b, t) integers, the segment of each token; None: all 0.
            mask: (b, t) boolean, True = a real token; None: all are.
            positions: (b, p) integers, the positions to predict; None: all.

        Returns:
            The logits of tokens (b, p, vocabulary), or (b, t, vocabulary) without ``positions``; and the logits of labels
            (b, classes), or None.
        """
        x, _ = self.backbone(tokens, segments=segments, mask=mask)
        labels = None
        if self.pooler is not None and self.label_head is not None:
            labels = self.label_head(torch.tanh(self.pooler(x[:, 0])))
        if positions is not None:
            x = x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        return MaskedOutput(self.head(self.transform_norm(F.gelu(self.transform(x)))), labels)

    @property
    def stacks(self) -> tuple[nn.ModuleList, ...]:
        return (self.backbone.blocks,)

    def forward_batch(self, batch: Batch, memory: list[Tensor] | None = None) -> tuple[MaskedOutput, None]:
        return self(batch.inputs, segments=batch.segments, mask=batch.mask, positions=batch.positions), None

    @classmethod
    def example_batch(cls, task: TaskShape, rows: int, *, device: torch.device, padded: bool = False) -> Batch:
        tokens = torch.ones(rows, task.length, dtype=torch.long, device=device)
        mask = torch.ones_like(tokens, dtype=torch.bool) if padded else None
        labels = torch.zeros(rows, dtype=torch.long, device=device) if task.classes else None
        if task.role == "causal":
            return Batch(tokens, tokens, mask, segments=torch.zeros_like(tokens), labels=labels)
        count = max(1, round(CHOSEN * task.length))
        positions = torch.arange(count, device=device).expand(rows, -1)
        targets = torch.where(torch.arange(task.length, device=device) < count, tokens, IGNORED)
        return Batch(tokens, targets, mask, segments=torch.zeros_like(tokens), labels=labels, positions=positions)
