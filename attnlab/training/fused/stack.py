"""Several models of one configuration as one batched model."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.base import Model
from attnlab.tasks import Batch, Task
from attnlab.training.device import autocast
from attnlab.training.fused.streams import PerRun, RandomStream


class Stack:
    """Models of one configuration whose parameters and buffers lie in common tensors, with a dimension for the models in front.

    The tensors of each model become views of the common ones, so that it can still be evaluated, saved and updated by itself.

    Args:
        models: on the same device, in training mode; they differ in the values of their tensors alone.
        streams: the random numbers of each model.
        task: of the models.
        config: of any of them.
    """

    def __init__(self, models: Sequence[Model], streams: Sequence[RandomStream], *, task: Task, config: RunConfig) -> None:
        self._streams, self._precision = streams, config.train.precision
        self._loss = _Loss(models[0], task)
        self._parameters = _stack([dict(model.named_parameters()) for model in models])
        self._buffers = _stack([dict(model.named_buffers()) for model in models])
        self._own = [[*model.parameters()] for model in models]
        self._device = next(models[0].parameters()).device

    def backward(self, batches: Sequence[Batch]) -> Tensor:
        """Set the gradient of each model to that of its mean loss over the targets of its batch; return the losses (models,).

        Raises:
            UserError: the batches differ in shape.
        """
        names, tensors = _common_shape(batches)

        def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], tensors: list[Tensor], run: Tensor) -> Tensor:
            batch = replace(batches[0], items=None, **dict(zip(names, tensors, strict=True)))
            with PerRun(self._streams, run):
                return functional_call(self._loss, (parameters, buffers), (batch,))

        with autocast(self._device, self._precision):
            runs = torch.arange(len(batches), device=self._device)
            losses = vmap(loss, randomness="error")(self._parameters, self._buffers, tensors, runs)
        losses.sum().backward()
        for i, parameters in enumerate(self._own):
            for own, stacked in zip(parameters, self._parameters.values(), strict=True):
                own.grad = None if stacked.grad is None else stacked.grad[i]
        for stacked in self._parameters.values():
            stacked.grad = None
        return losses.detach()


class _Loss(nn.Module):
    """The loss of a model as a module, whose tensors ``functional_call`` replaces."""

    def __init__(self, model: Model, task: Task) -> None:
        super().__init__()
        self.model, self._task = model, task

    def forward(self, batch: Batch) -> Tensor:
        output, _ = self.model.forward_batch(batch, None)
        return self._task.loss(output, batch)


def _stack(tensors: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the tensors of all models as common ones, under their names in ``_Loss``, of which each model's become views."""
    stacked = {}
    for name, first in tensors[0].items():
        own = [tensors_of_model[name] for tensors_of_model in tensors]
        common = torch.stack([tensor.detach() for tensor in own])
        for tensor, view in zip(own, common.unbind(), strict=True):
            tensor.data = view
        stacked[f"model.{name}"] = common.requires_grad_(first.requires_grad)
    return stacked


def _common_shape(batches: Sequence[Batch]) -> tuple[list[str], list[Tensor]]:
    """Return the names of the tensors of a batch, and those of all batches with a dimension for the batches in front."""
    own = [{name: z for name, z in vars(batch).items() if isinstance(z, Tensor) and name != "items"} for batch in batches]
    shapes = [{name: tuple(z.shape) for name, z in tensors.items()} for tensors in own]
    for shape in shapes:
        if shape != shapes[0]:
            raise UserError(f"run.fuse: expected batches of the same shapes from all seeds, got {shapes[0]} and {shape}")
    return [*own[0]], [torch.stack([tensors[name] for tensors in own]) for name in own[0]]
