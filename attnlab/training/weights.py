"""A trained model: its weights as a safetensors file, its configuration, and what it keeps of its task.

A run's folder holds ``model.safetensors``, ``config.json`` and ``task.json``: the vocabulary and the names of the classes
(``Task.kept``). They are all that a model needs, so that the folder can move. The metadata of the first contain a digest of
the weights.

A run may take over weights from another one before its first step (``init: {from: pretrain}``). A tensor is taken over if the
other model has one of the same name and shape. All others keep their initial values: a head for other classes, positions of
another length. The run records which tensors it took, and the digest of the weights; results and checkpoints that began with
other weights are not used again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._util.files import describe_error, replacing
from attnlab._util.metrics import ITEMS_FILE
from attnlab._util.run_state import Reset
from attnlab._util.text import count
from attnlab.config.run import InitConfig, RunConfig
from attnlab.errors import UserError, one_line
from attnlab.training import checkpoint
from attnlab.training.result import FILE, Result, load_result, remove_result

CONFIG, WEIGHTS, TASK = "config.json", "model.safetensors", "task.json"
FILES = (WEIGHTS, CONFIG, TASK)
State = dict[str, Tensor]
TAKEN_TAG, WEIGHTS_TAG = "init", "init_weights"  # tags of a result: what was taken over, and the digest of the weights
MAX_NAMES = 6  # tensors that a description names
Shapes = Mapping[str, tuple[int, ...]]


def exist(folder: Path) -> bool:
    """Return True when a run left a trained model in ``folder``, damaged or not."""
    return all((folder / name).is_file() for name in FILES)


def save(model: nn.Module, config: RunConfig, folder: Path, *, kept: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Write a model's weights, the configuration that builds it, and what it keeps of its task.

    Args:
        kept: what ``Task.kept_state`` returns.

    Raises:
        UserError: the model's state contains something that is not a tensor, or ``kept`` something that is not JSON.
    """
    from safetensors.torch import save as to_bytes

    state = {
        name: tensor.cpu().clone(memory_format=torch.contiguous_format) for name, tensor in distinct_tensors(model).items()
    }
    try:
        texts = {CONFIG: config.to_json().encode(), TASK: json.dumps(dict(kept)).encode()}
    except TypeError as error:
        raise UserError(f"task {config.task.label}: expected attributes in 'kept' that JSON can hold: {error}") from error
    with replacing(folder / WEIGHTS) as half:
        half.write_bytes(to_bytes(state, {"weights_sha256": _digest(state)}))
    for name, text in texts.items():
        with replacing(folder / name) as half:
            half.write_bytes(text)


def reset(folder: Path, how: Reset) -> None:
    """Remove the files of an earlier attempt from a run's folder, so that the run starts from its first step.

    ``Reset.RESULT`` keeps the checkpoints of a run without a result: the result was removed earlier, or the run had none
    because memory ran out.
    """
    if how is Reset.FOLDER or (how is Reset.RESULT and (folder / FILE).exists()):
        checkpoint.remove(folder)  # first: a kill in between must leave no checkpoint to resume from
        for name in (*FILES, ITEMS_FILE):  # the new attempt may end without a model
            (folder / name).unlink(missing_ok=True)
        remove_result(folder)


def load(folder: Path) -> tuple[RunConfig, State, dict[str, Any]]:
    """Return the configuration, the weights on the CPU, and what is kept of the task.

    None of the files can run code.

    Raises:
        UserError: a file is missing or damaged.
    """
    path = folder / WEIGHTS
    for name in FILES:
        if not (folder / name).is_file():
            raise UserError(f"expected a trained model in {folder}, found no {name}")
    try:
        state = _read(path)
    except Exception as error:  # any exception: the file may be damaged or hostile
        raise UserError(f"{path} is damaged, or is no model of this run: {describe_error(error)}") from error
    name = CONFIG
    try:
        config = RunConfig.from_json((folder / CONFIG).read_text(encoding="utf-8"))
        name = TASK
        return config, state, json.loads((folder / TASK).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:  # pydantic's errors are ValueErrors
        raise UserError(f"{folder / name} is damaged: {one_line(str(error))}") from error


def recorded_digest(folder: Path) -> str:
    """Return the digest that the weights of a run carry, which ``load`` verifies; "" if there are none that can be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            return str((file.metadata() or {}).get("weights_sha256", ""))
    except (OSError, SafetensorError):
        return ""


def load_into(model: nn.Module, state: State) -> None:
    """Copy weights into a model.

    Raises:
        ValueError: names or shapes differ from the model's.
    """
    own = distinct_tensors(model)
    for verb, names in (("lacks", own.keys() - state.keys()), ("has an unexpected", state.keys() - own.keys())):
        if names:
            raise ValueError(f"it {verb} {min(names)}")
    for name, tensor in state.items():
        if tensor.shape != own[name].shape:
            raise ValueError(f"expected {name} of shape {tuple(own[name].shape)}, got {tuple(tensor.shape)}")
    model.load_state_dict(state, strict=False)  # aliases are missing


def distinct_tensors(model: nn.Module) -> State:
    """Return the tensors of a model's state by name; of several names for one tensor (tied embeddings) only the first.

    Raises:
        UserError: the state contains something that is not a tensor.
    """
    names: dict[tuple[object, ...], str] = {}
    state: State = {}
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise UserError(f"expected only tensors in the state of a model, got {name}: {type(value).__name__}")
        place = (value.device, value.data_ptr(), value.shape, value.stride())
        if not value.numel() or names.setdefault(place, name) == name:
            state[name] = value
    return state


def _read(path: Path) -> State:
    """Return the weights in a file, with a verified digest."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 it is no dict
        if (file.metadata() or {}).get("weights_sha256") != _digest(state):
            raise ValueError("the digest of its weights is not the one that it contains")
    return state


def _digest(state: State) -> str:
    """Return the SHA-256 digest of names, types, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


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
    fresh = tuple(_describe_tensor(name, shape, source.get(name)) for name, shape in target.items() if name not in taken)
    unused = tuple(name for name in source if name not in target)
    return WeightMatch(taken, fresh, unused, matrices=sum(len(target[name]) > 1 for name in taken))


def _describe_tensor(name: str, shape: tuple[int, ...], other: tuple[int, ...] | None) -> str:
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
        config, state, _ = load(source)
    except UserError as error:
        raise UserError(f"init: no weights of the stage {init.stage!r}: {error.message}") from error
    if config.fingerprint() != init.fingerprint:
        raise UserError(f"init: expected weights of the run {init.fingerprint} in {source}, got {config.fingerprint()}")
    own = distinct_tensors(model)
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
    return StartingPoint(recorded_digest(source), str(matching), seconds, flops)


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
    present = recorded_digest(source_folder(init, folder))
    return present not in ("", start)


def is_outdated_result(result: Result, init: InitConfig | None, folder: Path) -> bool:
    """Return True when a recorded result began with other weights than the run has that ``init`` names."""
    return is_outdated(result.tags.get(WEIGHTS_TAG, ""), init, folder)
