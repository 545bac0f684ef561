"""Tests of studies as Slurm jobs: submission, the job itself, errors before anything is queued, and no password in any file."""

import importlib.util
import os
import shutil
import signal
import time
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Any

import pytest
from submitit import LocalJob
from submitit.helpers import DelayedSubmission

from attnlab import plan
from attnlab._util.process import as_interrupts
from attnlab.cli import main as cli
from attnlab.errors import UserError
from attnlab.extras.slurm.jobs import Job, StudyRequest
from attnlab.planning.plan import Plan
from attnlab.study import adaptive
from attnlab.study import run as study
from attnlab.study.result import StudyResult
from attnlab.tracking.record import unrecorded
from tests.support.exactly_once import Stores, broken_promises, finished
from tests.support.postgres import PASSWORD

if TYPE_CHECKING:
    from tests.support.postgres import Server

STUDY = """\
study: shared
imports: [meeting.py]
base:
  task: {name: pydocs, length: 17}
  model: {dim: 12, depth: 1, heads: 2}
  train: {steps: 3, batch_size: 3}
  evaluate: {valid_limit: 300, test_limit: 300}
  machine: {threads: 1, device: cpu}
grid:
  variant: [met, no_wo]
seeds: [0, 1]
"""
# The first run waits until a second one runs at the same time; with one worker per machine, that is on the other machine.
MEETING = """\
import multiprocessing, os, time
from pathlib import Path
from attnlab import register_variant
from attnlab.variants.dense import Dense


@register_variant("met")
class Met(Dense):
    pass


if multiprocessing.current_process().name == "attnlab-run":
    place = Path(__file__).with_name("met")
    place.mkdir(exist_ok=True)
    (place / str(os.getpid())).touch()
    while len(list(place.iterdir())) < 2:
        time.sleep(0.05)
"""
Out = pytest.CaptureFixture[str]
ADDRESS = f"postgresql://attnlab:{PASSWORD}@127.0.0.1:9/optuna"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a temporary working directory with a study file."""
    (tmp_path / "shared.yaml").write_text(STUDY)
    (tmp_path / "meeting.py").write_text(MEETING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("ATTNLAB_HEARTBEAT", "1")
    return tmp_path


def submit_error(capsys: Out, *words: str) -> str:
    assert cli.main(["submit", "shared.yaml", *words]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and PASSWORD not in line
    return line


def wait_for(path: Path, *, seconds: float = 900) -> None:
    """Wait for a file, because the jobs outlive the command that started them."""
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"no {path.name} after {seconds:g} s"
        time.sleep(0.2)


def test_two_machines_share_one_study(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out, postgres: "Server") -> None:
    stores = Stores(tracking=postgres.store(), storage=postgres.database())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", stores.tracking)
    words = ["--machines", "2", "--workers", "1", "--local", "--storage", stores.storage]
    assert cli.main(["submit", "shared.yaml", *words]) == 0
    out = capsys.readouterr().out
    ids = out.splitlines()[0].removeprefix("4 runs; submitted jobs: ").split()
    folder = here / "runs" / "submit" / "shared"
    assert len(ids) == 2 and "tail -f runs/submit/shared/*_log.err" in out and "attnlab runs shared" in out
    assert "ATTNLAB_STORAGE" not in os.environ, "the variable is set for the jobs only"
    for job in [LocalJob[None](folder, job_id) for job_id in ids]:
        wait_for(job.paths.result_pickle)
        assert job.exception() is None, job.stderr()
    curves = {key: stores.curves(record) for key, record in finished(stores.records("shared")).items()}
    assert broken_promises(plan("shared.yaml"), stores, reference=curves) == []
    written = [path for path in folder.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert list(folder.rglob("*_submitted.pkl")) and not written


def test_errors_are_reported_before_anything_is_queued(here: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    error = submit_error(capsys, "--machines", "2", "--local")
    assert error.startswith("attnlab: --machines: ") and "--storage postgresql://" in error
    assert "MLFLOW_TRACKING_URI" in submit_error(capsys, "--machines", "2", "--local", "--storage", ADDRESS)
    assert "did you mean 'train.steps'" in submit_error(capsys, "--local", "--set", "train.stepz=3")
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "sbatch" else real(name))
    error = submit_error(capsys)
    assert "sbatch" in error and "--local" in error
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'attnlab[slurm]'" in submit_error(capsys, "--local")
    assert not (here / "runs").exists()


SBATCH = """\
#!/bin/sh
cp "$1" "$QUEUED"
echo "$ATTNLAB_STORAGE" > "$QUEUED.env"
echo Submitted batch job 77
"""


def test_slurm_receives_an_array_and_the_address_through_the_environment(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    for name, text in (("sbatch", SBATCH), ("srun", "#!/bin/sh\n")):  # submitit looks for srun
        (here / "bin" / name).parent.mkdir(exist_ok=True)
        (here / "bin" / name).write_text(text)
        (here / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{here / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("QUEUED", str(here / "queued.sh"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.lab")
    words = ["--machines", "3", "--storage", ADDRESS, "--timeout", "8h", "--partition", "gpu", "--gpus", "2"]
    assert cli.main(["submit", "shared.yaml", *words, "--slurm", "account=lab", "--slurm", "mem=32G"]) == 0
    queued = (here / "queued.sh").read_text()
    for flag in ("array=0-2%3", "time=480", "partition=gpu", "gpus-per-node=2", "account=lab", "mem=32G"):
        assert f"#SBATCH --{flag}\n" in queued
    assert PASSWORD not in queued and PASSWORD in (here / "queued.sh.env").read_text()
    assert "squeue --jobs 77\n" in capsys.readouterr().out


def test_a_job_that_slurm_interrupts_is_queued_again() -> None:
    job = Job(StudyRequest(Path("a.yaml")), shared=True)
    again = job.checkpoint()
    assert isinstance(again, DelayedSubmission) and again.function is job


def test_the_sigterm_that_slurm_sends_as_a_warning_does_not_end_the_study(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(plan: Plan, **options: object) -> StudyResult:
        with as_interrupts():
            os.kill(os.getpid(), signal.SIGTERM)
        return StudyResult(plan, [])

    monkeypatch.setattr(study, "run", run)
    before = signal.getsignal(signal.SIGTERM)
    Job(StudyRequest(here / "shared.yaml"), shared=False)()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_job_runs_what_was_requested(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def run(plan: Plan, **options: Any) -> StudyResult:
        calls.append({"cells": [cell.name for cell in plan.cells], "steps": plan.cells[0].config.train.steps, **options})
        return StudyResult(plan, [])

    def run_until_conclusive(plan: Plan, *, max_seeds: int, **options: Any) -> StudyResult:
        calls.append({"max_seeds": max_seeds})
        return StudyResult(plan, [])

    monkeypatch.setattr(study, "run", run)
    monkeypatch.setattr(adaptive, "run_until_conclusive", run_until_conclusive)
    path = here / "shared.yaml"
    request = StudyRequest(path, {"train.steps": 5}, {"variant": "no_wo"}, workers=2, retry=("diverged",), check=False)
    Job(request, shared=False)()
    Job(StudyRequest(path, adaptive={"max_seeds": 9}), shared=False)()
    options = {"only": {"variant": "no_wo"}, "workers": 2, "retry": ("diverged",), "check": False}
    assert calls == [{"cells": ["no_wo"], "steps": 5, **options}, {"max_seeds": 9}]


def test_failed_runs_fail_their_job(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(plan: Plan, **options: object) -> StudyResult:
        return StudyResult(plan, [unrecorded(plan.runs[0], "by the test")])

    monkeypatch.setattr(study, "run", run)
    with pytest.raises(RuntimeError, match="met s0"):
        Job(StudyRequest(here / "shared.yaml"), shared=False)()


@pytest.mark.parametrize("error", [UserError(f"no answer from {ADDRESS}"), KeyboardInterrupt("interrupted: 1 of 4 runs")])
def test_a_study_that_stops_fails_its_job_and_writes_no_password(
    error: BaseException, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(plan: Plan, **options: object) -> StudyResult:
        raise error

    monkeypatch.setattr(study, "run", run)
    with pytest.raises(RuntimeError) as raised:
        Job(StudyRequest(here / "shared.yaml"), shared=False)()
    assert str(error)[:10] in str(raised.value) and PASSWORD not in "".join(format_exception(raised.value))


def test_a_job_without_its_address_does_not_start_a_study_of_its_own(here: Path) -> None:
    with pytest.raises(RuntimeError, match="ATTNLAB_STORAGE"):
        Job(StudyRequest(here / "shared.yaml"), shared=True)()
    assert not (here / "runs").exists()
