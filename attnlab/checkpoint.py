"""Writing and reading a run's state, whole or not at all."""

import os
from pathlib import Path
from typing import Any

import torch


def save(state: dict[str, Any], path: Path) -> None:
    """Write ``state`` (tensors, numbers, strings, and containers of them) so that ``path`` is never seen half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load(path: Path) -> dict[str, Any]:
    """What ``save`` wrote, on the CPU. Reads tensors and plain values only: a file cannot run code."""
    return torch.load(path, map_location="cpu", weights_only=True)


def random_state() -> dict[str, Any]:
    """Where every random stream of the process stands that dropout draws from."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def restore_random_state(state: dict[str, Any]) -> None:
    """Set the streams back to where ``random_state`` saw them."""
    torch.set_rng_state(state["cpu"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
