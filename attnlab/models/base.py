"""The base class of models, the networks that contain variants.

A model serves the tasks of one ``kind``. The training loop, the evaluation and the costs apply it through ``forward_batch``
and ``example_batch`` only. To add a model, subclass ``LanguageModel``, ``Classifier`` or another model of that kind, and
register it (``attnlab.register_model``); a study names it by ``model: {name: ..., options: {...}}``. When only its blocks
differ, set their class as ``block``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from attnlab.config.run import ModelConfig, RunConfig
from attnlab.models.block import Block
from attnlab.registry import MODELS
from attnlab.tasks import Batch


class TaskShape(Protocol):
    """Attributes of a task that a model depends on; see ``attnlab.tasks.Task``."""

    @property
    def kind(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def length(self) -> int: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def classes(self) -> int: ...


class Model(nn.Module):
    """Base class of models.

    A constructor takes a resolved configuration and a task. Further keyword-only parameters are options, which a study sets in
    ``model.options``.

    Attributes:
        kind: the kind of task that the model serves (``Task.kind``).
        block: the class of its blocks.
    """

    kind: ClassVar[str]
    block: ClassVar[type[Block]] = Block

    @classmethod
    def has_class_token(cls, config: ModelConfig) -> bool:
        """Return True when the model puts a class token before the sequence."""
        return False

    @classmethod
    def roles(cls, task: TaskShape) -> dict[str, str]:
        """Return the role of the attention of each part: name of the part -> role.

        Each part has a section in ``model``, for example ``model.encoder``. The name "" stands for the whole model, when all
        blocks have the variant and the position scheme of the study.
        """
        return {"": task.role}

    @property
    def stacks(self) -> tuple[nn.ModuleList, ...]:
        """The stacks of blocks, from the input to the output."""
        raise NotImplementedError

    def forward_batch(self, batch: Batch, memory: list[Tensor] | None = None) -> tuple[Any, list[Tensor] | None]:
        """Apply the model to a batch.

        Args:
            batch: on the device of the model. A ``fresh`` batch starts with an empty memory.
            memory: the second value that the call for the previous batch returned, or None.

        Returns:
            The output that ``Task.loss`` and ``Task.score`` read, and the memory for the next batch; None without memory.
        """
        raise NotImplementedError

    @classmethod
    def example_batch(cls, task: TaskShape, rows: int, *, device: torch.device, padded: bool = False) -> Batch:
        """Return a batch to measure costs, with all rows at the task's length.

        Args:
            padded: add the masks of a batch with rows of unequal length.
        """
        raise NotImplementedError


def model_class(config: RunConfig, task: TaskShape) -> type[Model]:
    """Return the class of the model that a configuration names; by default the model of the task's kind."""
    return MODELS.get(config.model.name or task.kind)
