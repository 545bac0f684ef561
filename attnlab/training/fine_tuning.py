"""Fine-tuning: layers that keep their initial values, and a learning rate for each layer (Howard & Ruder 2018, section 3.2).

The layers of a model, from below: 0 are the embeddings, with positions, segments and a class token; 1 to n are its blocks;
n + 1 are the output layers, with the norm after the last block. In a model of several stacks, such as an encoder-decoder,
blocks of one number belong to one layer.

Howard & Ruder train layer l at the rate eta_l = eta_(l+1) / 2.6, and the last layer at the rate of the run:

    eta_l = lr * decay^(n + 1 - l),        decay = train.layer_lr_decay
"""

import re

from torch import nn

from attnlab.config.run import TrainConfig

_BLOCK = re.compile(r"(?:^|\.)(?:blocks|layers)\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)(?:\w*embeddings?\w*|position|class_token)(?:\.|$)")


def layer_numbers(model: nn.Module) -> dict[str, int]:
    """Return the number of the layer of each parameter by its name, as described above.

    A tensor with several names, such as a tied embedding, has the first of them. A parameter belongs to a block if its name
    has a part ``blocks.NUMBER`` or ``layers.NUMBER``, to the embeddings if a part is named after an embedding, a position
    scheme or a class token, and otherwise to the output layers.
    """
    names = [name for name, _ in model.named_parameters()]
    blocks = {name: int(match[1]) for name in names if (match := _BLOCK.search(name))}
    last = max(blocks.values(), default=-1) + 2
    return {name: blocks[name] + 1 if name in blocks else 0 if _EMBEDDING.search(name) else last for name in names}


def learning_rate_scales(model: nn.Module, config: TrainConfig) -> list[tuple[nn.Parameter, float]]:
    """Return every parameter with the factor of its learning rate."""
    numbers = layer_numbers(model)
    last = max(numbers.values(), default=0)
    return [(p, config.layer_lr_decay ** (last - numbers[name])) for name, p in model.named_parameters()]


def freeze(model: nn.Module, config: TrainConfig) -> None:
    """Make the layers that ``train.frozen`` names constant: they get no gradient. Dropout acts in them as in others."""
    if config.frozen is None:
        return
    numbers = layer_numbers(model)
    blocks = max(numbers.values(), default=0) - 1
    frozen = blocks if config.frozen == "all" else min(config.frozen, blocks)
    for name, parameter in model.named_parameters():
        if numbers[name] <= frozen:
            parameter.requires_grad_(False)
