"""Run a command, and end it with all its children when standard input closes: ``python supervise.py COMMAND ...``.

The parent holds the other end of the pipe, which the kernel closes however the parent ends. It starts this file as the leader
of a separate process group. Only the standard library is imported, so that it starts at once.
"""

import os
import signal
import subprocess
import sys
import threading

GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)  # sent to the group, for the command; a handler is not inherited
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_parent, args=(process,), daemon=True).start()
    process.wait()
    os.killpg(0, signal.SIGKILL)  # its children, if any are left, and this process


def _end_with_parent(process: subprocess.Popen[bytes]) -> None:
    sys.stdin.buffer.read()  # until the parent ends
    os.killpg(0, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
