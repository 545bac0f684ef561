"""The cost of a configuration: parameters, FLOPs and memory.

Every figure is defined so that variants can be compared by it.

The memory with which a trained model decodes is the bytes that the caches of one sequence hold. They are counted from the
caches themselves (``attnlab.nn.cache``) after a forward pass, on the meta device or with fake tensors: nothing is allocated,
and the plan and the run agree. The arithmetic of decoding is counted without allocating the model, too.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from math import prod
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count, shape_wrapper

from attnlab._util.machine import peak_memory
from attnlab.config.run import EvaluateConfig, RunConfig, TrainConfig
from attnlab.models.base import Model, TaskShape, model_class
from attnlab.models.build import build
from attnlab.models.decoding import key_value_cache, without_cache
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.residual import input_shapes
from attnlab.training.device import autocast
from attnlab.training.optim import USES, parameter_uses
from attnlab.variants import Variant

MIB = 2**20
T = TypeVar("T")
# Fields of ``train`` that decide the time and the memory of a step.
STEP_FIELDS = ("batch_size", "gradient_accumulation", "precision", "activation_checkpointing", "optimizer")
MAX_ALLOCATED = 2**28  # parameters of a model that may be allocated only to count its FLOPs
MAX_COMPUTED, MAX_LENGTH = 2**23, 512  # parameters and tokens of a model that computes a row to count its FLOPs
Name = tuple[int, str]  # number of a layer, attribute of its cache


def parameters(model: nn.Module) -> dict[str, int]:
    """Return ``parameters`` of the model, and ``attention_parameters`` of its variants, including their position schemes."""
    attention = {p for m in model.modules() if isinstance(m, Variant) for p in m.parameters()}
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "attention_parameters": sum(p.numel() for p in attention),
    }


def parameters_by_use(model: nn.Module) -> dict[str, int]:
    """Return the number of parameters by their use in optimizers, for example ``hidden_parameters``."""
    uses = parameter_uses(model)
    counts: dict[str, int] = dict.fromkeys(USES, 0)
    for name, p in model.named_parameters():
        counts[uses[name]] += p.numel()
    return {f"{use}_parameters": number for use, number in counts.items()}


def plan_figures(config: RunConfig, task: TaskShape) -> dict[str, int]:
    """Return the parameters, ``flops_per_token`` and the cache of a resolved configuration, without allocating the model.

    ``flops_per_token`` is 2 x multiply-accumulate operations of one forward pass over a row of full length, divided by its
    tokens. It counts what the configured backend computes, including masked keys. A training step costs about three times
    as much. ``cache_bytes`` and ``state_bytes`` come from ``attnlab.training.costs``, for models that decode.
    """
    figures = extrapolate_depth(lambda config: _figures(config, task), config)
    flops = figures.pop("flops")
    row = model_class(config, task).example_batch(task, 1, device=torch.device("cpu"))
    return figures | {"flops_per_token": flops // row.tokens}


def plan_parameters(config: RunConfig, task: TaskShape) -> int:
    """Return ``parameters`` alone, which needs no forward pass."""
    return extrapolate_depth(lambda config: parameters(_meta(config, task)), config)["parameters"]


def extrapolate_depth(figures: Callable[[RunConfig], dict[str, int]], config: RunConfig) -> dict[str, int]:
    """Extrapolate ``figures`` to the configured depth from models with fewer blocks.

    All blocks are alike, or the pattern of ``model.layers`` repeats: one model has its last repetition and the blocks left
    over, the other has one repetition more. With ``attention_residuals``, a block reads the outputs of all before it, so
    that figures grow as the square of the depth, and a third model is needed.
    """
    depth, period = config.model.depth, len(config.model.layers.pattern) if config.model.layers else 1

    def at(depth: int) -> dict[str, int]:
        return figures(config.model_copy(update={"model": config.model.model_copy(update={"depth": depth})}))

    first = period + depth % period
    if depth <= first:
        return at(depth)
    shallow, deeper = at(first), at(first + period)
    n = (depth - first) // period
    grown = {name: shallow[name] + n * (deeper[name] - shallow[name]) for name in shallow}
    if config.model.residual != "attention_residuals" or n < 2:
        return grown
    third = at(first + 2 * period)
    return {name: grown[name] + n * (n - 1) // 2 * (third[name] - 2 * deeper[name] + shallow[name]) for name in grown}


def _meta(config: RunConfig, task: TaskShape) -> Model:
    with torch.device("meta"):
        return build(config, task).eval()  # dropout needs no FLOPs, and ``blocked`` has no generator for meta tensors


def portable(config: RunConfig) -> RunConfig:
    """Return the configuration with ``sdpa`` instead of ``xformers``, which runs on CUDA only."""
    return config.model_copy(update={"backend": "sdpa"}) if config.backend == "xformers" else config


def _figures(config: RunConfig, task: TaskShape) -> dict[str, int]:
    """Return the parameters, and the FLOPs and the cache of one sequence."""
    config = portable(config)
    model = build(config, task, reproducible=False).eval() if _is_small(config, task) else _meta(config, task)
    counts = parameters(model) | parameters_by_use(model)
    try:
        return counts | {"flops": _flops(model, config, task)} | cache_figures(model, config, task)
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error).lower() or counts["parameters"] > MAX_ALLOCATED:
            raise  # for example, a size that exceeds the limits of a tensor
        model = build(config, task, reproducible=False).eval()  # shapes that depend on values
        return counts | {"flops": _flops(model, config, task)} | cache_figures(model, config, task)


def _is_small(config: RunConfig, task: TaskShape) -> bool:
    """Return True for a model that computes its figures on the CPU in less time than the meta device takes to derive shapes."""
    model = config.model
    weights = 16 * model.dim**2 * model.depth + task.vocabulary * model.dim  # about, of a transformer
    return weights <= MAX_COMPUTED and task.length + model.mem_len <= MAX_LENGTH


def fixed_costs(model: Model, config: RunConfig, task: TaskShape, figures: dict[str, int] | None = None) -> dict[str, float]:
    """Return the costs of a run that are known before its first step.

    Args:
        figures: the ``plan_figures`` of the configuration; None traces them.
    """
    figures = plan_figures(config, task) if figures is None else figures
    recorded = {name: figures[name] for name in figures if name.removesuffix("_parameters") not in USES}
    return {**recorded, "saved_mib": saved_mib(model, config, task)}


def _flops(model: Model, config: RunConfig, task: TaskShape) -> int:
    return count_flops(lambda: _forward(model, config, task, rows=1))


def count_flops(run: Callable[[], object]) -> int:
    """Return 2 x multiply-accumulate operations of the matrix products and convolutions in ``run``, without gradients.

    Triangular systems count as the products that solve them.
    """
    formulas = {
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
        torch.ops.aten.mkldnn_rnn_layer: _layer_flops,
        torch.ops.aten._cudnn_rnn: _rnn_flops,
        torch.ops.aten.linalg_solve_triangular: _solve_flops,
    }
    with torch.no_grad(), _FlopCounter({name: shape_wrapper(formula) for name, formula in formulas.items()}) as counter:
        run()
    return counter.total


class _FlopCounter(TorchDispatchMode):
    """Add up the FLOPs of operators, like torch's own counter, which takes twice the time because it knows each module's."""

    def __init__(self, formulas: dict[Any, Callable[..., int]]) -> None:
        super().__init__()
        self._formulas, self.total = {**flop_registry, **formulas}, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # PyTorch would import torch._dynamo, which takes seconds, to exclude this mode from compilation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, formula = kwargs or {}, self._formulas.get(func._overloadpacket)
        if formula is None and torch.is_inference_mode_enabled():  # there, nothing else takes an operator apart
            with self:
                if (result := func.decompose(*args, **kwargs)) is not NotImplemented:
                    return result
        result = func(*args, **kwargs)
        self.total += formula(*args, **kwargs, out_val=result) if formula else 0
        return result


# FLOPs of fused operators that torch's counter does not know, from the shapes of their arguments.


def _attention_flops(q: list[int], k: list[int], v: list[int], *_: object, **__: object) -> int:
    return sdpa_flop_count(q, k, v)


# Recurrent layers of oneDNN and cuDNN: the input is (t, b, n), and every matrix is applied once per position.


def _layer_flops(x: list[int], *weights_and_rest: Any, **_: object) -> int:
    return 2 * x[0] * x[1] * sum(prod(w) for w in weights_and_rest[:2])


def _rnn_flops(x: list[int], weights: list[list[int]], *_: object, **__: object) -> int:
    return 2 * x[0] * x[1] * sum(prod(w) for w in weights if len(w) == 2)


def _solve_flops(matrix: list[int], right_side: list[int], *_: object, **__: object) -> int:
    return prod(right_side) * matrix[-1]  # the half of the matrix that is not zero


def saved_mib(model: Model, config: RunConfig, task: TaskShape) -> float:
    """Return the MiB that one micro-batch of full length saves for the backward pass, without parameters.

    The storages that the graph of the output holds are summed, so the figure is exact, and the same on every device but for
    RMSNorm: its kernel for CUDA saves less than its operations on a CPU.
    """
    device = next(model.parameters()).device
    rows = micro_batch(config)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), autocast(device, config.train.precision):
        _, size = saved_bytes(lambda: _forward(model.train(), config, task, rows=rows), model)
    return size / MIB


def saved_bytes(forward: Callable[[], T], module: nn.Module) -> tuple[T, int]:
    """Run ``forward``; return its result and the bytes of all storages that the graph of the result saves for backward.

    Args:
        forward: the computation.
        module: the module with parameters that are not counted.
    """
    parameters = {p.untyped_storage()._cdata for p in module.parameters()}
    saved: WeakSet[_Saved] = WeakSet()

    def pack(tensor: Tensor) -> _Saved:
        saved.add(packed := _Saved(tensor.detach()))  # an output would keep its own graph alive
        return packed

    collects = gc.isenabled()
    gc.disable()  # so that all objects of the pass remain in the youngest generation, which is soon collected
    try:
        with saved_tensors_hooks(pack, lambda packed: packed.tensor):
            result = forward()
        gc.collect(0)  # graphs in reference cycles that the result does not need
    finally:
        if collects:
            gc.enable()
    storages = {storage._cdata: storage.nbytes() for storage in (packed.tensor.untyped_storage() for packed in saved)}
    return result, sum(size for address, size in storages.items() if address not in parameters)


class _Saved:
    """A tensor that a graph saves. It lives as long as the graph: an address that is reused meanwhile is not counted twice."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def one_step(config: RunConfig) -> RunConfig:
    """Return the configuration without the fields that affect neither the time nor the memory of a training step."""
    train = TrainConfig(steps=1, **{name: getattr(config.train, name) for name in STEP_FIELDS})
    return config.model_copy(update={"train": train, "evaluate": EvaluateConfig(), "init": None, "seed": 0})


