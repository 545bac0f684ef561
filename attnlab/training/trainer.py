"""The training loop and its state.

Batches are a pure function of (seed, step) and the learning rate of the step, so a run's state is its model, its
optimiser, its random streams, what it has seen on ``valid`` and the number of its step: what a checkpoint holds.
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._util.rng import derive_seed
from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.registry import TASKS
from attnlab.tasks import Task
from attnlab.tasks.validation import check_first_batch
from attnlab.tasks.verification import verified
from attnlab.training import checkpoint
from attnlab.training import costs as measure
from attnlab.training import device as machine
from attnlab.training.distributed.group import Group
from attnlab.training.evaluate import evaluate
from attnlab.training.gradients import Memory, backward
from attnlab.training.lengths import evaluate_lengths
from attnlab.training.optim import adamw, learning_rate, total_steps
from attnlab.training.prefetch import Prefetcher
from attnlab.training.result import History, Report, Result
from attnlab.training.selection import Selection
from attnlab.training.timing import Timer


class _Ended(Exception):
    """Training stops before its last step, for ``reason``."""

    def __init__(self, state: str, step: int, reason: str) -> None:
        super().__init__(reason)
        self.state, self.step, self.reason = state, step, reason


class Trainer:
    """One run, as one rank sees it.

    Args:
        folder: where checkpoints go.
        report: called in the first rank with (step, metrics); True ends the run as ``pruned``.

    Attributes:
        step: the last step taken.
        history: every (step, metrics) that was reported.
    """

    def __init__(self, config: RunConfig, *, group: Group, folder: Path | None, device: torch.device, report: Report) -> None:
        self.config, self.group, self.folder, self.device, self.report = config, group, folder, device, report
        self.clock = Timer(device)
        with self.clock.exclude("startup"):
            self._set_up()

    def _set_up(self) -> None:
        config, group, device = self.config, self.group, self.device
        self.task: Task = verified(TASKS.get(config.task.name)(**config.task.options), config)
        check_first_batch(self.task, config)
        self.total = total_steps(config.train, self.task)
        self.model = build(config, self.task).to(device).train()
        self.optimizer = adamw(self.model, config.train)
        self.fixed_costs = group.on_rank_zero(lambda: measure.fixed_costs(self.model, config, self.task))
        if config.train.compile:
            machine.compile_each(self.model.backbone.blocks)
        self.feed = Prefetcher(self.task, config, group=group, device=device)
        self.memory: Memory = None
        self.step = 0
        self.pending: list[Tensor] = []  # losses since the last point of the curve, still on the device
        self.history: History = []
        self.selection = Selection(self.task, config.train)
        own = [group.rank] if group.size > 1 else []
        torch.manual_seed(derive_seed(config.seed, "dropout", *own))

    def fit(self) -> Result:
        """Take every step that is left, then meet the test split."""
        try:
            while self.step < self.total and not self.selection.out_of_patience:
                self._step()
                if self.step % self.config.train.log_every == 0 or self._evaluation_due():
                    self._log()
                if self._evaluation_due():
                    self._validate()
                if self._checkpoint_due():
                    self._save()
            chosen = self.selection.load_best(self.model)
            scores = {f"valid_{name}": score for name, score in chosen.items()}
            test = self._evaluate("test") if self.config.evaluate.test else {}
            costs = self._costs()  # before other lengths are met: they take what they take
            others, tags = self._at_lengths(test)
            return Result("completed", {**scores, **test, **others, **costs, **self.clock.summary()}, self.step, tags=tags)
        except _Ended as end:
            return Result(end.state, self._costs(), end.step, end.reason)

    def _step(self) -> None:
        how = self.config.train
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.total, how)
        self.clock.start()
        portion = self.feed.take(self.step)
        loss, self.memory = backward(
            self.model,
            portion,
            self.memory,
            task=self.task,
            config=self.config,
            device=self.device,
            group=self.group,
        )
        self.pending.append(loss)
        if how.grad_clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), how.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.clock.count(portion.tokens)
        if self.step < self.total:
            self.feed.draw(self.step)  # while the device computes this one

    def _log(self) -> None:
        """Read the losses since the last point in one go, and report their mean: only here do steps wait for the device."""
        if not self.pending:
            return
        with self.clock.exclude("logging"):
            losses = torch.stack(self.pending).tolist()
            first = self.step - len(losses) + 1
            self.pending = []
            for step, loss in enumerate(losses, start=first):
                if not math.isfinite(loss):
                    raise _Ended("diverged", step, f"the training loss became {loss} at step {step}")
            rate = learning_rate(self.step - 1, self.total, self.config.train)
            mean, speed = sum(losses) / len(losses), self.clock.tokens_per_s()
            self._report({"train/loss": mean, "train/lr": rate, "train/tokens_per_s": speed})

    def _validate(self) -> None:
        scores = self._evaluate("valid")
        self.selection.update(scores, self.model)
        with self.clock.exclude("logging"):
            self._report({f"valid/{name}": score for name, score in scores.items()})

    def _evaluate(self, split: str) -> dict[str, float]:
        with self.clock.exclude("evaluation", split=split):
            scores = self.group.on_rank_zero(
                lambda: evaluate(self.model, self.task, split, config=self.config, device=self.device)
            )
        for name, score in scores.items():
            if name in (self.task.metric, "loss") and not math.isfinite(score):
                raise _Ended("diverged", self.step, f"{name} on {split} became {score} at step {self.step}")
        return scores

    def _at_lengths(self, test: dict[str, float]) -> tuple[dict[str, float], dict[str, str]]:
        """What ``evaluate_lengths`` returns; ``test`` are the scores at the trained length."""
        if not self.config.evaluate.lengths:
            return {}, {}
        with self.clock.exclude("evaluation", split="lengths"):
            return self.group.on_rank_zero(
                lambda: evaluate_lengths(self.model, self.task, test, config=self.config, device=self.device)
            )

    def _report(self, metrics: dict[str, float]) -> None:
        self.history.append((self.step, metrics))
        if self.group.on_rank_zero(lambda: self.report(self.step, metrics)):
            raise _Ended("pruned", self.step, f"pruned at step {self.step}")

    def _evaluation_due(self) -> bool:
        how = self.config.train
        every = how.eval_every
        if every is None and how.epochs is not None:
            every = self.task.steps_per_epoch(how.batch_size)
        return self.step == self.total or (every is not None and self.step % every == 0)

    def _checkpoint_due(self) -> bool:
        if self.folder is None or self.step == self.total:
            return False
        every = self.config.train.checkpoint_every
        return self._evaluation_due() if every is None else self.step % every == 0

    def _save(self) -> None:
        with self.clock.exclude("checkpoint"):
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        assert self.folder is not None
        memory = None if self.memory is None else [m.cpu() for m in self.memory]
        own = {"random": checkpoint.random_state(self.device), "memory": memory}
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ranks": self.group.gather(own),
            "pending": self.pending,
            "history": self.history,
            "selection": self.selection.state(),
            "clock": self.clock.state(),
            "data_seconds": self.feed.seconds,
        }
        if self.group.first:
            checkpoint.keep(state, self.folder, config=self.config)

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the state that ``_save`` wrote."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.feed.seconds = state["step"], state["data_seconds"]
        self.pending = [loss.to(self.device) for loss in state["pending"]]
        self.history = state["history"]
        self.selection.restore(state["selection"])
        self.clock.restore(state["clock"])
        own = state["ranks"][self.group.rank]
        self.memory = None if own["memory"] is None else [m.to(self.device) for m in own["memory"]]
        checkpoint.restore_random_state(own["random"], self.device)

    def report_again(self) -> None:
        """Report what was reported before the checkpoint: a new MLflow run stands for a retry, and gets the whole curve."""
        for step, metrics in self.history:
            self.group.on_rank_zero(lambda step=step, metrics=metrics: self.report(step, metrics))

    def _costs(self) -> dict[str, float]:
        """What the run cost so far; of memory what the rank took that took most."""
        peaks = self.group.gather(measure.peaks(self.device))
        return {
            **self.fixed_costs,
            **{name: max(each[name] for each in peaks) for name in peaks[0]},
            **self.clock.summary(),
            "data_seconds": self.feed.seconds,
            "steps": self.step,
        }
