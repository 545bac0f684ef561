"""Tests of child processes: the server that they are forked from may end at any time, and threads may share it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnlab._util import process

PRELOAD = "attnlab._util.machine"


@pytest.fixture(scope="module", autouse=True)
def own_server() -> Iterator[None]:
    """Kill this module's server at the end: each run of a study that was forked from it would have to import torch itself."""
    yield
    if process.fork_server_id() is not None:
        kill_server()


def touch(path: Path) -> None:
    path.touch()


def kill_server() -> None:
    """Kill the server, and wait until it has gone."""
    server = process.fork_server_id()
    assert server is not None
    os.kill(server, signal.SIGKILL)
    os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)  # leave it to multiprocessing to reap


def test_a_process_starts_although_its_server_was_killed(tmp_path: Path) -> None:
    process.start_fork_server(PRELOAD)
    kill_server()
    assert process.fork_server_id() is None
    child = process.fork(touch, lambda: (tmp_path / "child",), name="test", preload=PRELOAD)
    child.join()
    assert child.exitcode == 0 and (tmp_path / "child").exists() and process.fork_server_id() is not None


def test_a_server_that_dies_quickly_is_started_again_after_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies twice while it forks. Each attempt has arguments of its own."""
    paths = iter([tmp_path / "first", tmp_path / "second", tmp_path / "third"])
    errors, pauses = [EOFError("unexpected EOF"), BrokenPipeError()], list[float]()
    start = process.ForkServerProcess.start

    def die_first(child: process.ForkServerProcess) -> None:
        if errors:
            raise errors.pop()
        start(child)

    monkeypatch.setattr(process.ForkServerProcess, "start", die_first)
    monkeypatch.setattr(process.time, "sleep", pauses.append)
    child = process.fork(touch, lambda: (next(paths),), name="test", preload=PRELOAD)
    child.join()
    assert child.exitcode == 0 and len(pauses) == 2 and pauses == sorted(pauses)
    assert [path.name for path in tmp_path.iterdir()] == ["third"]


def test_threads_that_start_processes_leave_the_main_module_in_place() -> None:
    main = sys.modules["__main__"]
    entered, release = threading.Event(), threading.Event()

    def enter() -> None:
        with process._hidden_main():
            entered.set()
            release.wait(timeout=60)

    thread = threading.Thread(target=enter)
    with process._hidden_main():
        thread.start()
        entered.wait(timeout=0.5)
    release.set()
    thread.join()
    assert sys.modules["__main__"] is main


def test_a_server_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    """A file of each name of the standard library lies there. Neither the server nor the resource tracker may run one."""
    work, command = tmp_path / "work", tmp_path / "bin/command"
    work.mkdir()
    for name in sys.stdlib_module_names - {"sys", "builtins", "__main__"}:
        (work / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n")
    command.parent.mkdir()
    command.write_text(
        f"import os\nfrom attnlab._util.process import fork\nfork(os.getpid, tuple, name='child', preload={PRELOAD!r}).join()\n"
    )
    subprocess.run([sys.executable, command], cwd=work, check=True, timeout=60)
    assert not (tmp_path / "ran").exists()
    subprocess.run([sys.executable, "-m", "attnlab", "list", "backends"], cwd=work, check=True, timeout=60)
    assert not (tmp_path / "ran").exists()