def micro_batch(config: RunConfig) -> int:
    """Return the rows that one process computes at a time."""
    return max(1, config.train.batch_size // (config.train.gradient_accumulation * config.machine.processes_per_run))


def _forward(model: Model, config: RunConfig, task: TaskShape, *, rows: int) -> Any:
    """Run one forward pass over a batch of full length, with a full memory if the model has one."""
    weight = next(model.parameters())
    batch = model.example_batch(task, rows, device=weight.device)
    return model.forward_batch(batch, full_memory(config, rows, like=weight))[0]


def peaks(device: torch.device) -> dict[str, float]:
    """Return the peak memory in MiB since the start of the run: of the process, and of CUDA's allocator."""
    peak_mib = {"host_peak_mib": peak_memory() / MIB}
    if device.type == "cuda":
        peak_mib["gpu_peak_mib"] = torch.cuda.max_memory_allocated(device) / MIB
        peak_mib["gpu_reserved_mib"] = torch.cuda.max_memory_reserved(device) / MIB
    return peak_mib


def cache_figures(model: Model, config: RunConfig, task: TaskShape) -> dict[str, int]:
    """Return ``cache_bytes`` and ``state_bytes`` of one sequence of the task's length; {} for a model that does not decode.

    Of an encoder-decoder, source and target have the task's length. {} also if a variant declares no cache.

    Args:
        model: in ``eval`` mode; if it is on the meta device and precision is mixed, its layers are built again as fake tensors,
            which autocast acts on.
        config: resolved.
        task: the task.
    """
    decoder = decoding_module(model)
    if decoder is None or without_cache(decoder):
        return {}
    fakes = config.train.precision != "fp32" and next(model.parameters()).is_meta
    with FakeTensorMode() if fakes else nullcontext():
        if fakes:
            model = build(config, task).eval()
            decoder = decoding_module(model)
            assert decoder is not None
        with autocast(torch.device("cpu"), config.train.precision):
            return _measure(model, decoder, config, task)


def decoding_module(model: nn.Module) -> nn.Module | None:
    """Return the part of a model that decodes token by token: a language model, or the decoder of an encoder-decoder."""
    kind = getattr(model, "kind", "")
    if kind == "encoder_decoder":
        return model.decoder  # type: ignore[return-value]
    return model if kind == "language_model" else None


def _measure(model: Model, decoder: nn.Module, config: RunConfig, task: TaskShape) -> dict[str, int]:
    weight = next(model.parameters())
    whole = model.example_batch(task, 1, device=weight.device)

    def run(length: int) -> None:
        names = ("inputs", "targets", "source")
        batch = replace(whole, **{name: z[:, :length] for name in names if (z := getattr(whole, name)) is not None})
        model.forward_batch(batch, full_memory(config, 1, like=weight))

    cache, state = cached_bytes(decoder, run, length=task.length)
    return {"cache_bytes": cache, "state_bytes": state}


def full_memory(config: RunConfig, rows: int, *, like: Tensor) -> list[Tensor] | None:
    """Return a memory of zeros (rows, mem_len, ...) for each block, of the type and device of ``like``; None without memory."""
    m = config.model.mem_len
    return [like.new_zeros(rows, m, *shape) for shape in input_shapes(config.model)] if m else None


def cached_bytes(module: nn.Module, run: Callable[[int], object], *, length: int) -> tuple[int, int]:
    """Return the bytes that the caches of ``module`` hold after ``length`` positions.

    A state is a tensor of a cache that declares itself ``bounded``, for example of a recurrent layer or a short convolution,
    and one that is as large after one position as after ``length``. The others grow with the sequence, or up to the length of
    a window: they are keys and values.

    Args:
        module: its variants all support a cache.
        run: processes so many positions with ``module``, from the first on.
        length: at least 1; with 1, nothing can be seen to grow, and what is not declared counts as keys and values.

    Returns:
        The bytes of keys and values, and the bytes of states.
    """
    growing, bounded = _sizes(module, run, length)
    first = _sizes(module, run, 1)[0] if length > 1 else {}
    constant = sum(size for name, size in growing.items() if first.get(name) == size)
    return sum(growing.values()) - constant, sum(bounded.values()) + constant


def _sizes(module: nn.Module, run: Callable[[int], object], length: int) -> tuple[dict[Name, int], dict[Name, int]]:
    """Return the bytes of each tensor after ``length`` positions: of caches that may grow, and of bounded ones."""
    with torch.no_grad(), key_value_cache(module) as caches:
        run(length)
        sizes = {name: _nbytes(tensor) for name, tensor in caches.tensors().items()}
        bounded = {name: size for name, size in sizes.items() if caches.is_bounded(name)}
        return {name: size for name, size in sizes.items() if name not in bounded}, bounded


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def decoding_flops(config: RunConfig, task: TaskShape, *, tokens: int, beam: int = 1) -> int:
    """Return the FLOPs with which ``attnlab.models.decoding.decode`` decodes one row, as ``count_flops`` counts them.

    Args:
        config: resolved.
        task: the task.
        tokens: number of tokens of the source, and of the hypothesis that is decoded.
        beam: number of hypotheses; all are as long.
    """
    return extrapolate_depth(lambda config: {"flops": _decoding_flops(config, task, tokens, beam)}, portable(config))["flops"]


def _decoding_flops(config: RunConfig, task: TaskShape, n: int, beam: int) -> int:
    with torch.device("meta"):
        model = build(config, task).eval()
        source = torch.ones(1, n, dtype=torch.long)
    assert isinstance(model, EncoderDecoder)
    with torch.no_grad():
        encoded = model.encode(source)
        steps = _recomputed(model, encoded, n) if without_cache(model.decoder) else _cached(model, encoded, n)
        return count_flops(lambda: model.encode(source)) + beam * steps


def _points(first: int, n: int) -> list[int]:
    """Return up to three lengths from ``first`` to n, which determine a cost that is quadratic in the length."""
    return sorted({first, (first + n) // 2, n})


def _sum(costs: dict[int, int], n: int) -> int:
    """Return the sum of a quadratic cost over all lengths, from the first of ``costs`` to n."""
    lengths = [*costs]
    coefficients = np.polyfit(lengths, list(costs.values()), len(lengths) - 1)
    return round(float(np.polyval(coefficients, np.arange(lengths[0], n + 1)).sum()))


def _recomputed(model: EncoderDecoder, encoded: torch.Tensor, n: int) -> int:
    """Return the FLOPs of the decoder without a cache: of all tokens so far, for each of n tokens."""
    tokens = encoded.new_ones(1, n, dtype=torch.long)
    return _sum({t: count_flops(lambda t=t: _step(model, tokens[:, :t], encoded)) for t in _points(1, n)}, n)


def _cached(model: EncoderDecoder, encoded: torch.Tensor, n: int) -> int:
    """Return the FLOPs of the decoder over a cache: of one token for each of n; the first also reads the source."""
    tokens, read = encoded.new_ones(1, n, dtype=torch.long), encoded[:, :0]
    costs: dict[int, int] = {}
    with key_value_cache(model.decoder):
        first = count_flops(lambda: _step(model, tokens[:, :1], encoded))
        filled = 1
        for t in _points(2, n) if n > 1 else []:
            if filled < t - 1:
                model.decode(tokens[:, filled : t - 1], read, start=filled)
            costs[t] = count_flops(lambda t=t: _step(model, tokens[:, t - 1 : t], read, start=t - 1))
            filled = t
    return first + (_sum(costs, n) if costs else 0)


def _step(model: EncoderDecoder, tokens: torch.Tensor, encoded: torch.Tensor, *, start: int = 0) -> torch.Tensor:
    """Return the logits after the last token, as decoding computes them."""
    return model.head(model.decode(tokens, encoded, start=start)[:, -1])
