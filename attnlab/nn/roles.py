"""The roles of parameters: they decide which parameters decay, and which an optimizer of matrices updates as a whole.

``matrix`` is the weight of a linear map, ``embedding`` a table of learned vectors of tokens or positions. Every other parameter
is ``other``: a gain, a bias, a class token, a temperature, the kernel of a depthwise convolution, a table of biases. A role is
stated where the parameter is made, and does not depend on its shape. PyTorch's layers state theirs by their type. A module with
matrices or embeddings of its own names them in a class attribute:

    parameter_roles = {"weight": "matrix", "table": "embedding"}

Names may have dots: ``convolve.weight`` is the parameter of a submodule.
"""

from collections.abc import Mapping
from typing import Literal

from torch import nn

Role = Literal["matrix", "embedding", "other"]


def parameter_roles(model: nn.Module) -> dict[str, Role]:
    """Return the role of each parameter by its name. A tensor with several names has the role of the first."""
    stated: dict[str, Role] = {}
    for prefix, module in model.named_modules():
        stated |= {f"{prefix}.{name}" if prefix else name: role for name, role in _stated_roles(module).items()}
    return {name: stated.get(name, "other") for name, _ in model.named_parameters()}


def _stated_roles(module: nn.Module) -> Mapping[str, Role]:
    if isinstance(module, nn.Linear):
        return {"weight": "matrix"}
    if isinstance(module, nn.Embedding):
        return {"weight": "embedding"}
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return {name: "matrix" for name, _ in module.named_parameters(recurse=False) if "weight" in name}
    return getattr(module, "parameter_roles", {})
