"""Random numbers of several runs in one process: each run draws what it would draw alone.

``torch.func.vmap`` evaluates the models of all runs in one forward pass. Its own random functions draw either one tensor for
all of them or tensors from one generator, neither of which is what a run draws that trains alone. ``PerRun`` therefore leaves
the forward pass for each random function, calls it once for each run with that run's state of the generators, and returns the
results as one batched tensor. The same is done for attention kernels that vmap does not batch.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from attnlab.nn.blocked import blocked_attention
from attnlab.nn.dropout import dropout_factors
from attnlab.training.checkpoint import random_state, restore_random_state

SHAPES = (torch.rand, torch.randn, torch.randint)  # functions of no tensor


class RandomStream:
    """The state of the global random generators that belongs to one of several runs in a process.

    It begins with the present state.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._state = device, random_state(device)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the global generators be those of the run inside the block."""
        restore_random_state(self._state, self._device)
        try:
            yield
        finally:
            self._state = random_state(self._device)

    def copy(self) -> "RandomStream":
        """Return a stream that draws the same numbers and leaves this one as it is."""
        return copy(self)


class PerRun(TorchFunctionMode):
    """Within a function under ``vmap``: evaluate random functions, and attention that vmap does not batch, run by run.

    Under ``vmap(..., randomness="error")``, any other random function raises an error.

    Args:
        streams: of the runs.
        run: the number of the run, a tensor without dimensions that vmap batches.
    """

    def __init__(self, streams: Sequence[RandomStream], run: Tensor) -> None:
        super().__init__()
        self._streams, self._run = streams, run

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.dropout:
            return self._dropout(*args, **kwargs)
        if func is dropout_factors:
            return self._dropout_factors(*args, **kwargs)
        if func is F.linear:
            return func(*_as_autocast(*args, **kwargs))
        if func in SHAPES:
            return self._each(lambda: func(*args, **kwargs), [])
        if func is blocked_attention or (func is F.scaled_dot_product_attention and _is_not_batched(*args, **kwargs)):
            leaves, spec = tree_flatten((args, kwargs))
            tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

            def call(*own: Tensor) -> Tensor:
                own_args, own_kwargs = tree_unflatten(_replaced(leaves, tensors, own), spec)
                return func(*own_args, **own_kwargs)

            return self._each(call, [leaves[i] for i in tensors])
        return func(*args, **kwargs)

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        """Multiply x by factors 0 or 1 / (1 - p), those that ``F.dropout`` draws for a contiguous tensor of its shape."""
        if not training or p == 0 or inplace:
            return F.dropout(x, p, training, inplace)  # in place: vmap refuses it
        ones = torch.ones(x.shape, dtype=x.dtype, device=x.device)
        factors = self._each(lambda: F.dropout(ones, p), [])
        if x.is_cuda and p < 1:  # where the factor of bf16 numbers is not rounded to bf16
            return x * (factors != 0) * (1 / (1 - p))
        return x * factors

    def _dropout_factors(self, x: Tensor, p: float, *, generator: None = None) -> Tensor:
        like = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        return self._each(lambda: dropout_factors(like, p, generator=generator), [])

    def _each(self, call: Callable[..., Tensor], tensors: Sequence[Tensor]) -> Tensor:
        """Return the results of a function of tensors, evaluated for each run in its stream, as one batched tensor."""

        def evaluate(own_tensors: Sequence[Sequence[Tensor]]) -> Tensor:
            results = []
            for stream, own in zip(self._streams, own_tensors, strict=True):
                with stream.active():
                    results.append(call(*own))
            return torch.stack(results)

        return _OutsideVmap.apply(evaluate, self._run, *tensors)  # type: ignore[no-any-return]


def _as_autocast(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor | None, ...]:
    """Return the arguments of ``F.linear`` in the type of autocast.

    vmap adds the bias by itself, as it is, and a bias in fp32 makes the sum fp32. Alone, a run has the type of autocast there,
    and on CUDA dropout draws other numbers for other types.
    """
    if not torch.is_autocast_enabled(x.device.type):
        return x, weight, bias
    dtype = torch.get_autocast_dtype(x.device.type)
    return x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


def _replaced(leaves: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    replaced = list(leaves)
    for place, value in zip(places, values, strict=True):
        replaced[place] = value
    return replaced


def _is_not_batched(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, **_: Any) -> bool:
    """Return True where vmap does not batch SDPA: with dropout, and on a CPU, whose kernel has no rule for it."""
    return dropout_p > 0 or not query.is_cuda


class _OutsideVmap(torch.autograd.Function):
    """Evaluates a function outside the enclosing vmap: its arguments are lists with the tensors of each run."""

    @staticmethod
    def forward(evaluate: Any, *tensors: Tensor) -> Tensor:
        raise RuntimeError("expected to be called under vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save nothing: autograd records the operations of ``vmap``."""

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], evaluate: Any, run: Tensor, *tensors: Tensor) -> tuple[Tensor, int]:
        pairs = list(zip(tensors, in_dims[2:], strict=True))
        own = [[z if dim is None else z.select(dim, i) for z, dim in pairs] for i in range(info.batch_size)]
        return evaluate(own), 0
