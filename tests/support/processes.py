"""Processes of a study under test: identified by a mark in the environment that they inherit, and killed reliably.

Linux only: it reads /proc.
"""

import os
import signal
import socket
import struct
import time
from collections.abc import Collection
from pathlib import Path

MARK = "ATTNLAB_MARK"  # environment variable that identifies every process of a study
SERVER = b"multiprocessing.forkserver"  # in the command line of the fork server of the runs, and of the runs


class Marked:
    """All processes that were started with ``MARK`` set to ``mark``, and their descendants."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._words = f"{MARK}={mark}".encode()

    def parents(self) -> dict[int, int]:
        """Return the parent of each living process, without zombies."""
        parent_of = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self._is_one(int(entry.name)):
                status = _read(int(entry.name), "stat").rpartition(b")")[2].split()
                if status:
                    parent_of[int(entry.name)] = int(status[1])
        return parent_of

    def below(self, pid: int) -> list[int]:
        """Return the process and its descendants, parents before children."""
        parents = self.parents()
        family = [pid] if pid in parents else []
        for ancestor in family:
            family += [child for child, parent in parents.items() if parent == ancestor]
        return family

    def runs(self, pid: int) -> list[int]:
        """Return the processes below ``pid`` that each train a run: children of the fork server."""
        family = self.below(pid)
        servers = set(self._forked(family))
        return [process for process, parent in self.parents().items() if process in family and parent in servers]

    def servers(self, pid: int) -> list[int]:
        """Return the fork server of the parent ``pid``, if it has one."""
        family, parents = self.below(pid), self.parents()
        forked = self._forked(family)
        return [process for process in forked if parents.get(process) not in forked]

    @staticmethod
    def _forked(family: list[int]) -> list[int]:
        return [process for process in family if SERVER in _read(process, "cmdline")]

    def kill(self, pid: int) -> bool:
        """Send SIGKILL to a process; return True if it was marked and alive. A reused number is not hit."""
        try:
            if pid <= 0:  # its file was still being written
                return False
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            if not self._is_one(pid):
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)

    def kill_all(self, pids: Collection[int] | None = None) -> int:
        """Send SIGKILL to these, by default to all; return how many of them were alive."""
        return sum(self.kill(pid) for pid in (self.parents() if pids is None else pids))

    def gone(self, *, seconds: float = 60) -> bool:
        """Return True if all of them exit by themselves within ``seconds``."""
        until = time.monotonic() + seconds
        while self.parents():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def _is_one(self, pid: int) -> bool:
        return self._words in _read(pid, "environ").split(b"\0")


def _read(pid: int, name: str) -> bytes:
    """Return a file of /proc; empty if the process has exited, is a zombie, or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def listening(port: int) -> set[str]:
    """Return the addresses with a listening socket on a port: ``{"127.0.0.1"}``."""
    addresses = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{name}").read_text(encoding="utf-8").splitlines()[1:]:
            address, _, number = line.split()[1].partition(":")
            if int(number, 16) == port and line.split()[3] == "0A":
                words = struct.pack(f"={len(address) // 8}I", *(int(address[i : i + 8], 16) for i in range(0, len(address), 8)))
                addresses.add(socket.inet_ntop(family, words))
    return addresses


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def alive(pid: int) -> bool:
    """Return whether a process runs; zombies do not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
