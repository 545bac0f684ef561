"""The optimizer and the learning-rate schedule.

In fine-tuning, layers keep their initial values or have a learning rate each (Howard & Ruder 2018, section 3.2). The layers of
a model, from below: 0 are the embeddings, with positions, segments and a class token; 1 to n are its blocks; n + 1 are the
output layers, with the norm after the last block. In a model of several stacks, for example an encoder-decoder, blocks of one
number belong to one layer.

Howard & Ruder train layer l at the rate eta_l = eta_(l+1) / 2.6, and the last layer at the rate of the run:

    eta_l = lr * decay^(n + 1 - l),        decay = train.layer_lr_decay

Cautious weight decay (Chen et al. 2025, arXiv:2510.12402) decays an entry x of a parameter only where the update u of the
optimizer moves it towards zero, too, with decay = train.weight_decay:

    x <- x - lr * (u + decay * [u * x >= 0] * x)
"""

import inspect
import math
import re
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._util.options import OPTIMIZER_FIELDS
from attnlab._util.raise_site import describe_error
from attnlab.config.run import TrainConfig
from attnlab.nn.roles import parameter_roles
from attnlab.registry import OPTIMIZERS
from attnlab.tasks import Task

_BLOCK = re.compile(r"(?:^|\.)(?:blocks|layers)\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)(?:\w*embeddings?\w*|position|class_token)(?:\.|$)")
CAUTIOUS = "cautious_decay"  # key of a group of an optimizer: the weight decay that is applied after its steps
USES = ("hidden", "matrix", "embedding", "other")
DECAYED = {"matrices": USES[:3], "no_embeddings": USES[:2], "all": USES}  # train.decay -> uses of parameters
COOLDOWN = 0.2  # share of a run in which wsd lowers the rate, as in Hägele et al. 2024 (arXiv:2405.18392)
FUSED = (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD)  # optimizers with one kernel for all parameters, on every device


def total_steps(config: TrainConfig, task: Task) -> int:
    """Return the number of optimizer steps of the whole run."""
    if config.steps is not None:
        return config.steps
    assert config.epochs is not None  # exactly one of the two is set
    return max(1, round(config.epochs * task.steps_per_epoch(config.batch_size)))


def warmup_steps(config: TrainConfig, total: int) -> int:
    """Return the number of steps over which the learning rate rises, in a run of ``total`` steps."""
    return config.warmup if isinstance(config.warmup, int) else round(config.warmup * total)


def learning_rate(step: int, total: int, config: TrainConfig) -> float:
    """Return the learning rate of a step, as a pure function of it.

    The rate warms up linearly. Then, with ``train.schedule``, it stays constant, or falls to ``final_lr`` x ``lr``: along half
    a cosine, linearly, or (wsd, Hu et al. 2024, arXiv:2404.06395: warm-up, stable, decay) linearly over the last fifth of the
    run, after a constant rate.

    Args:
        step: 0 to ``total - 1``.
    """
    warmup = warmup_steps(config, total)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    progress = (step - warmup) / max(1, total - warmup)
    height = {
        "constant": 1.0,
        "cosine": (1 + math.cos(math.pi * progress)) / 2,
        "linear": 1 - progress,
        "wsd": min(1.0, (total - step) / (COOLDOWN * total)),
    }[config.schedule]
    return config.lr * (config.final_lr + (1 - config.final_lr) * height)


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return the optimizer that ``train.optimizer`` names, over the parameters that are trained.

    Each group has an ``lr_scale``, the factor of its learning rate (``train.layer_lr_decay``). Frozen parameters have no group.
    """
    cls = OPTIMIZERS.get(config.optimizer.name)
    groups = _parameter_groups(model, config, split_hidden=getattr(cls, "splits_hidden", False))
    optimizer = cls(groups, **constructor_arguments(cls, config))
    if config.cautious_decay:
        _decay_cautiously(optimizer, config)
    return optimizer


def constructor_arguments(cls: type, config: TrainConfig) -> dict[str, Any]:
    """Return the arguments of an optimizer's constructor: the fields of ``train`` that it takes, and its options."""
    taken = inspect.signature(cls).parameters
    fields = {name: getattr(config, name) for name in OPTIMIZER_FIELDS if name in taken}
    fields |= {"weight_decay": 0.0} if config.cautious_decay else {}
    fused = {"fused": True} if cls in FUSED and not config.optimizer.options.get("foreach") else {}
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in config.optimizer.options.items()}
    return {**fields, **fused, **options}


