"""``attnlab submit``: the very command ``attnlab run`` on several machines, as jobs of Slurm by way of submitit.

The machines share the study through its PostgreSQL storage, so a job that ends early, for whatever reason, takes nothing along:
the others go on, and a job that Slurm preempts or whose time is over asks for another turn.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli.printing import near
from attnlab.errors import UserError

if TYPE_CHECKING:
    from submitit import AutoExecutor
    from submitit.helpers import DelayedSubmission

SECRET = "ATTNLAB_STORAGE"  # the address goes by the environment: submitit keeps what a job is given in files
TURNS = 100  # how often a job whose time is over may be queued again


@dataclass(frozen=True)
class StudyJob:
    """What one machine does, in the process that submitit starts there: pickled by reference and by these fields.

    Args:
        words: of the command line, after ``attnlab``.
        shared: the study has a storage, whose address must have reached the machine.
        devices: ``CUDA_VISIBLE_DEVICES`` to restore, which submitit's local jobs overwrite; None: leave it alone.
    """

    words: tuple[str, ...]
    shared: bool
    devices: str | None = None

    def __call__(self) -> None:
        from attnlab.cli.main import main

        if self.devices is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.devices
        if self.shared and not os.environ.get(SECRET):
            raise RuntimeError(f"expected {SECRET} in the job's environment: does this Slurm export it (SBATCH_EXPORT)?")
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm sends it beside the one that asks for another turn
        try:
            code = main(self.words)
        finally:
            signal.signal(signal.SIGTERM, before)
        if code:  # the job's state is then what the command's is
            raise RuntimeError(f"attnlab run ended with exit code {code}: see above")

    def checkpoint(self) -> DelayedSubmission:
        """submitit asks when the job's time is over or its machine is wanted back: to run again is to go on."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit(given: Namespace, *, sets: dict[str, Any], only: dict[str, Any]) -> int:
    """Queue the jobs, say how to watch them, and leave.

    Raises:
        UserError: a mistake in the study or its storage, no submitit, no Slurm.
    """
    from attnlab.planning.plan import plan as make_plan
    from attnlab.study.trials.store import shared_storage
    from attnlab.tracking.client import runs_folder

    _require(given)
    storage = shared_storage(given.storage)
    if storage is None and given.machines > 1:
        raise UserError("expected --storage postgresql://... too: several machines share a study through it", "--machines")
    found = make_plan(given.study, sets=sets, only=only)
    folder = runs_folder() / "submit" / found.study.study
    job = StudyJob(_words(given), storage is not None, os.environ.get("CUDA_VISIBLE_DEVICES", "") if given.local else None)
    executor = _executor(given, folder, name=f"attnlab-{found.study.study}")
    with _environment(SECRET, storage), executor.batch():
        jobs = [executor.submit(job) for _ in range(given.machines)]
    ids = [each.job_id for each in jobs]
    print(f"{len(found.runs)} runs; submitted: {' '.join(ids)}")
    print(f"what they say:  tail -f {near(folder)}/*_log.err")
    if not given.local:
        print(f"the queue:      squeue --jobs {','.join(sorted({each.partition('_')[0] for each in ids}))}")
    print(f"the runs:       attnlab runs {found.study.study}")
    return 0


def _require(given: Namespace) -> None:
    if importlib.util.find_spec("submitit") is None:
        raise UserError("attnlab submit needs submitit, which is not installed: pip install 'attnlab[slurm]'")
    if not given.local and shutil.which("sbatch") is None:
        raise UserError("expected Slurm, got no sbatch on this machine: --local runs the jobs right here")


def _words(given: Namespace) -> tuple[str, ...]:
    """The command line of each machine. Its report would be written by all of them at once: it is left to the person."""
    words = ["run", str(Path(given.study).resolve()), "--workers", str(given.workers), "--no-report"]
    for name in ("set", "only", "retry"):
        values = getattr(given, name)
        words += [f"--{name}", *values] if values else []
    words += ["--until-conclusive"] if given.until_conclusive else []
    words += ["--max-seeds", str(given.max_seeds)] if given.max_seeds else []
    return tuple(words)


def _executor(given: Namespace, folder: Path, *, name: str) -> AutoExecutor:
    from submitit import AutoExecutor

    cluster = "local" if given.local else "slurm"
    executor = AutoExecutor(folder, cluster=cluster, slurm_max_num_timeout=TURNS, local_max_num_timeout=TURNS)
    more: dict[str, Any] = dict(pair.split("=", 1) for pair in given.slurm)
    executor.update_parameters(
        name=name,
        timeout_min=given.timeout,
        cpus_per_task=given.cpus,
        gpus_per_node=given.gpus,
        slurm_partition=given.partition,
        slurm_additional_parameters=more or None,
    )
    return executor


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """Inside, the variable is set, for the processes started there to inherit."""
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
