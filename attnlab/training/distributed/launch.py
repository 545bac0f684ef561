"""Launch of a run's ranks through torchrun, and the messages that they send.

Each rank holds a connection to the process that called ``train``: rank 0 reports over it, a rank that fails sends its
error, and when one end dies the other detects it. The socket is in a folder that only this user may enter; torchrun and
gloo use files and the loopback interface, so no port is open to the network.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from attnlab._util.progress import show_progress
from attnlab.config.run import RunConfig
from attnlab.training.distributed import ADDRESS
from attnlab.training.result import Report, Result

EXIT_TIMEOUT = 20.0  # seconds for a rank to exit after its last message


@dataclass(frozen=True)
class _Rank:
    """The caller's end of one rank."""

    number: int
    pid: int
    pipe: Connection

    def wait(self, *, timeout: float) -> bool:
        """Return True when the rank exits within ``timeout`` seconds: the kernel then closes its end of the connection."""
        try:
            while self.pipe.poll(timeout):
                self.pipe.recv()
        except (EOFError, OSError):
            return True
        return False

    def kill(self) -> None:
        """Kill the rank if it is still running, and wait until it has exited."""
        if not self.wait(timeout=0):  # still running, so the pid is still its own
            os.kill(self.pid, signal.SIGKILL)
            self.wait(timeout=EXIT_TIMEOUT)
        self.pipe.close()


def train_on_ranks(config: RunConfig, *, report: Report, folder: Path | None) -> Result:
    """Run ``attnlab.training.train.train`` on ``machine.processes_per_run`` ranks, with the same arguments and result.

    Raises:
        UserError: raised by one of the ranks.
        RuntimeError: a rank raised another error or died; the message names the rank.
    """
    with tempfile.TemporaryDirectory(prefix="attnlab-ranks-") as name, _ranks(config, Path(name)) as ranks:
        for rank in ranks:
            rank.pipe.send((config, folder, Path(name) / "ranks"))
        return _receive(ranks, report)


def _receive(ranks: list[_Rank], report: Report) -> Result:
    """Pass on the reports and the progress of rank 0 until a rank sends the result."""
    connected = {rank.pipe: rank for rank in ranks}
    last = ""
    while connected:
        for pipe in wait(list(connected)):
            assert isinstance(pipe, Connection)
            name = f"rank {connected[pipe].number} of {len(ranks)}"
            try:
                kind, value = pipe.recv()
            except (EOFError, OSError):
                raise RuntimeError(f"{name} died without a message; its output may tell why") from None
            if kind == "metrics":
                pipe.send(report(*value))
            elif kind == "progress":
                show_progress(*value)
            elif kind == "result":
                return value
            elif kind == "mistake":
                raise value
            elif kind == "error":
                raise RuntimeError(f"{name}: {value}")
            else:  # done, or lost another rank, whose own message or death names the cause
                last = f"{name}: {value}"
                del connected[pipe]
    raise RuntimeError(f"the ranks lost each other: {last}")


@contextmanager
def _ranks(config: RunConfig, place: Path) -> Iterator[list[_Rank]]:
    """Start and connect the ranks; kill the remaining ones when the block ends."""
    ranks: list[_Rank] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "socket"))
        server.listen()
        server.settimeout(0.5)
        launcher = subprocess.Popen(_command(config, place), env=_environment(config, place))
        try:
            while len(ranks) < config.machine.processes_per_run:
                ranks += _accept(server, launcher)
            yield ranks
            for rank in ranks:  # after a result they exit by themselves
                rank.wait(timeout=EXIT_TIMEOUT)
        finally:
            for rank in ranks:
                rank.kill()
            launcher.kill()
            launcher.wait()


def _accept(server: socket.socket, launcher: "subprocess.Popen[bytes]") -> list[_Rank]:
    """Return the next rank that connects within the socket's timeout, if any."""
    try:
        connected, _ = server.accept()
    except TimeoutError:
        code = launcher.poll()
        if code is not None:
            raise RuntimeError(f"torchrun ended with exit code {code} before all ranks had started") from None
        return []
    connected.setblocking(True)
    pipe = Connection(connected.detach())
    with suppress(EOFError):  # the rank died at once: torchrun is about to exit
        number, pid = pipe.recv()
        return [_Rank(number, pid, pipe)]
    return []


def _command(config: RunConfig, place: Path) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", "torch.distributed.run"),
        f"--nproc-per-node={config.machine.processes_per_run}",
        *("--nnodes=1", "--max-restarts=0", "--local-addr=127.0.0.1"),
        *("--rdzv-id=attnlab", "--rdzv-backend=c10d", "--rdzv-conf=store_type=file"),
        f"--rdzv-endpoint={place / 'rendezvous'}",
        *("-m", "attnlab.training.distributed.rank"),
    ]


def _environment(config: RunConfig, place: Path) -> dict[str, Any]:
    """Return the environment of torchrun and the ranks: this process's, with its import path and a share of its threads."""
    threads = config.machine.threads or torch.get_num_threads()
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return {
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        **os.environ,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # such a server would listen on every interface
        "OMP_NUM_THREADS": str(max(1, threads // config.machine.processes_per_run)),
        "PYTHONPATH": os.pathsep.join(_import_path()),
        "PYTHONSAFEPATH": "1",  # for the ranks, which torchrun starts with python -m
        ADDRESS: str(place / "socket"),
    }


def _import_path() -> list[str]:
    """Return this process's import path with the working directory last: its files must not shadow the standard library."""
    paths = [path or os.getcwd() for path in sys.path]
    return sorted(paths, key=lambda path: Path(path) == Path.cwd())
