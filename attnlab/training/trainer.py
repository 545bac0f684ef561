"""The training loop, its state, and the seconds of its steps and of everything else.

Batches are a pure function of (seed, step), and the learning rate of the step. The state of a run, which a checkpoint
stores, is therefore its model, optimizer, random streams, scores on ``valid`` and step number.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import torch
from torch import Tensor

from attnlab._util.machine import KeptMemory
from attnlab._util.rng import derive_seed
from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.registry import TASKS
from attnlab.tasks import Task
from attnlab.tasks.validation import check_first_batch, prepare_task
from attnlab.training import checkpoint, costs
from attnlab.training.device import compilations, compile_step, synchronise
from attnlab.training.distributed import Group
from attnlab.training.evaluate import ItemScores, evaluate, evaluate_lengths
from attnlab.training.gradients import LossScaler, Memory, Prefetcher, backward, loss_of
from attnlab.training.optim import build_optimizer, freeze, learning_rate, set_learning_rate, total_steps
from attnlab.training.result import History, Report, Result
from attnlab.training.selection import Selection
from attnlab.training.weights import StartingPoint

logger = logging.getLogger(__name__)

CHECKPOINT_SECONDS = 600.0  # between two checkpoints, if the configuration does not say how often
EXCLUDED = ("startup", "evaluation", "logging", "checkpoint")


class _EarlyEnd(Exception):
    """Ends training before its last step: the run diverged or was pruned."""

    def __init__(self, state: str, step: int, reason: str) -> None:
        super().__init__(reason)
        self.state, self.step, self.reason = state, step, reason


class Trainer:
    """Train one run, on one of its ranks.

    Args:
        config: a resolved configuration.
        group: the ranks that share the run.
        folder: the folder of checkpoints; None writes none.
        device: this rank's device.
        report: called on rank 0 with (step, metrics); returning True ends the run as ``pruned``.
        figures: the ``costs.plan_figures`` of the configuration; None traces them.

    Attributes:
        step: steps taken so far.
        history: every (step, metrics) that was reported, in order.
        fixed_costs: ``costs.fixed_costs`` of the model.
        start: the run that this one started from; None: from scratch.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        group: Group,
        folder: Path | None,
        device: torch.device,
        report: Report,
        figures: dict[str, int] | None = None,
    ) -> None:
        self.config, self.group, self.folder, self.device, self.report = config, group, folder, device, report
        self.timer = Timer(device)
        with self.timer.exclude("startup"):
            self._set_up(figures)

    def _set_up(self, figures: dict[str, int] | None) -> None:
        config, group, device = self.config, self.group, self.device
        self.task: Task = prepare_task(TASKS.get(config.task.name)(**config.task.options), config)
        check_first_batch(self.task, config)
        self.total = total_steps(config.train, self.task)
        self.model = build(config, self.task).to(device).train()
        freeze(self.model, config.train)
        self.optimizer = build_optimizer(self.model, config.train)
        self.scaler = LossScaler(config.train.precision, device)
        self.fixed_costs = group.on_rank_zero(lambda: costs.fixed_costs(self.model, config, self.task, figures))
        self.loss: Callable[..., tuple[Tensor, Memory]] = loss_of
        if config.train.compile:
            # A graph of CUDA has fixed shapes, and its next call overwrites what the last one returned.
            fixed = not (self.task.shapes_vary or config.model.mem_len or config.train.gradient_accumulation > 1)
            self.loss = compile_step(loss_of, cuda_graphs=device.type == "cuda" and fixed)
        self.kept_memory = KeptMemory() if config.machine.reuse_memory and self.task.shapes_vary else None
        self.prefetcher = Prefetcher(self.task, config, group=group, device=device)
        self.memory: Memory = None
        self.start: StartingPoint | None = None
        self.step = 0
        self.pending: list[Tensor] = []  # losses since the last point of the curve, still on the device
        self.history: History = []
        self.selection = Selection(self.task, config.train)
        self.items = ItemScores()  # of the test split, on rank 0
        self.checkpoint_time = monotonic()  # of the last checkpoint, or of the start
        own = [group.rank] if group.size > 1 else []
        torch.manual_seed(derive_seed(config.seed, "dropout", *own))

    def fit(self) -> Result:
        """Take the remaining steps, evaluate the selected weights on ``test``, and return the result."""
        try:
            # Train, with evaluations, log points and checkpoints when they are due.
            while self.step < self.total and not self.selection.is_done:
                self.take_step()
                if self._log_due():
                    self._log()
                if self._evaluation_due():
                    self._validate()
                if self._checkpoint_due():
                    self._save()
            # Load the selected weights; only they are evaluated on the test split.
            selected = self.selection.load_best(self.model)
            if self.config.evaluate.sample_limit is not None:
                selected = self._evaluate("valid")
            valid = {f"valid_{name}": score for name, score in selected.items()}
            test = self._evaluate("test", self.items) if self.config.evaluate.test else {}
            # Peak memory is read before the evaluation at other lengths, which may need more than training did.
            run_costs = self._costs()
            if breaks := run_costs.get("graph_breaks"):
                logger.warning("torch.compile broke the graph of a step %d times, which costs speed", breaks)
            at_lengths, tags = self._at_lengths(test)
            summary = {**valid, **test, **at_lengths, **run_costs, **self.timer.summary()}
            return Result("completed", summary, self.step, tags={**self.task.run_notes(), **tags})
        except _EarlyEnd as end:
            return Result(end.state, self._costs(), end.step, end.reason)

    def take_step(self) -> None:
        """Take one optimizer step, and draw the next batch while the device computes."""
        train_config = self.config.train
        set_learning_rate(self.optimizer, learning_rate(self.step, self.total, train_config))
        self.timer.start()
        batch = self.prefetcher.take(self.step)
        loss, self.memory = backward(
            self.model,
            batch,
            self.memory,
            task=self.task,
            config=self.config,
            device=self.device,
            group=self.group,
            scaler=self.scaler,
            compute=self.loss,
        )
        self.pending.append(loss)
        if not self.scaler.step(self.optimizer, list(self.model.parameters()), grad_clip=train_config.grad_clip):
            self._after_skipped_step()
        self.optimizer.zero_grad()
        if self.kept_memory is not None:
            self.kept_memory.release()
        self.step += 1
        self.timer.count(batch.tokens)
        if self.step < self.total:
            self.prefetcher.prefetch(self.step)  # the device still computes this step

    def _after_skipped_step(self) -> None:
        """End the run if every step is skipped; forget a memory that is not finite, which all later segments would read."""
        if self.scaler.is_stuck:
            step, count = self.step + 1, self.scaler.in_a_row
            raise _EarlyEnd("diverged", step, f"{count} steps in a row, up to step {step}, had gradients beyond fp16's range")
        if self.memory is not None and not all(m.isfinite().all() for m in self.memory):
            self.memory = None

    def _log(self) -> None:
        """Report the mean loss since the last point. The losses are read together: only here do steps wait for the device."""
        if not self.pending:
            return
        with self.timer.exclude("logging"):
            losses = torch.stack(self.pending).tolist()
            first = self.step - len(losses) + 1
            self.pending = []
            for step, loss in enumerate(losses, start=first):
                if not math.isfinite(loss) and not self.scaler.is_active:  # whose steps with such losses are skipped
                    raise _EarlyEnd("diverged", step, f"the training loss became {loss} at step {step}")
            rate = learning_rate(self.step - 1, self.total, self.config.train)
            finite = [loss for loss in losses if math.isfinite(loss)]
            mean = {"train/loss": sum(finite) / len(finite)} if finite else {}
            self._report({**mean, "train/lr": rate, "train/tokens_per_s": self.timer.tokens_per_s(), **self.scaler.figures()})

    def _validate(self) -> None:
        """Evaluate on ``valid``, or the sample of it, update the selection and report the scores."""
        scores = self._evaluate("valid", sample=True)
        self.selection.update(scores, self.model)
        with self.timer.exclude("logging"):
            self._report({f"valid/{name}": score for name, score in scores.items()})

    def _evaluate(self, split: str, items: ItemScores | None = None, *, sample: bool = False) -> dict[str, float]:
        """Return the scores on ``split``; a NaN or infinite metric or loss ends the run as ``diverged``.

        Args:
            split: ``valid`` or ``test``.
            items: collects the scores of the split's items.
            sample: read only the sample of the split that is used during training.
        """
        options: dict[str, Any] = {"items": items, "sample": sample}
        if self.kept_memory is not None:  # the buffers of long documents have other sizes than those of a training step
            options["release"] = self.kept_memory.release
        with self.timer.exclude("evaluation", split=split):
            scores = self.group.on_rank_zero(
                lambda: evaluate(self.model, self.task, split, config=self.config, device=self.device, **options)
            )
        for name, score in scores.items():
            if name in (self.task.metric, "loss") and not math.isfinite(score):
                raise _EarlyEnd("diverged", self.step, f"{name} on {split} became {score} at step {self.step}")
        return scores

    def _at_lengths(self, test: dict[str, float]) -> tuple[dict[str, float], dict[str, str]]:
        """Return the scores and tags of ``evaluate_lengths``; ``test`` are the scores at the trained length."""
        if not self.config.evaluate.lengths:
            return {}, {}
        with self.timer.exclude("evaluation", split="lengths"):
            return self.group.on_rank_zero(
                lambda: evaluate_lengths(self.model, self.task, test, config=self.config, device=self.device)
            )

    def _report(self, metrics: dict[str, float]) -> None:
        """Add a point to the curves; end the run as ``pruned`` if the caller requests it."""
        self.history.append((self.step, metrics))
        if self.group.on_rank_zero(lambda: self.report(self.step, metrics)):
            raise _EarlyEnd("pruned", self.step, f"pruned at step {self.step}")

    def _log_due(self) -> bool:
        return self.step % self.config.train.log_every == 0 or self._evaluation_due()

    def _evaluation_due(self) -> bool:
        train_config = self.config.train
        every = train_config.eval_every
        if every is None and train_config.epochs is not None:
            every = self.task.steps_per_epoch(train_config.batch_size)
        return self.step == self.total or (every is not None and self.step % every == 0)

    def _checkpoint_due(self) -> bool:
        if self.folder is None or self.step == self.total:
            return False
        every = self.config.train.checkpoint_every
        if every is not None:
            return self.step % every == 0
        return self._evaluation_due() or (self._log_due() and self._checkpoint_overdue())

    def _checkpoint_overdue(self) -> bool:
        """Return whether the last checkpoint is too old. Rank 0 decides, because the clocks of the ranks differ."""
        return self.group.on_rank_zero(lambda: monotonic() - self.checkpoint_time >= CHECKPOINT_SECONDS)

    def _save(self) -> None:
        with self.timer.exclude("checkpoint"):
            self._write_checkpoint()
        self.checkpoint_time = monotonic()

    def _write_checkpoint(self) -> None:
        """Gather the state of every rank; rank 0 writes it."""
        assert self.folder is not None
        memory = None if self.memory is None else [m.cpu() for m in self.memory]
        own = {"random": checkpoint.random_state(self.device), "memory": memory}
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ranks": self.group.gather(own),
            "scaling": self.scaler.state(),
            "pending": self.pending,
            "history": self.history,
            "selection": self.selection.state(),
            "timer": self.timer.state(),
            "data_seconds": self.prefetcher.seconds,
            "start": None if self.start is None else asdict(self.start),
        }
        if self.group.rank == 0:
            checkpoint.save_newest(state, self.folder, config=self.config)

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the state that ``_save`` wrote."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler.is_active:  # checkpoints of earlier versions have no such state
            self.scaler.restore(state["scaling"])
        self.step, self.prefetcher.seconds = state["step"], state["data_seconds"]
        self.pending = [loss.to(self.device) for loss in state["pending"]]
        self.history = state["history"]
        self.selection.restore(state["selection"])
        self.timer.restore(state["timer"])
        own = state["ranks"][self.group.rank]
        self.memory = None if own["memory"] is None else [m.to(self.device) for m in own["memory"]]
        self.start = StartingPoint(**state["start"]) if state["start"] else None
        checkpoint.restore_random_state(own["random"], self.device)

    def replay_history(self) -> None:
        """Report the history before the checkpoint again: a retry has a new MLflow run, which needs the whole curve."""
        for step, metrics in self.history:
            self.group.on_rank_zero(lambda step=step, metrics=metrics: self.report(step, metrics))

    def _costs(self) -> dict[str, float]:
        """Return the costs of the run so far; peak memory is the highest over the ranks."""
        peaks = self.group.gather(costs.peaks(self.device))
        run_costs = {
            **self.fixed_costs,
            **{name: max(rank_peaks[name] for rank_peaks in peaks) for name in peaks[0]},
            **self.timer.summary(),
            "data_seconds": self.prefetcher.seconds,
            "steps": self.step,
            **({"skipped_steps": self.scaler.skipped} if self.scaler.is_active else {}),
            **(compilations() if self.config.train.compile else {}),
        }
        return run_costs if self.start is None else run_costs | self.start.chain_costs(run_costs)


