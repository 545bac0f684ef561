"""Weights that a run takes over from another one, before its first step (``init: {from: pretrain}``).

A tensor is taken over if the other model has one of the same name and shape. All others keep their initial values: a head
for other classes, positions of another length. The run records which tensors it took, and the digest of the weights; results
and checkpoints that began with other weights are not used again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from attnlab._util.text import count
from attnlab.config.run import InitConfig
from attnlab.errors import UserError
from attnlab.training import weights
from attnlab.training.result import Result, load_result

TAKEN_TAG, WEIGHTS_TAG = "init", "init_weights"  # tags of a result: what was taken over, and the digest of the weights
MAX_NAMES = 6  # tensors that a description names
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class WeightMatch:
    """The tensors of a model, and where their initial values come from.

    Attributes:
        taken: names of the tensors that are taken over.
        fresh: tensors of the model that are not, each with the reason where the other model has one of the same name.
        unused: names of tensors that only the other model has.
        matrices: the number of tensors taken over that have at least two dimensions.
    """

    taken: tuple[str, ...]
    fresh: tuple[str, ...]
    unused: tuple[str, ...]
    matrices: int

    @property
    def is_empty(self) -> bool:
        """True when the models have no matrix in common: a bias alone fits by chance, where widths differ."""
        return not self.matrices

    def __str__(self) -> str:
        """Return ``takes 24 of 26 tensors; fresh: head.bias, head.weight (2 x 64, not 256 x 64)``."""
        parts = [f"takes {len(self.taken)} of {count(len(self.taken) + len(self.fresh), 'tensor')}"]
        parts += [f"{word}: {_list(names)}" for word, names in (("fresh", self.fresh), ("unused", self.unused)) if names]
        return "; ".join(parts)


@dataclass(frozen=True)
class StartingPoint:
    """The run that another one starts from, as the latter records it.

    Attributes:
        weights: digest of its weights.
        taken: a description of the tensors that were taken over.
        seconds, flops: training time and training FLOPs of this run and of those that it started from.
    """

    weights: str
    taken: str
    seconds: float
    flops: float

    def chain_costs(self, own: Mapping[str, float]) -> dict[str, float]:
        """Return ``chain_seconds`` and ``chain_flops`` of a run with these costs: including the costs of its start."""
        seconds, flops = training_costs(own)
        return {"chain_seconds": self.seconds + seconds, "chain_flops": self.flops + flops}

    @property
    def tags(self) -> dict[str, str]:
        """The tags of a result of the run that started here."""
        return {TAKEN_TAG: self.taken, WEIGHTS_TAG: self.weights}


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's tensors by name; of several names for one tensor only the first. Works on ``meta``."""
    seen: set[int] = set()
    shapes: dict[str, tuple[int, ...]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            shapes[name] = tuple(tensor.shape)
    return shapes


def match_shapes(source: Shapes, target: Shapes) -> WeightMatch:
    """Return which tensors of a model with the shapes ``target`` can be taken over from one with the shapes ``source``."""
    taken = tuple(name for name, shape in target.items() if source.get(name) == shape)
    fresh = tuple(_describe(name, shape, source.get(name)) for name, shape in target.items() if name not in taken)
    unused = tuple(name for name in source if name not in target)
    return WeightMatch(taken, fresh, unused, matrices=sum(len(target[name]) > 1 for name in taken))


def _describe(name: str, shape: tuple[int, ...], other: tuple[int, ...] | None) -> str:
    sizes = [" x ".join(map(str, sizes)) or "a number" for sizes in (shape, other or ())]
    return name if other is None else f"{name} ({sizes[0]}, not {sizes[1]})"


def _list(names: tuple[str, ...]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def source_folder(init: InitConfig, folder: Path | None) -> Path:
    """Return the folder of the run that a run in ``folder`` starts from: runs have folders side by side.

    Raises:
        UserError: there is no folder.
    """
    if folder is None:
        raise UserError(f"init: expected a folder of runs that holds one of the stage {init.stage!r}, got none")
    return folder.parent / init.fingerprint


def take_over(model: nn.Module, init: InitConfig, folder: Path | None) -> StartingPoint:
    """Copy the weights of another run into a model, where names and shapes agree.

    Args:
        model: on any device.
        init: names the run.
        folder: of the run that starts.

    Raises:
        UserError: the other run left no weights or is another one, its files are damaged, or no matrix agrees.
    """
    source = source_folder(init, folder)
    try:
        config, state = weights.load(source)
    except UserError as error:
        raise UserError(f"init: no weights of the stage {init.stage!r}: {error.message}") from error
    if config.fingerprint() != init.fingerprint:
        raise UserError(f"init: expected weights of the run {init.fingerprint} in {source}, got {config.fingerprint()}")
    own = weights.distinct_tensors(model)
    matching = match_shapes({name: tuple(tensor.shape) for name, tensor in state.items()}, shapes_of(model))
    if matching.is_empty:
        raise UserError(f"init: no matrix of the stage {init.stage!r} has the name and the shape of one of the model")
    with torch.no_grad():
        for name in matching.taken:
            own[name].copy_(state[name])
    recorded = load_result(source, config=config)
    if recorded is None:
        raise UserError(f"init: expected the result of the run {init.fingerprint} with its weights in {source}, got none")
    seconds, flops = training_costs(recorded[0].summary)
    return StartingPoint(weights.recorded_digest(source), str(matching), seconds, flops)


def training_costs(summary: Mapping[str, float]) -> tuple[float, float]:
    """Return the training time in seconds and the training FLOPs of a run and of those that it started from."""
    flops = 3 * summary["flops_per_token"] * summary["tokens"]
    return summary.get("chain_seconds", summary["train_seconds"]), summary.get("chain_flops", flops)


def is_outdated(start: str, init: InitConfig | None, folder: Path) -> bool:
    """Return True when the run that ``init`` names has other weights than those with the digest ``start``.

    False when it has no weights to compare with any longer.
    """
    if init is None:
        return False
    present = weights.recorded_digest(source_folder(init, folder))
    return present not in ("", start)


def is_outdated_result(result: Result, init: InitConfig | None, folder: Path) -> bool:
    """Return True when a recorded result began with other weights than the run has that ``init`` names."""
    return is_outdated(result.tags.get(WEIGHTS_TAG, ""), init, folder)
