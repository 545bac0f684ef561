"""The initial values of GPT-2 (``model.initialization: gpt2``), instead of the constructors' values.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3, divide the weights of N residual layers
by sqrt(N). The standard deviation of 0.02 is that of the first GPT (Radford et al. 2018, section 4.1).

    linear layers, embeddings        N(0, 0.02)
    residual projections             N(0, 0.02 / sqrt(2 depth)): two sublayers of each block write to the residual stream
    biases                           0

The scale is the same in an encoder-decoder, although its decoder blocks have three sublayers.

Residual projections are the linear layers that a module names in ``residual_projections``: the variant's, and W_2 of the
feed-forward. A variant that declares none, such as ``no_wo`` and ``gru``, writes to the residual stream unscaled. Norms,
recurrent layers, convolutions and parameters that a class defines itself keep the values of their constructor, except those
that a module names in ``embedding_parameters``: learned positions, and the class token.

Departures from the released code: positions have the standard deviation of tokens, as in ``transformers``; there it is 0.01.
"""

from collections.abc import Iterator
from math import sqrt

import torch
from torch import Tensor, nn

from attnlab.errors import UserError
from attnlab.nn.layers import Projections

STD = 0.02


@torch.no_grad()
def initialize_as_gpt2(model: nn.Module, *, depth: int) -> None:
    """Draw the linear layers and embeddings of a model, in place.

    Args:
        model: the model, on any device.
        depth: its number of blocks.

    Raises:
        UserError: ``residual_projections`` of a module names something that is not one of its linear layers.
    """
    residual = {id(layer) for module in model.modules() for layer in _residual_projections(module)}
    drawn: set[int] = set()
    for module in model.modules():
        std = STD / sqrt(2 * depth) if id(module) in residual else STD
        for parameter in _drawn_parameters(module):
            if id(parameter) in drawn:  # tied embeddings
                continue
            drawn.add(id(parameter))
            # W_Q, W_K and W_V each by itself, as in the constructor of Projections.
            parts = parameter.split(module.widths) if isinstance(module, Projections) else [parameter]
            for part in parts:
                nn.init.normal_(part, std=std)
        if isinstance(module, nn.Linear | Projections) and module.bias is not None:
            nn.init.zeros_(module.bias)


def _drawn_parameters(module: nn.Module) -> Iterator[Tensor]:
    """Yield the weights of a linear layer or of embeddings."""
    if isinstance(module, nn.Linear | nn.Embedding | Projections):
        yield module.weight
    for name in getattr(module, "embedding_parameters", ()):
        if (parameter := getattr(module, name)) is not None:
            yield parameter


def _residual_projections(module: nn.Module) -> Iterator[nn.Linear]:
    """Yield the linear layers of a module that write to the residual stream."""
    for name in getattr(module, "residual_projections", None) or ():
        layer = getattr(module, name, None)
        if isinstance(layer, nn.Identity):  # a component has removed it
            continue
        if not isinstance(layer, nn.Linear):
            cls = type(module).__name__
            raise UserError(
                f"{cls}.residual_projections: expected names of linear layers, got {name!r}, a {type(layer).__name__}"
            )
        yield layer
