"""A pseudo-terminal for tests, and snapshots of what is printed into one."""

import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl
from pathlib import Path

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FOLDER = Path(__file__).parent.parent / "cli" / "snapshots"


def assert_snapshot(name: str, text: str) -> None:
    """Compare the text with ``tests/cli/snapshots/NAME.txt``; ``ATTNLAB_UPDATE_SNAPSHOTS=1`` writes the file instead."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("ATTNLAB_UPDATE_SNAPSHOTS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"if the change is intended, set ATTNLAB_UPDATE_SNAPSHOTS=1: {path.name}"


def run_in_terminal(
    command: Sequence[str],
    *,
    columns: int,
    cwd: Path,
    environment: dict[str, str] | None = None,
    keys: str = "",
    after: str = "",
) -> tuple[int, str]:
    """Run a command on a pseudo-terminal of this width and 24 rows; return its exit code and all that it printed.

    Args:
        keys: typed once the output contains ``after``, such as "\\x03" for Ctrl-C.
    """
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    unset = {"COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    variables |= {"TERM": "xterm-256color", **(environment or {})}
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=variables,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(slave)
    poll = select.poll()  # select.select takes descriptors below 1,024 only
    poll.register(master, select.POLLIN)
    output, deadline = b"", time.monotonic() + 300
    while time.monotonic() < deadline:
        if not poll.poll(1000):
            continue
        try:
            output += os.read(master, 65_536)
        except OSError:  # EIO: every process has closed the terminal
            break
        if keys and after in output.decode(errors="replace"):
            os.write(master, keys.encode())
            keys = ""
    os.close(master)
    return process.wait(60), output.decode()


def _own_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C reaches the process."""
    ioctl(0, termios.TIOCSCTTY, 0)


def plain_lines(output: str) -> list[str]:
    """Return every line that was ever printed, without escape sequences."""
    return [line for part in re.split(r"\r?\n|\r", ESCAPE.sub("", output)) if (line := part.rstrip())]
