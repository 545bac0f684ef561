"""Tasks: the data, loss and metrics that variants are compared on. ``Task`` is the contract of a task.

    >>> from attnlab.tasks.pydocs import PyDocs
    >>> task = PyDocs(length=16)
    >>> task.prepare()  # a task that needs a download fetches it here
    >>> batch = task.train_batch(0, seed=0, batch_size=2)
    >>> batch.inputs.shape, batch.targets.shape
    (torch.Size([2, 16]), torch.Size([2, 16]))

Importing this package is cheap: ``base`` and torch are loaded when one of its names is used, so that ``attnlab data`` need not
wait for them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlab.tasks.base import IGNORED, SPLITS, Batch, Task, known_split, whole_number

__all__ = ["IGNORED", "SPLITS", "Batch", "Task", "known_split", "whole_number"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("attnlab.tasks.base"), name)
