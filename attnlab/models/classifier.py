"""A classifier of sequences."""

from torch import Tensor, nn

from attnlab.config.run import RunConfig
from attnlab.models.backbone import Backbone, TaskShape, initialised
from attnlab.nn.layers import pool_max, pool_mean


class Classifier(nn.Module):
    """Reads a sequence, pools it (mean, max or a class token), and names its class."""

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__()
        self.backbone = Backbone(config, task)
        self.pool = config.model.pool
        with initialised(config.seed, "head"):
            self.head = nn.Linear(config.model.dim, task.classes)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """tokens (b, t), mask (b, t) True = a real token -> logits (b, classes)."""
        x, _ = self.backbone(tokens, mask=mask)
        if self.pool == "class":
            return self.head(x[:, 0])
        return self.head(pool_max(x, mask) if self.pool == "max" else pool_mean(x, mask))
