"""The memory with which a trained model decodes: the bytes that the caches of one sequence hold.

They are counted from the caches themselves (``attnlab.nn.cache``) after a forward pass, on the meta device or with fake
tensors: nothing is allocated, and the plan and the run agree.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from attnlab.config.run import RunConfig
from attnlab.models.base import Model, TaskShape
from attnlab.models.build import build
from attnlab.models.cache import key_value_cache, without_cache
from attnlab.models.residual import input_shapes
from attnlab.training.device import autocast

Name = tuple[int, str]  # number of a layer, attribute of its cache


def cache_figures(model: Model, config: RunConfig, task: TaskShape) -> dict[str, int]:
    """Return ``cache_bytes`` and ``state_bytes`` of one sequence of the task's length; {} for a model that does not decode.

    Of an encoder-decoder, source and target have the task's length. {} also if a variant declares no cache.

    Args:
        model: without contents, on the meta device; with mixed precision, its layers are built again as fake tensors, which
            autocast acts on.
        config: resolved.
        task: the task.
    """
    decoder = decoding_module(model)
    if decoder is None or without_cache(decoder):
        return {}
    if config.train.precision == "fp32":
        return _measure(model, decoder, config, task)
    with FakeTensorMode():
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
