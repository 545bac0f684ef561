"""One run: a resolved configuration in, a result out. Knows neither Optuna nor MLflow.

Batches are a pure function of (seed, step) and the learning rate of the step, so a run's state is its model, its
optimiser, its random streams and the number of its step: what a checkpoint holds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import checkpoint, machine, measure
from attnlab.config import RunConfig
from attnlab.evaluate import evaluate, forward
from attnlab.model import build
from attnlab.optimise import adamw, learning_rate, total_steps
from attnlab.registry import TASKS, load_file
from attnlab.seeds import stream
from attnlab.tasks import Batch, Task

Report = Callable[[int, dict[str, float]], bool]


@dataclass
class Result:
    """How a run ended.

    Attributes:
        state: ``completed``, ``diverged`` (the loss became NaN or infinite), ``out_of_memory`` or ``pruned``.
        summary: final metrics by name; empty of test metrics unless completed.
        step: the last step taken.
        reason: one line, where the state is not ``completed``.
    """

    state: str
    summary: dict[str, float] = field(default_factory=dict)
    step: int = 0
    reason: str = ""


class _Ended(Exception):
    """Training stops before its last step, for ``reason``."""

    def __init__(self, state: str, step: int, reason: str) -> None:
        super().__init__(reason)
        self.state, self.step, self.reason = state, step, reason


def train(config: RunConfig, *, report: Report | None = None, folder: Path | None = None) -> Result:
    """Train, evaluate on ``valid`` on the way, and on ``test`` once at the end.

    Args:
        config: resolved by ``attnlab.plan``.
        report: called with (step, metrics) as curves grow; returning True ends the run as ``pruned``.
        folder: where checkpoints go, and at the end ``model.pt`` and ``config.json``; a checkpoint found there is gone on
            from. None: nothing is written.
    """
    for path in config.sources:
        load_file(Path(path))
    device = machine.set_up(config.machine)
    run: _Training | None = None
    try:
        run = _Training(config, report or (lambda step, metrics: False), folder, device)
        run.to_the_end()
        return Result("completed", run.summary(), run.step)
    except _Ended as end:
        assert run is not None
        return Result(end.state, run.costs(), end.step, end.reason)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        costs = measure.peaks(device)
        return Result("out_of_memory", costs, run.step if run else 0, str(error).splitlines()[0])


class _Training:
    """The loop and its state."""

    def __init__(self, config: RunConfig, report: Report, folder: Path | None, device: torch.device) -> None:
        self.config, self.report, self.folder, self.device = config, report, folder, device
        self.task: Task = TASKS.get(config.task.name)(**config.task.options)
        self.task.prepare()
        self.total = total_steps(config.train, self.task)
        self.model = build(config, self.task).to(device).train()
        self.optimizer = adamw(self.model, config.train)
        self.fixed_costs: dict[str, float] = {
            **measure.plan_figures(config, self.task),
            "saved_mib": measure.saved_mib(self.model, config, self.task),
        }
        self.memory: list[Tensor] | None = None
        self.step = 0
        self.pending: list[Tensor] = []  # losses since the last point of the curve, still on the device
        self.history: list[tuple[int, dict[str, float]]] = []
        self.best: dict[str, Any] | None = None
        self.final: dict[str, float] = {}
        self.clock = measure.Clock(device)
        torch.manual_seed(stream(config.seed, "dropout"))
        self._resume()

    def to_the_end(self) -> None:
        """Take every step that is left, then meet the test split."""
        while self.step < self.total:
            self._step()
            if self.step % self.config.train.log_every == 0 or self._evaluation_due():
                self._log()
            if self._evaluation_due():
                self._evaluate()
            if self._checkpoint_due():
                self._save()
        if self.config.train.select == "best" and self.best is not None:
            self.model.load_state_dict(self.best["model"])
            self.final |= _valid(self.best["scores"])
        begin = perf_counter()
        scores = evaluate(self.model, self.task, "test", config=self.config, device=self.device)
        self.final |= scores | {"test_seconds": perf_counter() - begin}
        if self.folder is not None:
            checkpoint.save({"model": self.model.state_dict()}, self.folder / "model.pt")
            (self.folder / "config.json").write_text(self.config.to_json(), encoding="utf8")
            (self.folder / "checkpoint.pt").unlink(missing_ok=True)

    def _step(self) -> None:
        how = self.config.train
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.total, how)
        self.clock.start()
        batch = self.task.train_batch(self.step, seed=self.config.seed, batch_size=how.batch_size)
        self.pending.append(self._gradients(batch.to(self.device)))
        if how.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), how.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.clock.count(batch.tokens)

    def _gradients(self, batch: Batch) -> Tensor:
        """Add up the gradients of the batch's mean loss, micro-batch by micro-batch, and return that loss."""
        how = self.config.train
        parts = batch.split(how.accumulate)
        memories = _split_memory(self.memory, len(parts))
        counted = (batch.targets >= 0).sum()
        loss = torch.zeros((), device=self.device)
        for i, part in enumerate(parts):
            share = (part.targets >= 0).sum() / counted
            with machine.autocast(self.device, how.precision):
                logits, memories[i] = forward(self.model, part, memories[i])
                part_loss = self.task.loss(logits, part) * share
            part_loss.backward()
            loss += part_loss.detach()
        self.memory = _join_memory(memories)
        return loss

    def _log(self) -> None:
        """Read the losses since the last point in one go, and report their mean."""
        if not self.pending:
            return
        self.clock.stop()
        losses = torch.stack(self.pending).tolist()
        first = self.step - len(losses) + 1
        self.pending = []
        for step, loss in enumerate(losses, start=first):
            if not math.isfinite(loss):
                raise _Ended("diverged", step, f"the training loss became {loss} at step {step}")
        rate = learning_rate(self.step - 1, self.total, self.config.train)
        self._report(
            {
                "train/loss": sum(losses) / len(losses),
                "train/lr": rate,
                "train/tokens_per_s": self.clock.tokens_per_s(),
            }
        )

    def _evaluate(self) -> None:
        self.clock.stop()
        begin = perf_counter()
        scores = evaluate(self.model, self.task, "valid", config=self.config, device=self.device)
        value = scores[self.task.metric]
        better = self.best is None or (value < self.best["value"]) == (self.task.direction == "min")
        if self.config.train.select == "best" and better:
            weights = {name: w.detach().cpu().clone() for name, w in self.model.state_dict().items()}
            self.best = {"value": value, "scores": scores, "model": weights}
        self.final = _valid(scores) | {"valid_seconds": perf_counter() - begin}
        self._report({f"valid/{name}": score for name, score in scores.items()})

    def _report(self, metrics: dict[str, float]) -> None:
        self.history.append((self.step, metrics))
        if self.report(self.step, metrics):
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
        self.clock.stop()
        assert self.folder is not None
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": checkpoint.random_state(),
            "memory": self.memory,
            "pending": self.pending,
            "history": self.history,
            "best": self.best,
            "final": self.final,
            "clock": self.clock.state(),
        }
        checkpoint.save(state, self.folder / "checkpoint.pt")

    def _resume(self) -> None:
        if self.folder is None or not (self.folder / "checkpoint.pt").is_file():
            return
        state = checkpoint.load(self.folder / "checkpoint.pt")
        self.step, self.best, self.final = state["step"], state["best"], state["final"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.memory = None if state["memory"] is None else [m.to(self.device) for m in state["memory"]]
        self.pending = [loss.to(self.device) for loss in state["pending"]]
        self.clock.restore(state["clock"])
        checkpoint.restore_random_state(state["random"])
        for step, metrics in state["history"]:  # a new MLflow run stands for a retry: it gets the whole curve
            self.history.append((step, metrics))
            self.report(step, metrics)

    def costs(self) -> dict[str, float]:
        """What the run cost so far."""
        return {
            **self.fixed_costs,
            **measure.peaks(self.device),
            "tokens_per_s": self.clock.tokens_per_s(),
            "train_seconds": self.clock.seconds,
            "tokens": self.clock.tokens,
            "steps": self.step,
        }

    def summary(self) -> dict[str, float]:
        """The final metrics and what they cost."""
        return {**self.final, **self.costs()}


def _valid(scores: dict[str, float]) -> dict[str, float]:
    return {f"valid_{name}": score for name, score in scores.items()}


def _split_memory(memory: list[Tensor] | None, parts: int) -> list[list[Tensor] | None]:
    if not memory:
        return [None] * parts
    return [list(rows) for rows in zip(*(m.chunk(parts) for m in memory), strict=True)]


def _join_memory(memories: list[list[Tensor] | None]) -> list[Tensor] | None:
    kept = [m for m in memories if m]
    return [torch.cat(rows) for rows in zip(*kept, strict=True)] if kept else None


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)
