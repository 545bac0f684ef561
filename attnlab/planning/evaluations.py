"""The evaluations of a run on ``valid``: at which steps, and on how much of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from attnlab.config.run import RunConfig


@dataclass(frozen=True)
class EvaluationSchedule:
    """The length of a run, and the steps at which ``valid`` is evaluated.

    Attributes:
        steps: of the whole run.
        every: steps between two evaluations.
        epochs: True when the number of steps follows from a number of epochs.
    """

    steps: int
    every: int
    epochs: bool = False

    @property
    def early(self) -> int:
        """The number of evaluations before the last one."""
        return (self.steps - 1) // self.every

    @property
    def last(self) -> int:
        """The step of the last evaluation before the end of the run; 0 when there is none."""
        return self.early * self.every


def evaluation_schedule(config: RunConfig, task: Any) -> EvaluationSchedule:
    """Return the schedule of a run's evaluations on ``valid``."""
    from attnlab.training.train import total_steps

    total, every = total_steps(config.train, task), config.train.eval_every
    if every is None and config.train.epochs is not None:
        every = task.steps_per_epoch(config.train.batch_size)
    return EvaluationSchedule(total, every or total, epochs=config.train.epochs is not None)


def evaluation_sample(config: RunConfig, task: Any) -> int | None:
    """Return ``evaluate.sample`` with ``auto`` replaced by a number; None if every evaluation reads the same part of ``valid``.

    That is so if there is no evaluation before the last step, or if the sample of the task is all that would be read anyway.
    """
    options = config.evaluate
    if options.sample != "auto":
        return options.sample
    sample = task.valid_sample
    if sample is None or (options.valid_limit is not None and options.valid_limit <= sample):
        return None
    with suppress(Exception):  # any exception: the task may be the user's own; the plan reports it where it needs the answer
        if evaluation_schedule(config, task).early == 0:
            return None
        protocol: dict[str, Any] = {"protocol": options.protocol, "stride": options.stride}
        whole = task.eval_tokens("valid", limit=options.valid_limit, **protocol)
        if whole is not None and whole == task.eval_tokens("valid", limit=sample, **protocol):
            return None
    return sample
