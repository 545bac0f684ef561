"""The program of one rank, which torchrun starts: ``python -m attnlab.training.distributed.rank``."""

import logging
import os
import signal
import sys
import traceback
from multiprocessing.connection import Client, Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from attnlab._util.log import log_to
from attnlab._util.progress import progress_to
from attnlab.errors import UserError
from attnlab.training.distributed import ADDRESS


def main() -> None:
    """Connect to the launcher, train, and send one last message (kind, value).

    The kinds are ``result``, ``done`` (a rank other than 0), ``mistake`` (a ``UserError``), ``error`` and ``alone`` (another
    rank died).
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    pipe = Client(os.environ[ADDRESS], "AF_UNIX")
    pipe.send((rank, os.getpid()))
    config, folder, rendezvous = pipe.recv()
    answers: SimpleQueue[bool] = SimpleQueue()
    Thread(target=_listen, args=(pipe, answers), daemon=True).start()

    def report(step: int, metrics: dict[str, float]) -> bool:
        pipe.send(("metrics", (step, metrics)))
        return answers.get()

    if rank:  # every rank reads the same checkpoints: one of them logs
        logging.getLogger("attnlab").setLevel(logging.CRITICAL)
    with log_to(print), progress_to(lambda *progress: pipe.send(("progress", progress))):
        message = _train(rank, size, config=config, folder=folder, rendezvous=rendezvous, report=report)
    pipe.send(message)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(message[0] in ("mistake", "error", "alone"))  # skips torch's teardown, which takes seconds


def _train(rank: int, size: int, *, rendezvous: Path, config: Any, **rest: Any) -> tuple[str, Any]:
    from attnlab.training.device import resolve_device
    from attnlab.training.distributed.group import LostRank, Ranks
    from attnlab.training.train import train_rank

    try:
        import torch

        group = Ranks(rank, size, device=torch.device(resolve_device(config.machine.device), rank), rendezvous=rendezvous)
        result = train_rank(config, group=group, **rest)
    except UserError as error:
        return "mistake", error
    except LostRank as error:
        return "alone", str(error)
    except BaseException as error:
        traceback.print_exc()
        return "error", f"{type(error).__name__}: {error}"
    if group.is_rank_zero or result.state == "out_of_memory":
        return "result", result
    return "done", None


def _listen(pipe: Connection, answers: "SimpleQueue[bool]") -> None:
    """Queue the launcher's answers; kill this process at once if the launcher is gone, even in the middle of a computation."""
    try:
        while True:
            answers.put(pipe.recv())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
