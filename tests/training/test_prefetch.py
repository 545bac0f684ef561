"""Tests of prefetching: batches are drawn ahead of their steps, with no effect on the result."""

from typing import Any

import pytest
import torch

from attnlab.tasks import IGNORED, Batch
from attnlab.tasks.pydocs import PyDocs
from attnlab.training import trainer
from attnlab.training.distributed import Group
from attnlab.training.gradients import Prefetcher
from tests.support.small_runs import Reviews, recorded, tiny

CPU = torch.device("cpu")


def test_a_step_gets_its_batch_prefetched_or_not() -> None:
    task, config = Reviews(), tiny(train__batch_size=6, train__gradient_accumulation=3)
    prefetcher = Prefetcher(task, config, group=Group(), device=CPU)
    for step in (0, 1, 5, 2):  # 5 and 2: another batch was prefetched, as after a jump to a checkpoint
        batch_of_rank = prefetcher.take(step)
        prefetcher.prefetch(step + 1)
        batch = task.train_batch(step, seed=config.seed, batch_size=6)
        assert torch.equal(torch.cat([part.inputs for part in batch_of_rank.parts]), batch.inputs)
        assert batch_of_rank.tokens == batch.tokens and batch_of_rank.shares == pytest.approx([1 / 3] * 3)
    assert prefetcher.seconds > 0


def test_the_next_batch_is_drawn_before_the_loss_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy device then has the data of its next step before the program waits for the loss."""
    happened: list[str] = []
    draw, log = Prefetcher.prefetch, trainer.Trainer._log

    def drawing(self: Prefetcher, step: int) -> None:
        happened.append(f"draw {step}")
        draw(self, step)

    def logging(self: trainer.Trainer) -> None:
        happened.append(f"log {self.step}")
        log(self)

    monkeypatch.setattr(Prefetcher, "prefetch", drawing)
    monkeypatch.setattr(trainer.Trainer, "_log", logging)
    recorded(tiny(train__steps=4, train__log_every=2, train__eval_every=None))
    assert happened == ["draw 0", "draw 1", "draw 2", "log 2", "draw 3", "log 4"]


def test_between_two_points_nothing_is_read_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, gradient norms and counts are read from the device only when a point is logged."""
    run = trainer.Trainer(
        tiny(train__gradient_accumulation=2), group=Group(), folder=None, device=CPU, report=lambda step, metrics: False
    )

    def ready(self: Prefetcher, step: int) -> Any:
        return self._ahead[step]

    for step in range(3):
        run.prefetcher.prefetch(step)
        run.prefetcher._ahead = {step: run.prefetcher._ahead[step]}
        with monkeypatch.context() as patch:
            patch.setattr(Prefetcher, "take", ready)
            patch.setattr(Prefetcher, "prefetch", lambda self, step: None)  # prefetching counts on the CPU
            for name in ("item", "tolist", "__bool__", "__float__", "__int__", "cpu", "numpy"):
                patch.setattr(torch.Tensor, name, _refused(name))
            run.take_step()
    assert len(run.pending) == 3


@pytest.mark.parametrize("empty", [slice(2, 4), slice(0, 4)], ids=["a micro-batch", "a whole batch"])
def test_rows_without_a_target_teach_nothing_and_harm_nothing(empty: slice, monkeypatch: pytest.MonkeyPatch) -> None:
    """A language model may have targets only at the ends of texts; the loss is that of the other rows."""
    draw = PyDocs.train_batch

    def drawn(self: PyDocs, step: int, **kwargs: Any) -> Batch:
        batch = draw(self, step, **kwargs)
        batch.targets[empty] = IGNORED
        return batch

    monkeypatch.setattr(PyDocs, "train_batch", drawn)
    (whole, points), (parts, others) = recorded(tiny()), recorded(tiny(train__gradient_accumulation=2))
    assert whole.state == parts.state == "completed"
    for (_, metrics_whole), (_, metrics_parts) in zip(points, others, strict=True):
        assert metrics_whole == pytest.approx(metrics_parts, rel=1e-4)
    losses = [metrics["train/loss"] for _, metrics in points if "train/loss" in metrics]
    assert all(loss > 2 for loss in losses) if empty.start else losses == [0] * len(losses)


def _refused(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError(f"a value was read: Tensor.{name}")

    return refuse


def test_a_run_reports_the_time_of_each_part(tmp_path: Any) -> None:
    from attnlab.training.train import train

    summary = train(tiny(), folder=tmp_path).summary
    exclude = ["startup_seconds", "evaluation_seconds", "logging_seconds", "checkpoint_seconds"]
    assert all(summary[name] > 0 for name in exclude)
    assert 0 < summary["data_seconds"] < summary["train_seconds"]
    assert summary["evaluation_seconds"] > summary["valid_seconds"] + summary["test_seconds"], "valid was read three times"


@pytest.mark.gpu
def test_a_copy_to_cuda_is_pinned_and_right() -> None:
    batch = Batch(torch.arange(6).view(2, 3), torch.tensor([0, 1]), torch.ones(2, 3, dtype=torch.bool))
    moved = batch.to("cuda")
    torch.cuda.synchronize()
    assert torch.equal(moved.inputs.cpu(), batch.inputs) and moved.tokens == 6


@pytest.mark.gpu
@pytest.mark.parametrize("changes", [{}, {"train__precision": "bf16"}, {"train__gradient_accumulation": 2}])
def test_a_step_on_cuda_never_synchronises(changes: dict[str, Any]) -> None:
    device = torch.device("cuda")
    run = trainer.Trainer(tiny(**changes), group=Group(), folder=None, device=device, report=lambda step, metrics: False)
    run.take_step()  # the first step allocates workspaces
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")  # operations that wait for the device raise
    try:
        for _ in range(3):
            run.take_step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.step == 4 and len(run.pending) == 4, "all steps were taken, and no loss was read"
