"""Training of several seeds of one configuration as one batched model.

Each run has its ``Trainer``, with its batches, optimiser, clipping, curves, evaluations and checkpoints. Only the forward and
the backward pass are common. A run that ends, diverges or fails therefore leaves the others as they are, and one that was
interrupted can be resumed alone, or with others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from attnlab._util.log import log_to
from attnlab._util.user_code import load_sources
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.training import weights
from attnlab.training.device import set_up_run
from attnlab.training.distributed.group import Group
from attnlab.training.fused.stack import Stack
from attnlab.training.fused.streams import RandomStream
from attnlab.training.fused.support import check_fused_step
from attnlab.training.out_of_memory import is_out_of_memory, requested_memory
from attnlab.training.prefetch import RankBatch
from attnlab.training.result import Report, Result
from attnlab.training.train import recorded_result, save, start
from attnlab.training.trainer import Trainer


@dataclass(frozen=True)
class FusedRun:
    """One of the runs that are trained together, with the arguments of ``attnlab.training.train.train``.

    Attributes:
        notify: receives the messages of attnlab's loggers about this run.
    """

    config: RunConfig
    report: Report
    folder: Path | None = None
    notify: Callable[[str], None] = print


def train_fused(runs: Sequence[FusedRun]) -> Iterator[tuple[int, Result | Exception]]:
    """Train runs of one configuration with different seeds as one model, each as ``train`` would.

    A run that is left alone, because the others have ended, is trained by itself.

    Args:
        runs: of a configuration that ``attnlab.training.fused.support.unsupported`` does not refuse.

    Yields:
        The number of each run as it ends, and its result or the error that ended it alone.

    Raises:
        UserError: a common step is not that of the runs alone, or runs out of memory.
    """
    load_sources(runs[0].config.sources)
    device = set_up_run(runs[0].config)
    members = [Member(number, run, device) for number, run in enumerate(runs)]
    try:
        for member in members:
            member.attempt(member.start)
        yield from _outcomes(members)
        members = [member for member in members if member.outcome is None]
        _check_first_step(members)
        while members:
            step = FusedStep(members) if len(members) > 1 else SoloStep(members[0])
            while all(member.outcome is None for member in members):
                step.take()
                for member in members:
                    member.attempt(member.follow_up)
            yield from _outcomes(members)
            members = [member for member in members if member.outcome is None]
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        message = f"run.fuse: {len(runs)} seeds together ran out of memory (requested {requested_memory(error)})"
        raise UserError(f"{message}: train them without run.fuse") from error


class Member:
    """One of the runs, with random generators of its own.

    Attributes:
        outcome: its result or the error that ended it alone; None while it is trained.
    """

    trainer: Trainer
    stream: RandomStream

    def __init__(self, number: int, run: FusedRun, device: torch.device) -> None:
        self.number, self._run, self._device = number, run, device
        self.outcome: Result | Exception | None = None

    def attempt(self, action: Callable[[], Result | None]) -> None:
        """Do something for a run that has not ended; the result of the action, or its error, ends it alone."""
        if self.outcome is None:
            try:
                with log_to(self._run.notify):
                    self.outcome = action()
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                self.outcome = error

    def start(self) -> Result | None:
        """Create the trainer, at the latest checkpoint or at step 0; return a result that is there already."""
        config, folder, report = self._run.config, self._run.folder, self._run.report
        if folder is not None and (result := recorded_result(config, report=report, folder=folder)) is not None:
            return result
        self.trainer = start(config, group=Group(), folder=folder, device=self._device, report=report)
        weights.distinct_tensors(self.trainer.model)  # a model that cannot be saved fails here, not after training
        self.stream = RandomStream(self._device)
        return self._finish() if self.trainer.is_trained else None

    def follow_up(self) -> Result | None:
        """Do what is due after a step; return the result if the run has ended."""
        with self.stream.active():
            result = self.trainer.follow_up()
            if result is not None:
                return self._saved(result)
            return self._finish() if self.trainer.is_trained else None

    def _finish(self) -> Result:
        return self._saved(self.trainer.finish())

    def _saved(self, result: Result) -> Result:
        if self._run.folder is not None:
            save(self.trainer, result, self._run.folder)
        return result


def _outcomes(members: Sequence[Member]) -> Iterator[tuple[int, Result | Exception]]:
    for member in members:
        if member.outcome is not None:
            yield member.number, member.outcome


def _check_first_step(members: Sequence[Member]) -> None:
    """Check that the first common step is that of the runs alone. What the plan checks on the CPU may differ on the device."""
    if len(members) > 1:
        trainers = [member.trainer for member in members]
        batches = [trainer.prefetcher.peek(trainer.step).parts[0] for trainer in trainers]
        streams = [member.stream for member in members]
        context = {"task": trainers[0].task, "config": trainers[0].config}
        with trainers[0].timer.exclude("startup"):
            check_fused_step([trainer.model for trainer in trainers], streams, batches, **context)


class SoloStep:
    """The steps of a run that is left alone."""

    def __init__(self, member: Member) -> None:
        self._member = member
        member.trainer.timer.share(1)

    def take(self) -> None:
        with self._member.stream.active():
            self._member.trainer.take_step()


class FusedStep:
    """The common steps of several runs, which are not necessarily at the same number of steps."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members, self._trainers = members, [member.trainer for member in members]
        first, streams = self._trainers[0], [member.stream for member in members]
        self._stack = Stack([trainer.model for trainer in self._trainers], streams, task=first.task, config=first.config)
        for trainer in self._trainers:
            trainer.fused = max(trainer.fused, len(members))
            trainer.timer.share(len(members))

    def take(self) -> None:
        """Take one optimiser step of each run."""
        for trainer in self._trainers:
            trainer.timer.start()
        batches = [trainer.begin_step() for trainer in self._trainers]
        if any(batch.shares[0] == 0 for batch in batches):
            raise UserError("run.fuse: expected targets in each training batch, got a batch without any")
        losses = self._stack.backward([batch.parts[0] for batch in batches])
        for member, batch, loss in zip(self._members, batches, losses.unbind(), strict=True):
            member.attempt(partial(self._end_step, member, batch, loss))  # it draws the next batch, which may fail
        # The time of what one run does next is not that of the others' steps.
        if any(trainer.is_due for trainer in self._trainers):
            for trainer in self._trainers:
                trainer.timer.stop()

    @staticmethod
    def _end_step(member: Member, batch: RankBatch, loss: Tensor) -> None:
        with member.stream.active():  # the optimiser and the task of a user may draw from the global generators
            member.trainer.end_step(batch, loss)
