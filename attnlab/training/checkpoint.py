"""Checkpoints: a run's state, written atomically and verified when it is read.

A run's folder holds the newest checkpoint and the one before it. A checkpoint that is truncated or damaged, or that another
configuration or another version of torch wrote, is skipped; the run then resumes from the other one, or starts from step 0.
"""

import logging
import zipfile
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from attnlab._util.files import replacing
from attnlab.config.run import RunConfig
from attnlab.training.device import is_out_of_memory

logger = logging.getLogger(__name__)

NEWEST, PREVIOUS = "checkpoint.pt", "checkpoint.old.pt"


def save(state: dict[str, Any], path: Path, *, previous: Path | None = None) -> None:
    """Write ``state`` to ``path`` atomically.

    Args:
        state: tensors, numbers, strings, and containers of them.
        previous: destination for an existing file at ``path``; None replaces the file.
    """
    with replacing(path) as half:
        with half.open("wb") as file:
            try:
                torch.save(tree_map_only(Tensor, _without_surroundings, state), file)
            except RuntimeError as error:  # torch's message for a full disk: "unexpected pos 64 vs 16"
                raise error.__context__ if isinstance(error.__context__, OSError) else error from None
        if previous is not None and path.exists():
            path.replace(previous)


def _without_surroundings(tensor: Tensor) -> Tensor:
    """Return a tensor that shares its storage with nothing else: ``torch.save`` writes whole storages."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def load(path: Path) -> dict[str, Any]:
    """Return the state that ``save`` wrote, with tensors on the CPU.

    Only tensors and plain values are read: loading a file runs no code from it.

    Raises:
        ValueError: the file is damaged, or holds other objects.
    """
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()  # torch does not detect flipped bits
    if damaged is not None:
        raise ValueError(f"its member {damaged} is damaged")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:  # torch's message would explain how to run the code anyway
        raise ValueError("expected tensors and plain values only, got other objects (no code was run)") from None


def writer(config: RunConfig) -> dict[str, str]:
    """Return the origin that a checkpoint must have to resume to the same bits: configuration and torch version."""
    return {"fingerprint": config.fingerprint(), "torch": str(torch.__version__)}


def save_newest(state: dict[str, Any], folder: Path, *, config: RunConfig) -> None:
    """Write the newest checkpoint of a run, and keep the one before it."""
    save({"writer": writer(config), **state}, folder / NEWEST, previous=folder / PREVIOUS)


def load_usable(folder: Path, *, config: RunConfig) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield (path, state) of each readable checkpoint of a run, the newest first; warn about the others."""
    for path in _files(folder):
        try:
            state = load(path)
            if state["writer"] != writer(config):
                raise ValueError(f"expected one written by {writer(config)}, got {state['writer']}")
        except Exception as error:  # a damaged file may make the libraries raise anything
            if is_out_of_memory(error):
                raise
            warn_unusable(path, error)
        else:
            yield path, state


def exists(folder: Path) -> bool:
    """Return True when the run has checkpoints, readable or not."""
    return bool(_files(folder))


def _files(folder: Path) -> list[Path]:
    return [folder / name for name in (NEWEST, PREVIOUS) if (folder / name).is_file()]


def warn_unusable(path: Path, error: Exception) -> None:
    """Log, in one line, that a checkpoint is skipped and why."""
    lines = str(error).splitlines() or [""]
    logger.warning("skipping unusable checkpoint %s: %s: %s", path, type(error).__name__, lines[0])


def remove(folder: Path) -> None:
    """Remove a run's checkpoints, and partial files of writers that were killed."""
    for path in _files(folder):
        path.unlink()
    remove_partial(folder)


def remove_partial(folder: Path) -> None:
    """Remove partial files of writers that were killed. The caller must be the only writer of the folder."""
    for half in folder.glob(".*.half"):
        half.unlink(missing_ok=True)


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of the random generators that dropout on ``device`` uses."""
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore the generators to the state that ``random_state`` returned."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
