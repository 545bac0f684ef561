"""A causal language model: predicts each next token."""

from torch import Tensor, nn

from attnlab.config.run import RunConfig
from attnlab.models.backbone import Backbone, TaskShape, initialised


class LanguageModel(nn.Module):
    """Predicts each next token."""

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__()
        self.backbone = Backbone(config, task)
        with initialised(config.seed, "head"):
            self.head = nn.Linear(config.model.dim, task.vocabulary)
        if config.model.tie_embeddings:
            self.head.weight = self.backbone.embedding.weight

    def forward(self, tokens: Tensor, memory: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """tokens (b, t) -> logits (b, t, vocabulary) of the token after each, and the memory for the next segment."""
        x, kept = self.backbone(tokens, memory=memory)
        return self.head(x), kept
