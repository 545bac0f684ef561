"""Causal language model: a prediction of each next token."""

from torch import Tensor, nn

from attnlab.config.run import ModelConfig, RunConfig
from attnlab.models.backbone import Backbone, TaskShape


class LanguageModel(nn.Module):
    """Logits of the token after each position.

    A subclass can be registered for tasks of another ``kind`` (``attnlab.register_model``).
    """

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__()
        self.backbone = Backbone(config, task)
        self.head = nn.Linear(config.model.dim, task.vocabulary, bias=config.model.head_bias)
        if config.model.tie_embeddings:
            self.head.weight = self.backbone.embedding.weight

    @classmethod
    def has_class_token(cls, config: ModelConfig) -> bool:
        """Return False: a language model has no class token."""
        return False

    def forward(self, tokens: Tensor, memory: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """Predict the next tokens.

        Args:
            tokens: (b, t) integers.
            memory: the second value that the call for the previous segment returned, or None.

        Returns:
            The logits (b, t, vocabulary) of the token after each position, and the memory for the next segment.
        """
        x, new_memory = self.backbone(tokens, memory=memory)
        return self.head(x), new_memory
