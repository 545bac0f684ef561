"""File systems for tests, full or read-only, really mounted (so root only), and a pickle that would run code."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def small_disk(place: Path, *, size: str) -> Iterator[Path]:
    """Mount an empty disk of ``size`` (``"1m"``) at ``place``; skip the test without the permission to mount."""
    place.mkdir(parents=True, exist_ok=True)
    with _mounted(place, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        yield place


@contextmanager
def read_only(place: Path) -> Iterator[Path]:
    """Mount ``place`` and its contents read-only: permissions would not stop root."""
    with _mounted(place, "--bind", str(place)):
        _mount("-o", "remount,bind,ro", str(place))
        yield place


def fill(place: Path) -> None:
    """Fill a disk; deleting ``place`` frees the space."""
    with place.open("wb", buffering=0) as file:
        for chunk in (1 << 16, 1 << 12):  # the last is a page
            while True:
                try:
                    file.write(bytes(chunk))
                except OSError:
                    break


class Program:
    """An object whose pickle is a program: unpickling it makes ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@contextmanager
def _mounted(place: Path, *words: str) -> Iterator[None]:
    _mount(*words, str(place))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)  # even if a dying child still has a file open


def _mount(*words: str) -> None:
    import pytest  # here: runs import this file, too

    try:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs mount, which is not here")
    if done.returncode:
        pytest.skip(f"may not mount a file system: {done.stderr.strip()}")
