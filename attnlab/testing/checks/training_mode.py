"""Training mode: without dropout it computes what evaluation mode computes, and it changes nothing in the module."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.testing.checks.measure import format_number, max_abs_diff
from attnlab.testing.checks.result import Check, Failure
from attnlab.testing.checks.target import AttentionLayer, CheckTarget, at_drawn_sizes, seed_generators, trained_parameters

ADVICE = (
    "With dropout 0, forward() must compute the same function in both modes and change no buffer: look for self.training, a "
    "batch norm or other running statistics, and noise that is added in training."
)


def equal(target: CheckTarget) -> str:
    """With dropout 0, outputs and gradients in training mode equal those in evaluation mode, and buffers do not change."""
    worst = 0.0
    for role in target.roles:
        layer = target.build(role)
        before = copy.deepcopy(layer.state_dict())
        for name, inputs in _inputs(target, role):
            expected, got = (_results(target, layer.train(training), *inputs) for training in (False, True))
            for what, value in got.items():
                gap = max_abs_diff(value, expected[what])
                if not gap <= target.tolerance:
                    case = f"{role}, batch {len(inputs[0])}, length {inputs[0].shape[1]}{name}"
                    raise Failure(f"{case}: {what} differs between training and evaluation by {format_number(gap)}", ADVICE)
                worst = max(worst, gap)
        for name, value in layer.state_dict().items():
            if not torch.equal(value, before[name]):
                raise Failure(f"{role}: a forward pass in training mode changes {name.removeprefix('attention.')}", ADVICE)
    return f"outputs and gradients in both modes differ by {format_number(worst)}"


def _inputs(target: CheckTarget, role: str) -> Iterator[tuple[str, tuple[Tensor, Tensor | None, Tensor | None]]]:
    """Yield the name and the arguments of each kind of call: plain, with a mask and, if it is supported, with memory."""
    x, context = target.inputs(role)
    yield "", (x, context, None)
    mask = torch.ones((x if context is None else context).shape[:2], dtype=torch.bool, device=target.device)
    mask[0, 1:][-2:] = False
    yield ", masked", (x, context, mask)
    if target.has_memory(role):
        memory = target.noise(len(x), target.sizes.memory, seed=8)
        yield f", memory {memory.shape[1]}", (x, torch.cat([memory, x], dim=1), None)


def _results(
    target: CheckTarget, layer: AttentionLayer, x: Tensor, context: Tensor | None, mask: Tensor | None
) -> dict[str, Tensor]:
    """Return the output and the gradients with respect to x and every parameter, by name."""
    x = x.clone().requires_grad_()
    leaves = {
        "the gradient of x": x,
        **{f"the gradient of {name}": p for name, p in trained_parameters(layer.attention).items()},
    }
    seed_generators(0, target.device)
    y = layer(x, context, mask)
    weights = target.noise(*y.shape[:2], seed=9)
    gradients = torch.autograd.grad((y * weights).sum(), list(leaves.values()), allow_unused=True, materialize_grads=True)
    return {"the output": y.detach(), **dict(zip(leaves, gradients, strict=True))}


CHECKS = [Check("training mode", at_drawn_sizes(equal))]
