"""Questions to git."""

from __future__ import annotations

import subprocess
from pathlib import Path

TIMEOUT = 20  # seconds


def git(folder: str | Path, *arguments: str) -> str:
    """Return what a command prints; "" if it fails, for example outside of a checkout."""
    words = ["git", "--no-pager", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=TIMEOUT, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):  # no git on this machine
        return ""
    return done.stdout.decode(errors="surrogateescape").strip("\n") if done.returncode == 0 else ""


def listed_files(folder: Path) -> list[str]:
    """Return the names of the files below a folder that git tracks or does not ignore; none outside of a checkout."""
    names = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [name for name in names.split("\0") if name]
