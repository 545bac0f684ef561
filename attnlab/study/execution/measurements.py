"""Measurements of training steps in processes of their own, and the files that keep them for a machine."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attnlab._util.files import replacing, require_no_pipe
from attnlab._util.process import fork_with_pipe
from attnlab._version import __version__
from attnlab.errors import UserError
from attnlab.study.execution.job import PRELOAD
from attnlab.tracking.tags import device_name

PATIENCE = 120.0  # seconds until a process is ready, or has taken its steps


def measurement_key(*content: Any) -> str:
    """Return the key of a measurement on this machine: its processor, the versions, and ``content``, which JSON can hold."""
    import torch

    instructions = [torch.backends.cpu.get_cpu_capability(), os.environ.get("ONEDNN_MAX_CPU_ISA")]
    text = json.dumps([device_name("cpu"), instructions, torch.__version__, __version__, *content])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_measurements(path: Path) -> dict[str, Any]:
    """Return the measurements in a file; none if it is missing or damaged."""
    with suppress(OSError, ValueError, UserError):
        require_no_pipe(path)
        known = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(known, dict):
            return known
    return {}


def save_measurement(path: Path, key: str, value: Any) -> None:
    """Add a measurement to a file."""
    known = load_measurements(path) | {key: value}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(known, indent=1), encoding="utf-8")


@contextmanager
def forked(target: Callable[..., None], arguments: Iterable[tuple[Any, ...]], *, name: str) -> Iterator[list[Connection]]:
    """Start a process that calls ``target(*of_one, pipe)`` for each entry of ``arguments``, and end them all with the block.

    Yields:
        The other ends of their pipes, in order.

    Raises:
        UserError: as ``fork_with_pipe``.
    """
    processes, pipes = [], []
    try:
        for of_one in arguments:
            process, pipe = fork_with_pipe(target, *of_one, name=name, preload=PRELOAD)
            processes.append(process)
            pipes.append(pipe)
        yield pipes
    finally:
        for process in processes:
            process.kill()
            process.join()
        for pipe in pipes:
            pipe.close()


def receive(pipes: Sequence[Connection]) -> list[Any]:
    """Return a message from each pipe.

    Raises:
        TimeoutError: none came.
        EOFError: the process at the other end ended.
    """
    if not all(pipe.poll(PATIENCE) for pipe in pipes):
        raise TimeoutError
    return [pipe.recv() for pipe in pipes]
