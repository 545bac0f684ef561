"""What a training step takes of a CUDA device's memory at its peak, known without a device.

One step of the real model is traced with fake tensors, which have sizes and no contents, under PyTorch's own memory
tracker: weights, optimiser state, gradients, what autograd saves, and what lives in passing, storage by storage, rounded
as CUDA's allocator rounds. Attention and autocast take the path that they take on CUDA.

It is what ``torch.cuda.max_memory_allocated`` counts (``gpu_peak_mib`` of a run) but for the workspaces of libraries and
kernels. A device also has to hold the CUDA context and what fragments: expect about 1 GiB more. With ``train.compile``
a step takes less than this, as fewer results are kept between operations.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import _engine_run_backward
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.tasks import Batch, Task
from attnlab.training import costs
from attnlab.training.device import autocast
from attnlab.training.evaluate import forward
from attnlab.training.optim import adamw

CPU = torch.device("cpu")  # fake tensors say they lie here: a build without CUDA cannot differentiate fake CUDA tensors
# What autocast computes in float32 on CUDA and leaves in bfloat16 on a CPU, as far as models of attention use it.
IN_FP32 = ("softmax", "log_softmax", "layer_norm", "norm", "softplus", "exp", "log", "pow", "sum", "cumsum")


def cuda_peak_mib(config: RunConfig, task: Task) -> float:
    """MiB that are allocated at most in one training step, of one of ``machine.processes_per_run``.

    Args:
        config: resolved; its backend is what is traced, whichever device the configuration is for.
    """
    moments = costs.of_all_blocks(lambda config: trace(config, task), config)
    return max(moments.values()) / costs.MIB


def trace(config: RunConfig, task: Task, *, on_cuda: bool = True) -> dict[str, int]:
    """Bytes at most within forward and backward, and when the optimiser is about to step: the two grow differently with depth.

    Args:
        on_cuda: False: what a CPU would take.
    """
    how = config.train
    built = costs.anywhere(config)
    if config.backend == "blocked":  # it draws a number for what it drops, which fake tensors lack, and keeps nothing of it
        built = built.replace({"model.attention_dropout": 0.0})
    with FakeTensorMode():
        model = build(built, task).train()
        optimizer = adamw(model, how)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()  # it makes its state, which all later steps find; then it works in place
        if how.gradient_accumulation == 1:  # else a micro-batch finds the gradients of the one before
            optimizer.zero_grad()
        batch, memory = _batch(config, task)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *(t for t in (batch.inputs, batch.targets, batch.mask) if t is not None))
        tracker.track_external(*memory)
        with tracker, _OnCuda(on_cuda):
            with autocast(CPU, how.precision):
                logits, kept = forward(model, batch, memory or None)
                loss = task.loss(logits, batch)
            del logits
            # Tensor.backward would leave the mode, and checkpointed blocks run again inside it.
            one = torch.ones_like(loss)
            _engine_run_backward((loss,), (one,), False, False, (), allow_unreachable=True, accumulate_grad=True)
        del kept
        peak, after = (_bytes(tracker, when) for when in ("peak", "current"))
    return {"backward": peak, "update": after}


def _bytes(tracker: MemTracker, when: str) -> int:
    return sum(device["Total"] for device in tracker.get_tracker_snapshot(when).values())


def _batch(config: RunConfig, task: Task) -> tuple[Batch, list[Tensor]]:
    """One micro-batch at the full length, and a full memory where the model keeps one."""
    rows = costs.micro_batch(config)
    inputs = torch.zeros(rows, task.length, dtype=torch.long)
    if task.kind == "classifier":
        mask = torch.ones(rows, task.length, dtype=torch.bool)
        return Batch(inputs, torch.zeros(rows, dtype=torch.long), mask), []
    m, dim = config.model.mem_len, config.model.dim
    memory = [torch.zeros(rows, m, dim) for _ in range(config.model.depth)] if m else []
    return Batch(inputs, torch.zeros_like(inputs)), memory


class _OnCuda(TorchFunctionMode):
    """Inside, attention takes the kernel that CUDA would take, and autocast computes in float32 what it does there."""

    def __init__(self, on: bool) -> None:
        super().__init__()
        self.on = on

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.on and func is F.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if self.on and getattr(func, "__name__", "") in IN_FP32 and torch.is_autocast_enabled("cpu"):
            args = [a.float() if isinstance(a, Tensor) and a.dtype == torch.bfloat16 else a for a in args]
        return func(*args, **kwargs)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Tensor:
    """``F.scaled_dot_product_attention`` on CUDA: flash for half precision without a mask, else memory-efficient.

    On some devices torch takes cuDNN's kernel in place of flash; it keeps tensors of the same sizes.
    """
    if torch.is_autocast_enabled("cpu"):
        q, k, v = (x.to(torch.get_autocast_dtype("cpu")) for x in (q, k, v))
        attn_mask = None if attn_mask is None else attn_mask.to(q.dtype)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if attn_mask is None and q.dtype != torch.float32:
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, scale=scale)[0]
    bias = None if attn_mask is None else attn_mask.expand(*q.shape[:3], k.shape[-2])
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    return efficient(q, k, v, bias, True, dropout_p, is_causal, scale=scale)[0]
