"""Tests of full disks, clock changes and signals: one clear message, the right state, and identical bits after a rerun."""

import functools
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.planning.plan import Plan
from attnlab.planning.plan import plan as make_plan
from attnlab.study import run as study
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.tasks.text import Text
from attnlab.tracking.runs import load_runs
from attnlab.training.checkpoint import load
from tests.support.exactly_once import Curves, Stores, broken_promises, finished
from tests.support.paths import ROOT
from tests.support.processes import MARK, Marked
from tests.support.surroundings import read_only, small_disk

STUDY = """\
study: small
base:
  task: {name: pydocs, length: 16}
  model: {dim: 8, depth: 1, heads: 2}
  train: {steps: 20, batch_size: 2, eval_every: 10, checkpoint_every: 5}
  evaluate: {valid_limit: 500, test_limit: 500}
  machine: {device: cpu, threads: 1}
grid:
  variant: [dense]
seeds: [0, 1]
"""
Said = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    path = tmp_path_factory.mktemp("study") / "small.yaml"
    path.write_text(STUDY)
    return make_plan(path)


@pytest.fixture(scope="module")
def undisturbed(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Curves]:
    """Return fingerprint -> curves of the study, run without disturbance."""
    root = tmp_path_factory.mktemp("undisturbed")
    assert study.run(plan, root=root, display=ProgressDisplay(quiet=True)).ok
    return {key: stores(root).curves(record) for key, record in finished(stores(root).records("small")).items()}


def stores(root: Path) -> Stores:
    return Stores(f"sqlite:///{root / 'mlflow.db'}", f"sqlite:///{root / 'optuna.db'}")


