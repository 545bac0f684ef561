"""Configurations that can be trained fused: those of which a fused step has the loss and the gradients of solo steps."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab._util.raise_site import describe_error
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.models.base import Model
from attnlab.models.build import build
from attnlab.tasks import Batch, Task
from attnlab.training.device import autocast
from attnlab.training.example_step import relative_difference
from attnlab.training.fine_tuning import freeze
from attnlab.training.fused.stack import Stack
from attnlab.training.fused.streams import RandomStream
from attnlab.training.out_of_memory import is_out_of_memory

# Of loss and gradients, relative to their norms. Another order of sums was seen to change them by 1e-7 in fp32 and by 7e-3 in
# bf16, another dropout mask by 1e-1.
TOLERANCE = 1e-4
ROUNDED_TOLERANCE = 3e-2  # of products in bf16 or TF32
ROWS = 2  # of the example batch


def unsupported(config: RunConfig, task: Task) -> str | None:
    """Return the reason why the seeds of a configuration cannot be trained fused, or None.

    The last check takes a step of two seeds on the CPU.

    Args:
        config: resolved, and one that can be trained alone.
        task: of ``config``; its data need not be prepared.
    """
    refused = {
        f"a language model, because its batches have one shape, got {task.kind}": task.kind != "language_model",
        "model.mem_len 0": config.model.mem_len > 0,
        "machine.processes_per_run 1": config.machine.processes_per_run > 1,
        "train.compile false": config.train.compile,
        "train.gradient_accumulation 1": config.train.gradient_accumulation > 1,
        "train.activation_checkpointing false": config.train.activation_checkpointing,
        "training from scratch, got init": config.init is not None,
        f"the backend reference, blocked or sdpa, got {config.backend}": config.backend in ("xformers", "flex"),
    }
    expected = next((condition for condition, applies in refused.items() if applies), None)
    return f"run.fuse: expected {expected}" if expected else _mismatch(config, task)


def _mismatch(config: RunConfig, task: Task) -> str | None:
    """Return how a fused step of two seeds on an example batch differs from two solo ones, or the error that it raises."""
    device = torch.device("cpu")
    with torch.random.fork_rng(devices=[]):
        streams, models = [], []
        for seed in (0, 1):
            models.append(build(config.model_copy(update={"seed": seed}), task).train())
            freeze(models[-1], config.train)
            torch.manual_seed(seed)
            streams.append(RandomStream(device))
        batch = models[0].example_batch(task, ROWS, device=device)
        try:
            check_fused_step(models, streams, [batch] * 2, task=task, config=config)
        except UserError as error:
            return error.message
    return None


def check_fused_step(
    models: Sequence[Model], streams: Sequence[RandomStream], batches: Sequence[Batch], *, task: Task, config: RunConfig
) -> None:
    """Check that a fused step has the losses and the gradients of steps of each model alone.

    Weights and streams stay as they are; the models have no gradients afterwards.

    Args:
        models: as for ``Stack``.
        streams: of the models.
        batches: a batch for each model.
        task: of the models.
        config: of any of them.

    Raises:
        UserError: a fused step fails, its losses or gradients differ, or a forward pass changes a buffer.
    """
    solo = []
    for model, stream, batch in zip(models, streams, batches, strict=True):
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with stream.copy().active(), autocast(batch.inputs.device, config.train.precision):
            loss = task.loss(model.forward_batch(batch, None)[0], batch)
        loss.backward()
        solo.append((loss.detach(), _take_gradients(model)))
        # ``functional_call`` drops a buffer that is assigned in the forward pass, and later steps would use its old value.
        changed = [name for name, z in model.named_buffers() if name not in buffers or not torch.equal(z, buffers[name])]
        if changed:
            raise UserError(f"run.fuse: expected buffers that the forward pass leaves as they are, got changes of {changed[0]}")
    try:
        stack = Stack(models, [stream.copy() for stream in streams], task=task, config=config)
        losses = stack.backward(batches)
    except UserError:
        raise
    except Exception as error:  # vmap refuses an operation, in the code of a user or of attnlab
        if is_out_of_memory(error):
            raise
        raise UserError(f"run.fuse: torch.func.vmap cannot evaluate this model: {one_line(describe_error(error))}") from error
    exact = config.train.precision == "fp32" and config.machine.matmul_precision == "highest"
    tolerance = TOLERANCE if exact else ROUNDED_TOLERANCE
    for model, loss, own in zip(models, losses, solo, strict=True):
        gradients = _take_gradients(model)
        difference = relative_difference((loss, gradients), own) if len(gradients) == len(own[1]) else math.inf
        if not difference <= tolerance:  # NaN is not
            how = f"a loss of {float(own[0]):.6g} and its gradients within {tolerance:g}, as alone"
            raise UserError(f"run.fuse: expected {how}, got {float(loss):.6g} and gradients that differ by {difference:.1g}")


def _take_gradients(model: Model) -> list[Tensor]:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return gradients
