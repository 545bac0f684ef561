"""A run says which data it read: so they are looked at again where they are read, and not only where it was planned.

Between the two hours may pass, in which a file is written anew: the seeds of one cell would be trained on several texts, and
all be recorded under the first one's checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig
    from attnlab.tasks import Task


def verified(task: Task, config: RunConfig) -> Task:
    """``task``, prepared, and sure to hold the data that ``config`` names; where it names none, prepared.

    Raises:
        UserError: the data cannot be had, or are others than those that the run was planned with.
    """
    task.prepare()
    if config.data and (found := task.identity()) != config.data:
        raise UserError(
            f"task {config.task.label}: its data have changed since this was planned: expected {config.data}, found {found}"
        )
    return task
