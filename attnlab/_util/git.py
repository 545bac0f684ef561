"""Questions to git about a folder, without running programs that the repository in it names."""

import os
import subprocess

TIMEOUT = 20  # seconds
OPTIONS = ("--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
FILTERS = r"^filter\..*\.(clean|smudge|process)$"


def head(folder: str) -> str:
    """Return the commit of the checkout at ``folder``; "" if it is not one, or git is not here."""
    return _git(folder, "rev-parse", "HEAD")


def is_dirty(folder: str) -> bool:
    """Return whether tracked files differ from the commit. Filters that the repository itself defines are not applied."""
    filters = _git(folder, "config", "--local", "--includes", "--name-only", "--get-regexp", FILTERS).splitlines()
    off = [word for name in filters for word in ("-c", f"{name}=", "-c", f"{name.rpartition('.')[0]}.required=false")]
    return bool(_git(folder, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty", options=off))


def _git(folder: str, *arguments: str, options: list[str] | None = None) -> str:
    """Return what a command prints; "" if it fails."""
    words = ["git", *OPTIONS, *(options or []), "-C", folder, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "GIT_EXTERNAL_DIFF"} | ENVIRONMENT
    try:
        done = subprocess.run(
            words, capture_output=True, check=False, timeout=TIMEOUT, env=environment, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):  # no git on this machine
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
