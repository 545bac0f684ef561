"""What the scores on ``valid`` decide: which weights meet the test split, and when to stop early."""

from typing import Any

from torch import Tensor, nn

from attnlab.config.run import TrainConfig
from attnlab.tasks import Task


class Selection:
    """Follows the primary metric through a run's evaluations.

    Attributes:
        last: the newest scores; empty before the first evaluation.
        waited: evaluations since the best one.
    """

    def __init__(self, task: Task, how: TrainConfig) -> None:
        self._metric, self._least_is_best = task.metric, task.direction == "min"
        self._keeps_best, self._patience = how.checkpoint_selection == "best", how.patience
        self._best: dict[str, Any] | None = None
        self.last: dict[str, float] = {}
        self.waited = 0

    def update(self, scores: dict[str, float], model: nn.Module) -> None:
        """Another evaluation, and the weights that were evaluated."""
        self.last = scores
        self.waited += 1
        if self._is_better(scores[self._metric]):
            self.waited = 0
            self._best = {"scores": scores, "model": _copy(model) if self._keeps_best else None}

    def _is_better(self, value: float) -> bool:
        if self._best is None:
            return True
        best = self._best["scores"][self._metric]
        return value < best if self._least_is_best else value > best

    @property
    def out_of_patience(self) -> bool:
        """Whether to stop early."""
        return self._patience is not None and self.waited >= self._patience

    def load_best(self, model: nn.Module) -> dict[str, float]:
        """Give ``model`` the weights that are to meet the test split, and return their scores on ``valid``."""
        if self._best is None or not self._keeps_best:
            return self.last
        model.load_state_dict(self._best["model"])
        return self._best["scores"]

    def state(self) -> dict[str, Any]:
        return {"best": self._best, "last": self.last, "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        self._best, self.last, self.waited = state["best"], state["last"], state["waited"]


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}
