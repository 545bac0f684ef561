"""Sequence classifier: one class for each sequence."""

from torch import Tensor, nn

from attnlab.config.run import ModelConfig, RunConfig
from attnlab.models.backbone import Backbone, TaskShape
from attnlab.nn.layers import pool_max, pool_mean


class Classifier(nn.Module):
    """Logits of the classes, from the mean or maximum over the sequence or from a class token (``model.pool``).

    A subclass can be registered for tasks of another ``kind`` (``attnlab.register_model``).
    """

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__()
        self.backbone = Backbone(config, task)
        self.pool = config.model.pool
        self.head = nn.Linear(config.model.dim, task.classes, bias=config.model.head_bias)

    @classmethod
    def has_class_token(cls, config: ModelConfig) -> bool:
        """Return True if the backbone puts a class token before the sequence."""
        return config.pool == "class"

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits (b, classes) of tokens (b, t); mask (b, t), True = a real token, or None: all are."""
        x, _ = self.backbone(tokens, mask=mask)
        if self.pool == "class":
            return self.head(x[:, 0])
        return self.head(pool_max(x, mask) if self.pool == "max" else pool_mean(x, mask))
