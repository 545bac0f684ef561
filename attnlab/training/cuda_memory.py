"""Prediction of the peak CUDA memory of a training step, without a device.

One step of the real model is traced with fake tensors, which have sizes but no contents, under PyTorch's memory tracker.
It counts weights, optimizer state, gradients, tensors that autograd saves and temporary tensors, storage by storage,
rounded as CUDA's allocator rounds. Attention and autocast take the path that they take on CUDA.

The result corresponds to ``torch.cuda.max_memory_allocated`` (``gpu_peak_mib`` of a run) without the workspaces of kernels.
A device also holds the CUDA context and fragmented memory: expect about 1 GiB more. With ``train.compile``, a step needs less
than predicted, because fewer intermediate results are kept; so does a step with ``train.frozen``, because frozen layers have
no gradients and no optimizer state.
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
from attnlab.models.base import model_class
from attnlab.models.build import build
from attnlab.tasks import Batch, Task
from attnlab.training import costs
from attnlab.training.device import autocast
from attnlab.training.optim import CAUTIOUS, build_optimizer

CUBLAS_WORKSPACE = 32  # MiB that matrix products take from PyTorch's allocator on Hopper, and 8 on earlier devices
CPU = torch.device("cpu")  # device of the fake tensors: a build without CUDA cannot differentiate fake CUDA tensors
# Functions of attention models that autocast computes in float32 on CUDA and leaves in half precision on a CPU.
IN_FP32 = ("softmax", "log_softmax", "layer_norm", "rms_norm", "norm", "softplus", "exp", "log", "pow", "sum", "cumsum")


def cuda_peak_mib(config: RunConfig, task: Task) -> float:
    """Return the peak allocated memory of one training step in MiB, for one of ``machine.processes_per_run`` processes.

    Args:
        config: a resolved configuration. Its backend is traced as on CUDA, even if the configuration is for a CPU.
        task: the run's task.
    """
    moments = costs.extrapolate_depth(lambda config: trace(config, task), config)
    return max(moments.values()) / costs.MIB + CUBLAS_WORKSPACE


def trace(config: RunConfig, task: Task, *, on_cuda: bool = True) -> dict[str, int]:
    """Return the peak bytes of forward and backward (``backward``), and the bytes held before the update (``update``), with
    copies of parameters that it takes.

    The two grow differently with depth, so they are extrapolated separately.

    Args:
        on_cuda: trace the kernels and the autocast rules of CUDA; False traces the CPU's.
    """
    train_config = config.train
    built = costs.portable(config)
    if config.backend == "blocked":  # its dropout draws a random number, which fake tensors cannot, and saves nothing
        built = built.replace({"model.attention_dropout": 0.0})
    with FakeTensorMode():
        model = build(built, task).train()
        optimizer = build_optimizer(model, train_config)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        with _Scalars():
            optimizer.step()  # allocates the optimizer's state; later steps update it in place
        if train_config.gradient_accumulation == 1:  # otherwise the gradients of the previous micro-batch are still there
            optimizer.zero_grad()
        batch, memory = _batch(config, task)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *batch.tensors)
        tracker.track_external(*memory)
        with tracker, _OnCuda(on_cuda):
            with autocast(CPU, train_config.precision):
                logits, new_memory = model.forward_batch(batch, memory or None)
                loss = task.loss(logits, batch)
            del logits
            # Tensor.backward would leave the mode, but checkpointed blocks must be recomputed inside it.
            seed_gradient = torch.ones_like(loss)
            _engine_run_backward((loss,), (seed_gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)
        del new_memory
        peak, after = (_bytes(tracker, when) for when in ("peak", "current"))
        copies = sum(p.nbytes for group in optimizer.param_groups if group.get(CAUTIOUS) for p in group["params"])
    return {"backward": peak, "update": after + copies}


def _bytes(tracker: MemTracker, when: str) -> int:
    return sum(device["Total"] for device in tracker.get_tracker_snapshot(when).values())


def _batch(config: RunConfig, task: Task) -> tuple[Batch, list[Tensor]]:
    """Return one micro-batch of full length, and a full memory if the model has one."""
    rows, m, dim = costs.micro_batch(config), config.model.mem_len, config.model.dim
    batch = model_class(config, task).example_batch(task, rows, device=torch.device("cpu"), padded=True)
    return batch, [torch.zeros(rows, m, dim) for _ in range(config.model.depth)] if m else []


class _Scalars(TorchFunctionMode):
    """Let optimizers such as Adafactor read a value of a fake tensor, which has none: it is 1."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return 1.0 if func is Tensor.item else func(*args, **(kwargs or {}))


class _OnCuda(TorchFunctionMode):
    """Make attention use the kernel of CUDA, and autocast use float32 for the same functions as on CUDA."""

    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self.enabled = enabled

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.enabled and func is F.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if self.enabled and getattr(func, "__name__", "") in IN_FP32 and torch.is_autocast_enabled("cpu"):
            args = [a.float() if isinstance(a, Tensor) and a.dtype in (torch.bfloat16, torch.float16) else a for a in args]
        if self.enabled and func is F.rms_norm:
            return _rms_norm(*args, **kwargs)
        return func(*args, **kwargs)


def _rms_norm(x: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """``F.rms_norm`` on CUDA: one kernel, which saves its input and a number for each position, about as a layer norm does.

    On a CPU it consists of several operations, which also save the normalized input.
    """
    return F.layer_norm(x, normalized_shape, weight, None, 1e-5 if eps is None else eps)


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

    On some devices torch uses cuDNN's kernel instead of flash; it saves tensors of the same sizes.
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