def unsupported(config: TrainConfig) -> str | None:
    """Return the reason why the optimizer cannot train with these settings, or None."""
    cls, name = OPTIMIZERS.get(config.optimizer.name), config.optimizer.label
    taken = inspect.signature(cls).parameters
    if "lr" not in taken:
        return f"train.optimizer: {name}: expected a parameter 'lr' of its constructor, got {', '.join(taken)}"
    if config.cautious_decay and "weight_decay" not in taken:
        return f"train.cautious_decay: {name} takes no weight_decay"
    for field in OPTIMIZER_FIELDS:
        if field not in taken and getattr(config, field) != TrainConfig.model_fields[field].default:
            return f"train.{field}: {name} takes no {field}"
    closure = inspect.signature(cls.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        return f"train.optimizer: {name}: its step requires a closure, which attnlab does not pass"
    if getattr(cls, "splits_hidden", False) and config.frozen == "all":
        return f"train.optimizer: {name} updates the matrices of blocks, and train.frozen: all trains none"
    try:  # constructors check the values of their options, also against each other; the first one imports torch's compiler
        if config.optimizer.options or cls not in FUSED:
            _example(cls, config)
        if config.cautious_decay and not _decays_weights(cls, config):
            return f"train.cautious_decay: expected an optimizer that decays weights by lr x weight_decay, as adamw, got {name}"
    except Exception as error:  # an optimizer of the user may raise anything
        return f"train.optimizer: {name}: {describe_error(error, cls)}"
    return None


def _example(cls: type[torch.optim.Optimizer], config: TrainConfig, **changes: float) -> torch.optim.Optimizer:
    """Return the optimizer over one small matrix of a block, with ``changes`` of its arguments."""
    matrix = nn.Parameter(torch.tensor([[3.0, -2.0], [1.0, 2.0]], dtype=torch.float64))
    hidden = {"hidden": True} if getattr(cls, "splits_hidden", False) else {}
    return cls([{"params": [matrix], "lr_scale": 1.0} | hidden], **{**constructor_arguments(cls, config), **changes})


def _decays_weights(cls: type[torch.optim.Optimizer], config: TrainConfig) -> bool:
    """Return whether weight decay only subtracts lr * decay * x from a parameter x, and does not act on the update.

    Three steps with gradients of different sizes show it: an L2 penalty also changes the averages that make up the update.
    """
    lr, sizes = 1e-3, (1.0, 0.1, 10.0)
    ends = []
    for decay in (0.0, 1.0):
        optimizer = _example(cls, config, lr=lr, weight_decay=decay)
        (matrix,) = optimizer.param_groups[0]["params"]
        start = matrix.detach().clone()
        for size in sizes:
            matrix.grad = size * torch.tensor([[1.0, 2.0], [-1.0, 1.0]], dtype=torch.float64)
            optimizer.step()
        ends.append(matrix.detach())
    decayed = len(sizes) * lr * start
    return torch.allclose(ends[0] - ends[1], decayed, rtol=0.02)


def _decay_cautiously(optimizer: torch.optim.Optimizer, config: TrainConfig) -> None:
    """Let cautious weight decay follow each step of an optimizer, which itself has a weight decay of 0."""
    kept: list[tuple[float, nn.Parameter, Tensor]] = []  # rate of decay, parameter, its values before the step
    for group in optimizer.param_groups:
        group.setdefault(CAUTIOUS, config.weight_decay)

    def keep(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        kept.clear()  # after a step that failed
        for group in optimizer.param_groups:
            rate = group["lr"] * group[CAUTIOUS]
            kept.extend((rate, p, p.detach().clone()) for p in group["params"] if rate and p.grad is not None)

    @torch.no_grad()
    def decay(*_: Any) -> None:
        for rate, p, before in kept:
            agrees = (before - p).sign() * before.sign() >= 0
            p.sub_(before * agrees, alpha=rate)
        kept.clear()

    optimizer.register_step_pre_hook(keep)
    optimizer.register_step_post_hook(decay)


def _parameter_groups(model: nn.Module, config: TrainConfig, *, split_hidden: bool) -> list[dict[str, Any]]:
    """Return the groups of an optimizer, by learning rate and weight decay.

    Args:
        split_hidden: also by ``hidden``, True for the matrices of blocks.
    """
    takes_decay = "weight_decay" in inspect.signature(OPTIMIZERS.get(config.optimizer.name)).parameters
    uses = parameter_uses(model)
    groups: dict[tuple[float, bool, bool], list[nn.Parameter]] = {}
    for (name, p), (_, scale) in zip(model.named_parameters(), learning_rate_scales(model, config), strict=True):
        if p.requires_grad:
            decayed = uses[name] in DECAYED[config.decay]
            hidden = split_hidden and uses[name] == "hidden"
            groups.setdefault((-scale, not decayed, not hidden), []).append(p)
    return [
        {"params": parameters, "lr_scale": -negative}
        | ({CAUTIOUS if config.cautious_decay else "weight_decay": 0.0} if undecayed and takes_decay else {})
        | ({"hidden": not others} if split_hidden else {})
        for (negative, undecayed, others), parameters in sorted(groups.items(), key=lambda item: item[0])
    ]


def parameter_uses(model: nn.Module) -> dict[str, str]:
    """Return the role of each parameter by its name; ``hidden`` for a matrix of two dimensions in a block."""
    roles, numbers = parameter_roles(model), layer_numbers(model)
    last = max(numbers.values(), default=0)
    hidden = {name for name, p in model.named_parameters() if p.dim() == 2 and 0 < numbers[name] < last}
    return {name: "hidden" if role == "matrix" and name in hidden else role for name, role in roles.items()}


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group to ``rate`` times its ``lr_scale``."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_scale"]


def layer_numbers(model: nn.Module) -> dict[str, int]:
    """Return the number of the layer of each parameter by its name, as described above.

    A tensor with several names, for example a tied embedding, has the first of them. A parameter belongs to a block if its name
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