class Timer:
    """Measure training steps in seconds and tokens, and the time of other activities separately.

    The first interval of a process, up to the first ``stop``, is warm-up: it counts towards ``seconds`` and ``tokens`` but
    not towards tokens per second.

    Attributes:
        seconds, tokens: of training steps alone, including the time to draw their batches.
        parts: seconds of each activity in ``EXCLUDED``.
        last: seconds of the latest evaluation of each split.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds, self.tokens = 0.0, 0
        self.warm_seconds, self.warm_tokens = 0.0, 0
        self.parts: dict[str, float] = dict.fromkeys(EXCLUDED, 0.0)
        self.last: dict[str, float] = {}
        self._warm = False
        self._start: float | None = None
        self._interval = 0

    def start(self) -> None:
        """Start an interval of training steps, unless one is running."""
        if self._start is None:
            self._start = perf_counter()

    def count(self, tokens: int) -> None:
        """Add the tokens of one training step to the current interval."""
        self._interval += tokens

    def stop(self) -> None:
        """End the current interval, after the device has finished its work; do nothing if none is running."""
        if self._start is None:
            return
        synchronise(self.device)
        elapsed = perf_counter() - self._start
        if not self._warm:
            self.warm_seconds += elapsed
            self.warm_tokens += self._interval
            self._warm = True
        self.seconds += elapsed
        self.tokens += self._interval
        self._start, self._interval = None, 0

    @contextmanager
    def exclude(self, part: str, *, split: str = "") -> Iterator[None]:
        """Count the time inside the block as ``part`` instead of as training steps.

        Args:
            part: one of ``EXCLUDED``.
            split: the evaluated split, if ``part`` is an evaluation.
        """
        self.stop()
        start = perf_counter()
        try:
            yield
        finally:
            elapsed = perf_counter() - start
            self.parts[part] += elapsed
            if split:
                self.last[split] = elapsed

    def tokens_per_s(self) -> float:
        """Return the training throughput without warm-up; NaN before the first interval has ended."""
        after = self.tokens - self.warm_tokens
        if after == 0:  # a run of one interval has only its warm-up
            return self.tokens / self.seconds if self.seconds else float("nan")
        return after / (self.seconds - self.warm_seconds)

    def summary(self) -> dict[str, float]:
        """Return the final metrics by name: ``tokens_per_s``, ``tokens``, and seconds in all others."""
        return {
            "tokens_per_s": self.tokens_per_s(),
            "tokens": self.tokens,
            "train_seconds": self.seconds,
            **{f"{part}_seconds": seconds for part, seconds in self.parts.items()},
            **{f"{split}_seconds": seconds for split, seconds in self.last.items()},
        }

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint stores."""
        names = ("seconds", "tokens", "warm_seconds", "warm_tokens", "parts", "last")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``; the startup time of this process is added to the startup time of earlier ones."""
        startup = self.parts["startup"]
        for name, value in state.items():
            setattr(self, name, value)
        self.parts["startup"] += startup
