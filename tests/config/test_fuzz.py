"""Tests that every study file and every assignment gives a plan, or a ``UserError`` of one line with a place.

Hypothesis mutates valid studies (``fuzz``) and shrinks a failure to the smallest one. The default run is the same everywhere;
``pytest -m exhaustive tests/config/test_fuzz.py`` tries 10,000 new files.
"""

import contextlib
import os
import re
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from attnlab.errors import UserError
from attnlab.planning.plan import plan
from tests.config.fuzz import EVERYTHING, OWN_DATA, OWN_TOKENS, files
from tests.support.paths import ROOT

SECONDS = 60  # a file normally takes milliseconds: after this time it has hung
PLACE = re.compile(r"\S+\.(yaml:\d+:\d+|py(:\d+)?): .")  # in the study, or in a file that it imports
# Audit events of starting programs, connecting and deleting, none of which a plan does except to ask git.
DEEDS = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect", "os.remove", "os.rename")
_deeds: list[str] | None = None


def _asks_git(event: str, args: tuple[Any, ...]) -> bool:
    return event == "subprocess.Popen" and args[1][:2] == ["git", "--no-pager"]


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _deeds is None or _asks_git(event, args):  # git lists the files of a program
        return
    if event in DEEDS or (event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")):
        _deeds.append(f"{event} {args}")


class Hung(BaseException):
    """Raised at the time limit; not an Exception, so that no handler takes it for a mistake in the file."""


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Fail if the block hangs, takes gigabytes, or does anything to the system except reading files."""
    global _deeds

    def hung(number: int, frame: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    dont_write, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # the first import of a module may compile it
    _deeds = []
    try:
        yield
        assert not _deeds, f"it did this: {_deeds[:3]}"
    finally:
        _deeds = None
        sys.dont_write_bytecode = dont_write
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder for studies and the files that they import; memory is limited, so that a mistake cannot exhaust the machine's."""
    directory = tmp_path_factory.mktemp("fuzz")
    for path in (ROOT / "examples").rglob("*"):
        if path.suffix in (".py", ".csv"):
            shutil.copy(path, directory)
    np.save(directory / "tokens.npy", np.arange(297) % 7)
    (directory / "bytes.txt").write_text("3\n" * 999, encoding="utf-8")
    plan(written(directory, OWN_TOKENS.encode()))
    plan(written(directory, OWN_DATA.encode()))
    plan(written(directory, EVERYTHING.encode()))  # modules that are imported on first use open files of their own
    if not getattr(sys, "_attnlab_watches", False):
        sys.addaudithook(_hook)
        sys._attnlab_watches = True  # type: ignore[attr-defined]  # a hook cannot be removed
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[5]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_DATA, (used + 2**31, limits[1]))
    yield directory
    resource.setrlimit(resource.RLIMIT_DATA, limits)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "s.yaml"
    path.write_bytes(data)
    return path


def outcome(path: Path) -> str:
    """Return ``accepted`` or ``rejected``; raise ``AssertionError`` or the exception itself for anything else."""
    try:
        with watched():
            plan(path)
    except UserError as error:
        assert PLACE.match(str(error)), f"no place: {error}"
        assert str(error).isprintable(), f"not one printable line: {error!r}"
        return "rejected"
    except Hung:
        raise AssertionError(f"planning took more than {SECONDS} s") from None
    return "accepted"


def examples(count: int, *, repeatable: bool = True) -> Callable[[Any], Any]:
    """Return settings for ``count`` examples without a time limit for each; every run draws the same if ``repeatable``."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return settings(max_examples=count, deadline=None, derandomize=repeatable, database=None, suppress_health_check=slow)


def survey(folder: Path, limits: Callable[[Any], Any]) -> Counter[str]:
    """Plan mutated studies and count the outcomes."""
    counts: Counter[str] = Counter()

    @limits
    @given(data=files)
    def plan_one(data: bytes) -> None:
        counts[outcome(written(folder, data))] += 1

    plan_one()
    return counts


def test_mutated_studies(folder: Path) -> None:
    counts = survey(folder, examples(100))
    assert min(counts["accepted"], counts["rejected"]) > 4, f"the strategies must reach both: {counts}"


@pytest.mark.exhaustive
def test_ten_thousand_mutated_studies(folder: Path) -> None:
    counts = survey(folder, examples(10_000, repeatable=False))
    assert min(counts["accepted"], counts["rejected"]) > 1_000, f"the strategies must reach both: {counts}"