@pytest.fixture
def attnlab_run(plan: Plan, root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that calls ``attnlab run`` on the study, with a fake trainer if named, and returns the exit code."""
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    run = study.run

    def command(fate: str | None = None) -> int:
        monkeypatch.setattr(study, "run", functools.partial(run, train=f"tests.support.study_fakes:{fate}") if fate else run)
        return main.main(["run", str(plan.study.path), "--no-report"])

    return command


def last_line(captured: Said) -> str:
    """Return the last line on standard error, after checking that there is no traceback."""
    text = captured.readouterr().err
    assert "Traceback" not in text
    return text.splitlines()[-1]


def states(root: Path) -> list[str]:
    return list(load_runs("small", root)["state"])


# ---------------------------------------------------------------- full disk


@pytest.mark.parametrize(("fate", "full"), [("disk_fills", "work"), ("disk_fills", "."), ("disk_is_full_at_the_end", ".")])
def test_a_disk_that_fills(
    fate: str, full: str, plan: Plan, root: Path, undisturbed: dict[str, Curves], attnlab_run: Any, capfd: Said
) -> None:
    """The disk fills while a checkpoint is written (databases writable or not), or before a known result is recorded."""
    before = {path: path.read_bytes() for path in root.iterdir() if path.is_file()}
    with small_disk(root / full, size="8m"):
        for path, contents in before.items():
            path.write_bytes(contents)
        assert attnlab_run(fate) == 2
        assert re.match(r"attnlab: .*\bdisk\b.* is full", last_line(capfd))
        kept = sorted(path.name for path in root.glob("work/*/*.*"))
        (root / "work" / "ballast").write_bytes(b"")
        folder = root / "work" / plan.runs[0].fingerprint
        if fate == "disk_fills":
            assert load(folder / "checkpoint.pt")["step"] == 5 and not [name for name in kept if name.endswith(".half")]
            assert full == "." or states(root) == ["interrupted"]
        trained = json.loads((folder / "result.json").read_text()) if "result.json" in kept else None
        assert attnlab_run(fate) == 0
        assert broken_promises(plan, stores(root), reference=undisturbed) == []
        if trained is None:
            assert "resuming from step 5" in (folder / "log.txt").read_text()
        else:  # not trained again
            assert load_runs("small", root)["train_seconds"][0] == trained["result"]["summary"]["train_seconds"]


def big_file(folder: Path, *, size: int = 1 << 20) -> Text:
    path = folder / "text.txt"
    path.write_bytes(bytes([1, *range(1, 256)]) * (size // 256))  # a text has no NUL
    return Text(path=str(path), length=16)


# ---------------------------------------------------------------- read-only disk


def test_prepared_data_are_read_from_a_read_only_disk(folders: Path) -> None:
    task = big_file(folders)
    task.prepare()
    with read_only(folders / "prepared"):
        again = big_file(folders)
        again.prepare()
        assert (again.split("valid") == task.split("valid")).all()
        with pytest.raises(UserError, match=r"^cannot use the folder \S+ .*no permission.*ATTNLAB_CACHE"):
            big_file(folders, size=1 << 16).prepare()
        with pytest.raises(OSError):  # the disk really was read-only
            (folders / "prepared" / "x").touch()


def test_a_folder_of_runs_that_may_only_be_read(root: Path, attnlab_run: Any, capfd: Said) -> None:
    with read_only(root):
        assert attnlab_run() == 2
    assert "Read-only file system" in last_line(capfd)


# ---------------------------------------------------------------- clock set back


# ---------------------------------------------------------------- signals


@contextmanager
def meanwhile(ready: Callable[[], Any], act: Callable[[], Any]) -> Iterator[None]:
    """Call ``act`` in a thread as soon as ``ready()`` is true, while the block runs."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            if ready():
                return act()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def hanging(root: Path) -> list[int]:
    """Return the process ids of the hanging run and of its child; empty until it hangs and both runs are recorded.

    A run starts before its record is opened, and one that is interrupted in between leaves no record.
    """
    pids = [int(pid) for path in root.glob("work/*/pids") for pid in path.read_text().split()]
    return pids if pids and len(states(root)) == 2 else []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_being_asked_to_end(number: signal.Signals, root: Path, attnlab_run: Any, capfd: Said) -> None:
    with meanwhile(lambda: hanging(root), lambda: os.kill(os.getpid(), number)):
        assert attnlab_run("hangs_once") == 130
    assert hanging(root), "somebody else asked before it hung"  # the next attempt would hang instead
    line = last_line(capfd)
    assert line.startswith("attnlab: interrupted: ") and "1 of 2 runs" in line and "rerun" in line
    assert sorted(states(root)) == ["completed", "interrupted"]
    assert attnlab_run("hangs_once") == 0 and states(root) == ["completed"] * 2


SCRIPT = """
import functools, signal, sys
from attnlab.cli import main
from attnlab.study import run as study
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup would have set to be ignored
study.run = functools.partial(study.run, train="tests.support.study_fakes:hangs_once")
sys.exit(main.main(["run", sys.argv[1], "--no-report"]))
"""


def test_a_terminal_that_closes(plan: Plan, root: Path, attnlab_run: Any) -> None:
    marked = Marked(f"terminal-{os.getpid()}")
    outer, inner = pty.openpty()
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    more = {"PYTHONPATH": os.pathsep.join(paths), MARK: marked.mark, "TERM": "xterm"}
    words = ["setsid", "--ctty", sys.executable, "-c", SCRIPT, str(plan.study.path)]
    with subprocess.Popen(words, env=os.environ | more, stdin=inner, stdout=inner, stderr=inner) as process:
        os.close(inner)
        os.set_blocking(outer, False)
        try:
            while not hanging(root):
                assert process.poll() is None, "the study did not get going"
                time.sleep(0.05)
                with suppress(BlockingIOError):
                    os.read(outer, 1 << 16)
            os.close(outer)  # the kernel sends SIGHUP to the processes on the terminal, and later writes fail
            assert process.wait(timeout=60) == 130
            assert marked.gone(), "something was left behind"
        finally:
            marked.kill_all()
    assert sorted(states(root)) == ["completed", "interrupted"]
    assert attnlab_run("hangs_once") == 0
