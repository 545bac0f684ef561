"""The contract of a task: batches, splits, targets and scores.

Internal: not part of the public interface.
"""

from attnlab.testing.checks.result import Check
from attnlab.testing.task_checks import agreement, batches, evaluation
from attnlab.testing.task_checks.target import TaskTarget

TASK_CHECKS: dict[str, Check[TaskTarget]] = {
    check.name: check for check in (*batches.CHECKS, *evaluation.CHECKS, *agreement.CHECKS)
}

__all__ = ["TASK_CHECKS", "TaskTarget"]
