"""Trivial baselines: what can be had from a task's data without a network.

A task names its own (``Task.baselines``). Each is computed once and kept beside the prepared data; a study records what its
runs stand beside (``attnlab.study.execution.reference_scores``), and its report shows that, compared with nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from attnlab._util.files import replacing
from attnlab.tasks import datasets

LIBRARIES = ("numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Reference:
    """One of a task's baselines.

    Args:
        about: what it is and what it reads, in a sentence of the report.
        score: ``evaluate.test_limit`` -> the task's primary metric on what an evaluation of ``test`` counts under it.
        options: the task's options that decide the value, beside its ``identity``; None: any of them may.
    """

    about: str
    score: Callable[[int | None], float]
    options: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Score:
    """What a baseline came to, and in how many seconds."""

    value: float
    seconds: float


def scored(baseline: Reference, limit: int | None, *, key: dict[str, Any], begin: Callable[[], None]) -> Score:
    """The baseline's score: from the cache, else computed now.

    Args:
        key: what the caller knows to decide the value: its name, the task's data and options, the user's own files.
        begin: called before it is computed.
    """
    key = {**key, "limit": limit, "code": _code(), "libraries": _libraries()}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = datasets.prepared_folder() / "reference_scores" / f"{digest}.json"
    found = _read(path, key)
    if found is None:
        begin()
        start = time.monotonic()
        value = float(baseline.score(limit))
        if not math.isfinite(value):
            raise ValueError(f"expected a finite number, got {value}")
        found = Score(value, round(time.monotonic() - start, 2))
        with (
            suppress(OSError),
            replacing(path) as place,
        ):  # a cache that nobody may write to costs the next one its time
            place.write_text(json.dumps({"key": key, **asdict(found)}, indent=1))
    return found


def _read(path: Path, key: dict[str, Any]) -> Score | None:
    """What the cache holds under ``key``; None where it holds nothing, or nothing that can be read."""
    try:
        found = json.loads(path.read_text())
        score = Score(float(found["value"]), float(found["seconds"]))
        return score if found["key"] == key and math.isfinite(score.value) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@cache
def _code() -> str:
    """A checksum of this folder, and of the tasks'."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


@cache
def _libraries() -> dict[str, str]:
    """What else decides the last digits; compressors come with Python and with the system."""
    found = {"python": platform.python_version(), "zlib": zlib.ZLIB_RUNTIME_VERSION}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
