"""Writing and reading a run's state, whole or not at all.

A run's folder holds the newest checkpoint and the one before it. Neither is trusted on its name: one that is cut
short or damaged, or that another configuration or another torch wrote, is passed over for the other, or for the
beginning.
"""

import logging
import zipfile
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from attnlab._util.files import replacing
from attnlab.config.run import RunConfig
from attnlab.training.out_of_memory import is_out_of_memory

logger = logging.getLogger(__name__)

NEWEST, BEFORE = "checkpoint.pt", "checkpoint.old.pt"


def save(state: dict[str, Any], path: Path, *, before: Path | None = None) -> None:
    """Write ``state`` (tensors, numbers, strings, and containers of them) so that ``path`` is never seen half-written.

    Args:
        before: what ``path`` held so far is kept here.
    """
    with replacing(path) as half:
        with half.open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:  # torch's own words for a full disk: "unexpected pos 64 vs 16"
                raise error.__context__ if isinstance(error.__context__, OSError) else error from None
        if before is not None and path.exists():
            path.replace(before)


def load(path: Path) -> dict[str, Any]:
    """What ``save`` wrote, on the CPU. Reads tensors and plain values only: a file cannot run code."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()  # torch itself would read flipped bits without a word
    if damaged is not None:
        raise ValueError(f"{damaged} in it is damaged")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:  # torch's own words tell how to run it all the same
        raise ValueError("expected tensors and plain values only, got more: nothing of it was run") from None


def writer(config: RunConfig) -> dict[str, str]:
    """Who writes a checkpoint: another configuration's or another torch's would not go on to the same bits."""
    return {"fingerprint": config.fingerprint(), "torch": str(torch.__version__)}


def keep(state: dict[str, Any], folder: Path, *, config: RunConfig) -> None:
    """Write the newest checkpoint of a run; the one before it stays."""
    save({"writer": writer(config), **state}, folder / NEWEST, before=folder / BEFORE)


def kept(folder: Path, *, config: RunConfig) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield (path, state) of each readable checkpoint of a run, the newest first; warn about the others."""
    for path in _files(folder):
        try:
            state = load(path)
            if state["writer"] != writer(config):
                raise ValueError(f"expected one of {writer(config)}, got {state['writer']}")
        except Exception as error:  # whatever a damaged file makes the libraries raise
            if is_out_of_memory(error):
                raise
            warn_unusable(path, error)
        else:
            yield path, state


def any_in(folder: Path) -> bool:
    """Whether the run has checkpoints, readable or not."""
    return bool(_files(folder))


def _files(folder: Path) -> list[Path]:
    return [folder / name for name in (NEWEST, BEFORE) if (folder / name).exists()]


def warn_unusable(path: Path, error: Exception) -> None:
    """Log, in one line, that a checkpoint is skipped and why."""
    lines = str(error).splitlines() or [""]
    logger.warning("skipping unusable checkpoint %s: %s: %s", path, type(error).__name__, lines[0])


def remove(folder: Path) -> None:
    """Remove a run's checkpoints, and what writers that were killed have left half-written."""
    for path in _files(folder):
        path.unlink()
    remove_halves(folder)


def remove_halves(folder: Path) -> None:
    """Remove what writers that were killed have left half-written; the caller is the only writer."""
    for half in folder.glob(".*.half"):
        half.unlink(missing_ok=True)


def random_state(device: torch.device) -> dict[str, Any]:
    """Where the random streams stand that dropout on ``device`` draws from."""
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Set the streams back to where ``random_state`` saw them."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
