"""Decisions from the scores on ``valid``: checkpoint selection and early stopping."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from attnlab.config.run import TrainConfig
from attnlab.tasks import Task


class Selection:
    """Track the primary metric on ``valid``, and keep the best weights if ``train.checkpoint_selection`` is ``best``.

    Attributes:
        last: the latest scores; empty before the first evaluation.
        waited: evaluations since the best one.
    """

    def __init__(self, task: Task, config: TrainConfig) -> None:
        self._metric, self._minimize = task.metric, task.direction == "min"
        self._keep_best, self._patience, self._stop_at = config.checkpoint_selection == "best", config.patience, config.stop_at
        self._best: dict[str, Any] | None = None
        self.last: dict[str, float] = {}
        self.waited = 0

    def update(self, scores: dict[str, float], model: nn.Module) -> None:
        """Record the scores of ``model`` on ``valid``, and copy its weights to the CPU if they are the best so far."""
        self.last = scores
        self.waited += 1
        if self._is_better(scores[self._metric]):
            self.waited = 0
            self._best = {"scores": scores, "model": _copy(model) if self._keep_best else None}

    def _is_better(self, value: float) -> bool:
        if self._best is None:
            return True
        best = self._best["scores"][self._metric]
        return value < best if self._minimize else value > best

    @property
    def is_done(self) -> bool:
        """True when training should stop early: ``train.patience`` evaluations in a row brought no improvement, or the last one
        reached ``train.stop_at``."""
        if self._patience is not None and self.waited >= self._patience:
            return True
        if self._stop_at is None or not self.last:
            return False
        score = self.last[self._metric]
        return score <= self._stop_at if self._minimize else score >= self._stop_at

    def load_best(self, model: nn.Module) -> dict[str, float]:
        """Load the selected weights into ``model`` and return their scores on ``valid``.

        The selected weights are the best ones, or the current ones if ``train.checkpoint_selection`` is ``last``.
        """
        if self._best is None or not self._keep_best:
            return self.last
        model.load_state_dict(self._best["model"])
        return self._best["scores"]

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint stores."""
        return {"best": self._best, "last": self.last, "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self._best, self.last, self.waited = state["best"], state["last"], state["waited"]


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}
