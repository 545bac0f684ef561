"""File systems of a test's own, full or read-only, mounted for real (so root only), and a file that would run code."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def small_disk(place: Path, *, size: str) -> Iterator[Path]:
    """``place`` as a disk of ``size`` (``"1m"``), empty; skips the test where it may not be mounted."""
    place.mkdir(parents=True, exist_ok=True)
    with _mounted(place, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        yield place


@contextmanager
def read_only(place: Path) -> Iterator[Path]:
    """``place``, with what is in it, as it is on a disk that may only be read: permissions would not stop root."""
    with _mounted(place, "--bind", str(place)):
        _mount("-o", "remount,bind,ro", str(place))
        yield place


def fill(place: Path) -> None:
    """Leave no room on a disk; deleting ``place`` makes room again."""
    with place.open("wb", buffering=0) as file:
        for chunk in (1 << 16, 1 << 12):  # the last is a page
            while True:
                try:
                    file.write(bytes(chunk))
                except OSError:
                    break


class Program:
    """In a pickle it is a program: whoever unpickles it makes ``folder``."""

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
        subprocess.run(["umount", "-l", str(place)], check=True)  # even where a child that is just dying has a file open


def _mount(*words: str) -> None:
    import pytest  # here: runs import this file, too

    try:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs mount, which is not here")
    if done.returncode:
        pytest.skip(f"may not mount a file system: {done.stderr.strip()}")
