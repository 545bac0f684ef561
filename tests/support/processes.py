"""The processes of a study under test: found by a mark in the environment that they inherit, and killed for certain.

Linux only: it reads /proc.
"""

import os
import signal
import socket
import struct
import time
from collections.abc import Collection
from pathlib import Path

MARK = "ATTNLAB_MARK"  # the environment variable that a study is started with, so that every process of it can be told
SERVER = b"multiprocessing.forkserver"  # in the command line of the server that runs are forked from, and of theirs


class Marked:
    """Every process that was started with ``MARK`` set to ``mark``, by itself or by one of them."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._words = f"{MARK}={mark}".encode()

    def parents(self) -> dict[int, int]:
        """Each living process -> the one that started it. What is dead and not yet buried is not among them."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self._is_one(int(entry.name)):
                status = _read(int(entry.name), "stat").rpartition(b")")[2].split()
                if status:
                    found[int(entry.name)] = int(status[1])
        return found

    def below(self, pid: int) -> list[int]:
        """The process and all that it started, and they started: parents before children."""
        parents = self.parents()
        found = [pid] if pid in parents else []
        for each in found:
            found += [child for child, parent in parents.items() if parent == each]
        return found

    def runs(self, pid: int) -> list[int]:
        """The processes below ``pid`` that each train a run: children of the fork server."""
        family = self.below(pid)
        servers = {each for each in family if SERVER in _read(each, "cmdline")}
        return [each for each, parent in self.parents().items() if each in family and parent in servers]

    def kill(self, pid: int) -> bool:
        """SIGKILL to a process; whether it was one of ours and alive. Never hits one that got its number since."""
        try:
            if pid <= 0:  # its file was just being written
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
        """SIGKILL to these, by default to every one; how many of them were alive."""
        return sum(self.kill(pid) for pid in (self.parents() if pids is None else pids))

    def gone(self, *, seconds: float = 60) -> bool:
        """Whether all of them end by themselves within some seconds."""
        until = time.monotonic() + seconds
        while self.parents():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def _is_one(self, pid: int) -> bool:
        return self._words in _read(pid, "environ").split(b"\0")


def _read(pid: int, name: str) -> bytes:
    """A file of /proc; empty where the process is gone, is a zombie, or is not ours to look at."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def listening(port: int) -> set[str]:
    """The addresses on which somebody waits for connections to a port: ``{"127.0.0.1"}``."""
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            address, _, number = line.split()[1].partition(":")
            if int(number, 16) == port and line.split()[3] == "0A":
                words = struct.pack(f"={len(address) // 8}I", *(int(address[i : i + 8], 16) for i in range(0, len(address), 8)))
                found.add(socket.inet_ntop(family, words))
    return found
