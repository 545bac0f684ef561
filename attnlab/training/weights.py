"""The weights of a trained model: a safetensors file, with digests of the weights and of their configuration.

A run's folder holds ``model.safetensors`` and ``config.json``. The metadata of the first contain a digest of each, so that
damage to either is noticed before the configuration is used.
"""

import hashlib
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from attnlab._util.files import describe_error, replacing
from attnlab.config.run import RunConfig
from attnlab.errors import UserError

CONFIG, WEIGHTS = "config.json", "model.safetensors"
State = dict[str, Tensor]


def exist(folder: Path) -> bool:
    """Return True when a run left its configuration and its weights in ``folder``, damaged or not."""
    return (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()


def save(model: nn.Module, config: RunConfig, folder: Path) -> None:
    """Write a model's weights and the configuration that builds it.

    Raises:
        UserError: the model's state contains something that is not a tensor.
    """
    from safetensors.torch import save as to_bytes

    state = {
        name: tensor.cpu().clone(memory_format=torch.contiguous_format) for name, tensor in distinct_tensors(model).items()
    }
    text = config.to_json().encode()
    metadata = {"config_sha256": hashlib.sha256(text).hexdigest(), "weights_sha256": _digest(state)}
    with replacing(folder / WEIGHTS) as half:
        half.write_bytes(to_bytes(state, metadata))
    with replacing(folder / CONFIG) as half:
        half.write_bytes(text)


def load(folder: Path) -> tuple[RunConfig, State]:
    """Return the configuration and the weights of a run, on the CPU, after comparing both with their digests.

    Neither file can run code.

    Raises:
        UserError: a file is missing, damaged, or of another run.
    """
    path = folder / WEIGHTS
    for file in (path, folder / CONFIG):
        if not file.is_file():
            raise UserError(f"expected a trained model in {folder}, found no {file.name}")
    try:
        state, metadata = _read(path)
    except Exception as error:  # any exception: the file may be damaged or hostile
        raise UserError(f"{path} is damaged, or is no model of this run: {describe_error(error)}") from error
    try:
        text = (folder / CONFIG).read_bytes()
        if hashlib.sha256(text).hexdigest() != metadata.get("config_sha256"):
            raise ValueError(f"its digest is not the one in {path.name}")
        return RunConfig.from_json(text.decode()), state
    except (OSError, ValueError, TypeError) as error:  # pydantic's errors are ValueErrors
        raise UserError(f"{folder / CONFIG} is damaged, or is no configuration: {_describe(error)}") from error


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
        _require_shape(name, tensor, own[name])
    model.load_state_dict(state, strict=False)  # aliases are missing


def require_shapes(model: nn.Module, state: State) -> None:
    """Compare weights with a model, which may have no memory (the device ``meta``).

    Raises:
        ValueError: a shape differs, or a parameter is missing that cannot share the memory of another one of its shape.
    """
    shapes = {tensor.shape for tensor in state.values()}
    for name, tensor in model.state_dict().items():
        if name in state:
            _require_shape(name, state[name], tensor)
        elif tensor.shape not in shapes and tensor.numel():
            raise ValueError(f"it lacks {name}")


def _require_shape(name: str, tensor: Tensor, expected: Tensor) -> None:
    if tensor.shape != expected.shape:
        raise ValueError(f"expected {name} of shape {tuple(expected.shape)}, got {tuple(tensor.shape)}")


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


def _read(path: Path) -> tuple[State, dict[str, str]]:
    """Return the weights in a file, with a verified digest, and its metadata."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 it is no dict
    if metadata.get("weights_sha256") != _digest(state):
        raise ValueError("the digest of its weights is not the one that it contains")
    return state, metadata


def _digest(state: State) -> str:
    """Return the SHA-256 digest of names, types, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _describe(error: Exception) -> str:
    """Describe an error in one line; of a validation error, its first mistake."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return describe_error(error)
