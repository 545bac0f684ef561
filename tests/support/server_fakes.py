"""Stand-ins for ``attnlab.training.train.train`` while the MLflow server is stopped; children import them by name."""

import os
import signal
import time
from pathlib import Path

from attnlab.config.run import RunConfig
from attnlab.training.train import Result
from tests.support.study_fakes import Report

POINTS = 1_000  # more than a pipe holds


def _wait(path: Path) -> None:
    """Wait without a limit until the file exists; the parent of a study ends its children when it gives up."""
    while not path.exists():
        time.sleep(0.02)


def while_it_hangs(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Stop the server in seed 0 (``ATTNLAB_SERVER``: its process group) and end; the parent then waits for a response.

    Meanwhile seed 1 trains to its end and makes the file ``trained``, after which a test may wake the server. The parent
    makes the file ``ready`` when both runs have records, and ``waiting`` when it is about to close that of seed 0.
    """
    stopped, waiting = folder.parent / "stopped", folder.parent / "waiting"
    if config.seed == 0:
        report(0, {"train/loss": 1.0})
        _wait(folder.parent / "ready")
        os.killpg(int(os.environ["ATTNLAB_SERVER"]), signal.SIGSTOP)
        stopped.touch()
        return Result("completed", {"bits_per_byte": 2.0}, 1)
    _wait(stopped)
    _wait(waiting)
    for step in range(POINTS):
        report(step, {"train/loss": 1 / (1 + step), "train/lr": 0.1})
    (folder.parent / "trained").touch()
    return Result("completed", {"bits_per_byte": 2.1}, POINTS)
