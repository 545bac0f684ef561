"""Reference scores: results of simple methods, for example compressors and n-gram models, on a task's data.

A task defines them (``Task.reference_scores``). Each is computed once and cached with the prepared data. A study records
them (``attnlab.study.execution.reference_scores``), and its report lists them without comparing variants with them.
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
from pathlib import Path
from typing import Any

from attnlab._util.files import replacing
from attnlab._util.packages import version_of
from attnlab.tasks import datasets

LIBRARIES = ("numpy", "scipy", "scikit-learn", "sacrebleu")


@dataclass(frozen=True)
class Reference:
    """A method with a reference score.

    Args:
        about: describes the method and the data it reads, for the report.
        score: ``evaluate.test_limit`` -> the task's primary metric on the part of ``test`` that an evaluation counts.
        options: the task's options that determine the value, in addition to its ``identity``; None: all of them.
    """

    about: str
    score: Callable[[int | None], float]
    options: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Score:
    """A reference score, and the seconds that it took to compute."""

    value: float
    seconds: float


def compute_score(reference: Reference, limit: int | None, *, key: dict[str, Any], on_start: Callable[[], None]) -> Score:
    """Return a reference score, from the cache if it holds one.

    Args:
        reference: the method.
        limit: ``evaluate.test_limit``.
        key: everything known to the caller that determines the value: name, the task's data and options, users' files.
        on_start: called before the score is computed.

    Raises:
        ValueError: the score is not finite.
    """
    key = {**key, "limit": limit, "code": _code(), "libraries": _libraries()}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = datasets.prepared_folder() / "reference_scores" / f"{digest}.json"
    score = _read(path, key)
    if score is None:
        on_start()
        start = time.monotonic()
        value = float(reference.score(limit))
        if not math.isfinite(value):
            raise ValueError(f"expected a finite number, got {value}")
        score = Score(value, round(time.monotonic() - start, 2))
        with suppress(OSError), replacing(path) as temporary:  # without a writable cache, the next study computes it again
            temporary.write_text(json.dumps({"key": key, **asdict(score)}, indent=1), encoding="utf-8")
    return score


def _read(path: Path, key: dict[str, Any]) -> Score | None:
    """Return the cached score of ``key``; None when there is none, or it is damaged."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        score = Score(float(record["value"]), float(record["seconds"]))
        return score if record["key"] == key and math.isfinite(score.value) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@cache
def _code() -> str:
    """Return a checksum of the source code of ``attnlab.tasks``."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


@cache
def _libraries() -> dict[str, str]:
    """Return the versions that determine the last digits; compressors come with Python and with the system."""
    versions = {"python": platform.python_version(), "zlib": zlib.ZLIB_RUNTIME_VERSION}
    return versions | {name: number for name in LIBRARIES if (number := version_of(name))}
