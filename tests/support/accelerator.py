"""Train models on a fake accelerator: tensors with a device and a shape but no values, so that mixing devices is an error.

PyTorch has one fake device of this kind in a process, which other tests would see: run ``python -m tests.support.accelerator``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration

from attnlab.config.run import RunConfig
from attnlab.config.types import WITH
from attnlab.errors import UserError
from attnlab.models.base import model_class
from attnlab.models.build import build
from attnlab.registry import COMPONENTS, POSITIONS, VARIANTS
from attnlab.tasks import Task
from attnlab.tasks.pydocs import PyDocs
from attnlab.variants.dense import Dense
from tests.components.test_backends import OPTIONS
from tests.support.small_runs import Reviews, tiny

NAME = "fake"
AXES: tuple[dict[str, Any], ...] = (
    *({"model__norm": norm} for norm in ("post", "sandwich", "after")),
    *({"model__norm_type": kind} for kind in ("rms", "dyt")),
    *({"model__residual": kind} for kind in ("x0", "attention_residuals", "hyper", "none")),
    *({"model__feed_forward": kind} for kind in ("relu2", "swiglu")),
    {"position": "relative", "model__mem_len": 8},
)
Case = tuple[str, dict[str, Any], Task]


class OnCpu(Dense):
    """A mistake that must be found: a tensor on the CPU, whatever the device of the input."""

    def forward(self, x: Tensor, **context: Any) -> Tensor:
        return super().forward(x, **context) + torch.zeros(x.shape[-1])


class _Module(backend_registration._DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


def cases() -> Iterator[Case]:
    """Yield every variant in both roles, every position scheme, every component, and the axes of the model."""
    text, reviews = PyDocs(length=24), Reviews()
    for variant in VARIANTS.names():
        cls = VARIANTS.get(variant)
        if "causal" in cls.roles:
            yield variant, {"variant": variant, "position": cls.default_position}, text
        if "bidirectional" in cls.roles:
            yield f"{variant}, reviews", {"variant": variant, "position": "none"}, reviews
    for position in POSITIONS.names():
        yield f"dense, {position}", {"variant": "dense", "position": position}, text
    for name in COMPONENTS.names():
        component = {"name": name, **OPTIONS.get(name, {})}
        yield f"dense with {name}", {"variant": {"name": "dense", WITH: [component]}}, text
    for changes in AXES:
        yield str(changes), changes, text
    yield OnCpu.__name__, {"variant": f"{OnCpu.__module__}:OnCpu"}, text


def train_step(config: RunConfig, task: Task) -> None:
    """Take forward and backward of a batch on the fake device.

    Raises:
        RuntimeError: tensors of two devices meet.
        AssertionError: a gradient lies on another device.
    """
    with FakeTensorMode():
        device = torch.device(NAME)
        model = build(config, task).train()
        _move(model, device)
        rows, dim = config.train.batch_size, config.model.dim
        batch = model_class(config, task).example_batch(task, rows, device=device, padded=True)
        memory = [torch.zeros(rows, config.model.mem_len, dim, device=device)] * config.model.depth
        logits, _ = model.forward_batch(batch, memory if config.model.mem_len else None)
        task.loss(logits, batch).backward()
        elsewhere = [name for name, p in model.named_parameters() if p.grad is not None and p.grad.device != p.device]
        assert not elsewhere, f"gradients on another device: {', '.join(elsewhere)}"


def _move(model: nn.Module, device: torch.device) -> None:
    """Move a model as ``Module.to`` does, which cannot move fake tensors; parameters that modules share stay shared."""
    moved: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, p in module._parameters.items():
            if p is not None:
                module._parameters[name] = moved.setdefault(
                    id(p), nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device=device))
                )
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=device)


def main() -> None:
    """Print as JSON the number of cases that trained, and the error of each other case."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    trained, errors = 0, {}
    for name, changes, task in cases():
        try:
            train_step(tiny(**changes), task)
            trained += 1
        except UserError:
            continue  # the plan refuses it
        except Exception as error:  # noqa: BLE001
            errors[name] = f"{type(error).__name__}: {error}"[:300]
    json.dump({"trained": trained, "errors": errors}, sys.stdout)


if __name__ == "__main__":
    main()
