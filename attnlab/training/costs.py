"""What a configuration costs: parameters, arithmetic, memory.

Every figure is defined so that two variants can be compared by it; what it takes of time is in ``clock``.
"""

from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from attnlab._util.memory import peak_memory
from attnlab.config.run import RunConfig
from attnlab.models.backbone import TaskShape
from attnlab.models.build import build
from attnlab.models.classifier import Classifier
from attnlab.models.language_model import LanguageModel
from attnlab.training.device import autocast
from attnlab.variants import Variant

MIB = 2**20
T = TypeVar("T")
MOST_REAL = 2**28  # parameters of a model that is allocated for nothing but its FLOPs


def parameters(model: nn.Module) -> dict[str, int]:
    """``parameters`` of the whole model, and ``attention_parameters``: the variants' own, position schemes in them included."""
    attention = {p for m in model.modules() if isinstance(m, Variant) for p in m.parameters()}
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "attention_parameters": sum(p.numel() for p in attention),
    }


def plan_figures(config: RunConfig, task: TaskShape) -> dict[str, int]:
    """Parameters and ``flops_per_token`` of a resolved configuration, without allocating the model.

    ``flops_per_token`` is 2 x multiply-accumulate of one forward pass over a full-length sequence, divided by its length;
    it counts what the configured backend computes, hidden keys included. A training step costs about three times as much.
    """
    figures = of_all_blocks(lambda config: _figures(config, task), config)
    flops = figures.pop("flops")
    return figures | {"flops_per_token": flops // task.length}


def plan_parameters(config: RunConfig, task: TaskShape) -> int:
    """``parameters`` alone, which needs no forward pass."""
    return of_all_blocks(lambda config: parameters(_meta(config, task)), config)["parameters"]


def of_all_blocks(figures: Callable[[RunConfig], dict[str, int]], config: RunConfig) -> dict[str, int]:
    """All blocks are alike, so that one and two of them tell what any number costs."""

    def at(depth: int) -> dict[str, int]:
        return figures(config.model_copy(update={"model": config.model.model_copy(update={"depth": depth})}))

    one = at(1)
    two = at(2) if config.model.depth > 1 else one
    return {name: one[name] + (config.model.depth - 1) * (two[name] - one[name]) for name in one}


def _meta(config: RunConfig, task: TaskShape) -> LanguageModel | Classifier:
    with torch.device("meta"):
        return build(config, task).eval()  # dropout costs no products, and ``blocked`` has no generator of meta tensors for it


def anywhere(config: RunConfig) -> RunConfig:
    """The same computation, without kernels that run on a device alone: ``sdpa`` in place of ``xformers``."""
    return config.model_copy(update={"backend": "sdpa"}) if config.backend == "xformers" else config


def _figures(config: RunConfig, task: TaskShape) -> dict[str, int]:
    """The parameters and the FLOPs of one sequence."""
    config = anywhere(config)
    model = _meta(config, task)
    counts = parameters(model)
    try:
        return counts | {"flops": _flops(model, config, task)}
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error).lower() or counts["parameters"] > MOST_REAL:
            raise  # a size that no tensor can have, say
        return counts | {"flops": _flops(build(config, task).eval(), config, task)}  # its shapes depend on values


def fixed_costs(model: LanguageModel | Classifier, config: RunConfig, task: TaskShape) -> dict[str, float]:
    """What is known of a run's cost before its first step."""
    return {**plan_figures(config, task), "saved_mib": saved_mib(model, config, task)}


def _flops(model: LanguageModel | Classifier, config: RunConfig, task: TaskShape) -> int:
    return count_flops(lambda: _forward(model, config, task, rows=1))


def count_flops(run: Callable[[], object]) -> int:
    """2 x multiply-accumulate of the matrix products and convolutions of ``run``, without gradients."""
    unknown = {
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _of_attention,
        torch.ops.aten.mkldnn_rnn_layer: _of_one_layer,
        torch.ops.aten._cudnn_rnn: _of_all_layers,
    }
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=unknown) as counter:
        run()
    return counter.get_total_flops()


# What is computed in one piece that torch's counter does not know; shapes come in.


def _of_attention(q: list[int], k: list[int], v: list[int], *_: object, **__: object) -> int:
    return sdpa_flop_count(q, k, v)


# Recurrent layers of oneDNN and cuDNN: (t, b, n) of the input, and every matrix is used once a position.


def _of_one_layer(x: list[int], *weights_and_rest: Any, **_: object) -> int:
    return 2 * x[0] * x[1] * sum(prod(w) for w in weights_and_rest[:2])


def _of_all_layers(x: list[int], weights: list[list[int]], *_: object, **__: object) -> int:
    return 2 * x[0] * x[1] * sum(prod(w) for w in weights if len(w) == 2)


def saved_mib(model: LanguageModel | Classifier, config: RunConfig, task: TaskShape) -> float:
    """MiB that one micro-batch of full length keeps for the backward pass, parameters not counted.

    Counted storage by storage as autograd saves them, hence exact and the same on every device.
    """
    device = next(model.parameters()).device
    rows = micro_batch(config)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), autocast(device, config.train.precision):
        _, size = saved_bytes(lambda: _forward(model.train(), config, task, rows=rows), model)
    return size / MIB


def saved_bytes(forward: Callable[[], T], module: nn.Module) -> tuple[T, int]:
    """What ``forward`` returns, and the bytes that autograd keeps meanwhile for its backward pass, storage by storage.

    Args:
        module: whose parameters are not counted.
    """
    parameters = {p.untyped_storage()._cdata for p in module.parameters()}
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in parameters:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    return result, sum(sizes.values())


def micro_batch(config: RunConfig) -> int:
    """Rows that one process computes at a time."""
    return max(1, config.train.batch_size // (config.train.gradient_accumulation * config.machine.processes_per_run))


def _forward(model: LanguageModel | Classifier, config: RunConfig, task: TaskShape, *, rows: int) -> Tensor:
    """One forward pass over a made-up batch at the full length, with a full memory where the model keeps one."""
    weight = next(model.parameters())
    tokens = torch.ones(rows, task.length, dtype=torch.long, device=weight.device)
    if isinstance(model, Classifier):
        return model(tokens)
    m, dim = config.model.mem_len, config.model.dim
    memory = [weight.new_zeros(rows, m, dim) for _ in range(config.model.depth)] if m else None
    return model(tokens, memory)[0]


def peaks(device: torch.device) -> dict[str, float]:
    """Largest memory use since the run's start: of the process, and on CUDA what was allocated and reserved."""
    found = {"host_peak_mib": peak_memory() / MIB}
    if device.type == "cuda":
        found["gpu_peak_mib"] = torch.cuda.max_memory_allocated(device) / MIB
        found["gpu_reserved_mib"] = torch.cuda.max_memory_reserved(device) / MIB
    return found
