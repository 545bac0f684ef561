"""Tasks: data, role, loss and primary metric. The contract is ``Task``."""

from attnlab.tasks.base import IGNORED, SPLITS, Batch, Task, known_split, whole_number

__all__ = ["IGNORED", "SPLITS", "Batch", "Task", "known_split", "whole_number"]
