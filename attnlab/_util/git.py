"""Questions to git, which runs no program that a repository names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

TIMEOUT = 20  # seconds
OPTIONS = ("--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


def git(folder: str | Path, *arguments: str, options: Sequence[str] = ()) -> str:
    """Return what a command prints; "" if it fails, for example outside of a checkout."""
    words = ["git", *OPTIONS, *options, "-C", str(folder), *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "GIT_EXTERNAL_DIFF"} | ENVIRONMENT
    try:
        done = subprocess.run(
            words, capture_output=True, check=False, timeout=TIMEOUT, env=environment, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):  # no git on this machine
        return ""
    return done.stdout.decode(errors="surrogateescape").strip("\n") if done.returncode == 0 else ""


def listed_files(folder: Path) -> list[str]:
    """Return the names of the files below a folder that git tracks or does not ignore; none outside of a checkout."""
    names = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [name for name in names.split("\0") if name]
