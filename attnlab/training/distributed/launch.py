"""Starting the ranks of a run through torchrun, and hearing from them.

Each rank holds a connection to the process that called ``train``: the first rank reports over it, whichever rank
comes to grief says so, and when one end dies the other notices. The socket lies in a folder that only this user may
enter; torchrun and gloo keep to files and to the loopback interface, so no port is open to the network.
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

from attnlab.config.run import RunConfig
from attnlab.training.distributed import ADDRESS
from attnlab.training.result import Report, Result

GONE_WITHIN = 20.0  # seconds that ranks have to end after their last word


@dataclass(frozen=True)
class _Rank:
    """The caller's end of one rank."""

    number: int
    pid: int
    pipe: Connection

    def gone(self, *, within: float) -> bool:
        """Whether it ends within so many seconds; the kernel closes its end of the connection then."""
        try:
            while self.pipe.poll(within):
                self.pipe.recv()
        except (EOFError, OSError):
            return True
        return False

    def end(self) -> None:
        """End it if it is still there, and return when it is not."""
        if not self.gone(within=0):  # so the number is still its own
            os.kill(self.pid, signal.SIGKILL)
            self.gone(within=GONE_WITHIN)
        self.pipe.close()


def train_on_ranks(config: RunConfig, *, report: Report, folder: Path | None) -> Result:
    """``attnlab.training.train.train`` on ``machine.processes_per_run`` ranks; the arguments and the result are the same.

    Raises:
        UserError: as one of the ranks raised it.
        RuntimeError: a rank raised something else, or died; the line names it.
    """
    with tempfile.TemporaryDirectory(prefix="attnlab-ranks-") as name, _ranks(config, Path(name)) as ranks:
        for rank in ranks:
            rank.pipe.send((config, folder, Path(name) / "meeting"))
        return _hear(ranks, report)


def _hear(ranks: list[_Rank], report: Report) -> Result:
    """Pass on what the first rank reports, until there is a result."""
    speaking = {rank.pipe: rank for rank in ranks}
    said = ""
    while speaking:
        for pipe in wait(list(speaking)):
            assert isinstance(pipe, Connection)
            name = f"rank {speaking[pipe].number} of {len(ranks)}"
            try:
                kind, value = pipe.recv()
            except (EOFError, OSError):
                raise RuntimeError(f"{name} died without a word; what it printed may say why") from None
            if kind == "metrics":
                pipe.send(report(*value))
            elif kind == "result":
                return value
            elif kind == "mistake":
                raise value
            elif kind == "error":
                raise RuntimeError(f"{name}: {value}")
            else:  # done, or left alone by another rank: that one is the one to name
                said = f"{name}: {value}"
                del speaking[pipe]
    raise RuntimeError(f"the ranks lost each other: {said}")


@contextmanager
def _ranks(config: RunConfig, place: Path) -> Iterator[list[_Rank]]:
    """The ranks, started and connected; when the block ends they are gone."""
    ranks: list[_Rank] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "socket"))
        server.listen()
        server.settimeout(0.5)
        launcher = subprocess.Popen(_command(config, place), env=_environment(config, place))
        try:
            while len(ranks) < config.machine.processes_per_run:
                ranks += _arrived(server, launcher)
            yield ranks
            for rank in ranks:  # all went well: they end by themselves
                rank.gone(within=GONE_WITHIN)
        finally:
            for rank in ranks:
                rank.end()
            launcher.kill()
            launcher.wait()


def _arrived(server: socket.socket, launcher: "subprocess.Popen[bytes]") -> list[_Rank]:
    """The next rank that connects, or none for now."""
    try:
        connected, _ = server.accept()
    except TimeoutError:
        code = launcher.poll()
        if code is not None:
            raise RuntimeError(f"torchrun ended with exit code {code} before all ranks had begun") from None
        return []
    connected.setblocking(True)
    pipe = Connection(connected.detach())
    with suppress(EOFError):  # it died at once: torchrun is about to end
        number, pid = pipe.recv()
        return [_Rank(number, pid, pipe)]
    return []


def _command(config: RunConfig, place: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        f"--nproc-per-node={config.machine.processes_per_run}",
        *("--nnodes=1", "--max-restarts=0", "--local-addr=127.0.0.1"),
        *("--rdzv-id=attnlab", "--rdzv-backend=c10d", "--rdzv-conf=store_type=file"),
        f"--rdzv-endpoint={place / 'rendezvous'}",
        *("-m", "attnlab.training.distributed.rank"),
    ]


def _environment(config: RunConfig, place: Path) -> dict[str, Any]:
    """What torchrun and the ranks find: this process's environment, its import path and a share of its threads."""
    threads = config.machine.threads or torch.get_num_threads()
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return {
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        **os.environ,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # a server that listens on every interface
        "OMP_NUM_THREADS": str(max(1, threads // config.machine.processes_per_run)),
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        ADDRESS: str(place / "socket"),
    }
