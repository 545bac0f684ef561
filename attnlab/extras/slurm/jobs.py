"""A study as Slurm jobs, by way of submitit.

The machines share the study through its PostgreSQL storage, so a job that ends early does not affect the others: they continue
with the queue, and a job that Slurm preempts or that reaches its time limit is queued again.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.log import log_to
from attnlab._util.packages import require
from attnlab._util.redact import redact
from attnlab.errors import UserError
from attnlab.study.execution.concurrency import Workers, requested_workers

if TYPE_CHECKING:
    from submitit import AutoExecutor
    from submitit.helpers import DelayedSubmission

    from attnlab.planning.plan import Plan

STORAGE = (
    "ATTNLAB_STORAGE"  # passes the address: submitit writes the arguments of a job to files, which a password must not reach
)
MAX_REQUEUES = 100  # how often a job that reaches its time limit is queued again


@dataclass(frozen=True)
class StudyRequest:
    """The study that every job runs, and its options.

    Attributes:
        study: absolute path of the YAML file.
        sets, only, workers, retry, check: as for `attnlab.run`. Without workers, each machine measures its number.
        adaptive: add seeds until every verdict is conclusive, with these options of
            `attnlab.study.adaptive.run_until_conclusive`; None: run the study's seeds.

    Raises:
        UserError: `workers` is neither a whole number of at least 1 nor "auto".
    """

    study: Path
    sets: dict[str, Any] = field(default_factory=dict)
    only: dict[str, Any] = field(default_factory=dict)
    workers: Workers | None = None
    retry: tuple[str, ...] = ()
    check: bool = True
    adaptive: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        requested_workers(self.workers)

    def plan(self) -> Plan:
        """Return the plan of the study.

        Raises:
            UserError: a mistake in the study.
        """
        from attnlab.planning.plan import plan

        return plan(self.study, sets=self.sets, only=self.only)


@dataclass(frozen=True)
class Resources:
    """The machines of the jobs.

    Attributes:
        machines: number of jobs, one per machine.
        timeout_min: time limit of a job in minutes.
        cpus, gpus: per machine; None: the cluster's default.
        partition: of Slurm; None: the cluster's default.
        slurm: further options of sbatch.
        local: start the jobs on this machine, without Slurm.
    """

    machines: int = 1
    timeout_min: int = 24 * 60
    cpus: int | None = None
    gpus: int | None = None
    partition: str | None = None
    slurm: dict[str, str] = field(default_factory=dict)
    local: bool = False


@dataclass(frozen=True)
class Submission:
    """The submitted jobs: their ids, the folder of their logs, and the plan of the study."""

    ids: list[str]
    folder: Path
    plan: Plan


@dataclass(frozen=True)
class Job:
    """One machine's part, called in the process that submitit starts there; pickled by reference and by these fields.

    Attributes:
        request: the study to run.
        shared: the study has a storage, and its address must have reached the machine.
        devices: value of `CUDA_VISIBLE_DEVICES` to restore, which submitit's local jobs overwrite; None: leave it.
    """

    request: StudyRequest
    shared: bool
    devices: str | None = None

    def __call__(self) -> None:
        """Run the study.

        Raises:
            RuntimeError: the study cannot run, was interrupted, or has failed runs; submitit then marks the job as failed.
        """
        if self.devices is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.devices
        if self.shared and not os.environ.get(STORAGE):
            raise RuntimeError(f"expected {STORAGE} in the job's environment: does this Slurm export it (SBATCH_EXPORT)?")
        # Slurm sends SIGTERM together with the signal that makes submitit queue the job again.
        previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            with log_to(lambda line: print(line, file=sys.stderr, flush=True)):
                failed = _run(self.request)
        except (UserError, KeyboardInterrupt) as error:
            raise RuntimeError(redact(str(error)) or "interrupted") from None  # submitit writes the error to a file
        finally:
            signal.signal(signal.SIGTERM, previous)
        if failed:
            raise RuntimeError(f"runs without a result: {', '.join(failed)}")

    def checkpoint(self) -> DelayedSubmission:
        """Return the job to queue when its time is over or it is preempted: this one, because running it again resumes."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _run(request: StudyRequest) -> list[str]:
    """Run the study, print a line per run, and return the names of the failed runs."""
    from attnlab.study.adaptive import run_until_conclusive
    from attnlab.study.run import run

    plan = request.plan()
    plan.require_runs()
    options: dict[str, Any] = {"only": request.only, "workers": request.workers, "retry": request.retry}
    options["check"] = request.check
    if request.adaptive is None:
        result = run(plan, **options)
    else:
        result = run_until_conclusive(plan, run=run, **request.adaptive, **options)
    print(result)
    return [row.name for row in result.failed]


def submit(request: StudyRequest, resources: Resources, *, storage: str | None = None) -> Submission:
    """Queue one job per machine and return without waiting for them.

    Args:
        storage: `postgresql://...` of the queue that the machines share; default `ATTNLAB_STORAGE`.

    Raises:
        UserError: a mistake in the study or its storage, a variant that fails the check, several machines without a storage,
            no submitit, no Slurm.
    """
    from attnlab.study.plan import check_own_variants
    from attnlab.study.trials.store import shared_storage
    from attnlab.tracking.client import runs_folder

    require("attnlab submit", "submitit")
    if not resources.local and shutil.which("sbatch") is None:
        raise UserError("expected Slurm, found no sbatch on this machine; --local starts the jobs here")
    url = shared_storage(storage)
    if url is None and resources.machines > 1:
        raise UserError("several machines share a study through a database: add --storage postgresql://...", "--machines")
    plan = request.plan()
    if request.check:
        check_own_variants(plan)
    folder = runs_folder() / "submit" / plan.study.study
    job = Job(request, url is not None, os.environ.get("CUDA_VISIBLE_DEVICES", "") if resources.local else None)
    executor = _executor(resources, folder, name=f"attnlab-{plan.study.study}")
    with _environment(STORAGE, url), executor.batch():
        jobs = [executor.submit(job) for _ in range(resources.machines)]
    return Submission([job.job_id for job in jobs], folder, plan)


def _executor(resources: Resources, folder: Path, *, name: str) -> AutoExecutor:
    from submitit import AutoExecutor

    cluster = "local" if resources.local else "slurm"
    executor = AutoExecutor(folder, cluster=cluster, slurm_max_num_timeout=MAX_REQUEUES, local_max_num_timeout=MAX_REQUEUES)
    executor.update_parameters(
        name=name,
        timeout_min=resources.timeout_min,
        cpus_per_task=resources.cpus,
        gpus_per_node=resources.gpus,
        slurm_partition=resources.partition,
        slurm_additional_parameters=resources.slurm or None,
    )
    return executor


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """Set an environment variable for the processes that are started inside; None leaves it as it is."""
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
