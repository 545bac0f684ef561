"""Section ``step``: a training step of a byte language model, attnlab's own against the peers' in a plain loop."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.config.run import MachineConfig
from attnlab.registry import TASKS
from attnlab.tasks import Batch
from attnlab.training import device as machine
from benchmarks.speed import attnlab_step
from benchmarks.speed.case import EQUAL, OURS, PRECISIONS, SETTINGS, SHIPPED, Case, Row, Size, timed
from benchmarks.speed.peers import PEERS

PLAIN = "attnlab, no settings"  # the default ``machine`` settings of a study


def cases(device: str) -> Iterator[Case]:
    """Yield attnlab, a peer, attnlab, the next peer: pairs are adjacent in time, because a machine's speed drifts."""
    for precision in PRECISIONS:
        for settings in (SHIPPED, EQUAL):
            for peer in [*PEERS, *([PLAIN] if settings == SHIPPED else [])]:
                yield from (Case("step", name, peer, precision, settings, device) for name in (OURS, peer))


def measure(case: Case, size: Size | None = None) -> list[Row]:
    """Measure forward, backward and AdamW on real bytes."""
    size = size or Size()
    if case.name in (OURS, PLAIN):
        run = attnlab_step.training(attnlab_step.config(case, size, settings=None if case.name == OURS else {}))
        model, step = run.model, attnlab_step.stepper(run)
    else:
        model, step = plain_loop(case, size)
    return [Row("parameters", "", attnlab_step.parameters(model)), *timed(step, case, size=size)]


def plain_loop(case: Case, size: Size) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Return a peer's model and its step."""
    device = peer_device(case)
    task = TASKS.get("pydocs")(length=size.length)
    task.prepare()
    torch.manual_seed(0)
    model = PEERS[case.name](size, task.vocabulary).to(device).train()
    batches = (task.train_batch(i, seed=0, batch_size=size.batch) for i in range(size.warm + size.steps))

    def loss(batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch.inputs).flatten(0, 1), batch.targets.flatten())

    step = plain_step(model, loss, case=case, lr=size.lr)
    return model, lambda: step(next(batches))


def peer_device(case: Case) -> torch.device:
    """Apply the case's settings to this process and return its device."""
    return machine.set_up(MachineConfig(device=case.device, **(SETTINGS if case.settings == EQUAL else {})))


def plain_step(model: nn.Module, loss: Callable[[Batch], Tensor], *, case: Case, lr: float) -> Callable[[Batch], Tensor]:
    """Return a plain training step with default AdamW, or fused AdamW with equal settings."""
    device = torch.device(case.device)
    adamw = torch.optim.AdamW(model.parameters(), lr=lr, fused=case.settings == EQUAL or None)

    def step(batch: Batch) -> Tensor:
        with machine.autocast(device, case.precision):
            value = loss(batch.to(device))
        value.backward()
        adamw.step()
        adamw.zero_grad()
        return value

    return step
