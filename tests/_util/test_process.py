"""Tests of child processes: the server that they are forked from may end at any time, and threads may share it."""

import subprocess
import sys
import threading
from pathlib import Path

from attnlab._util import process

PRELOAD = "attnlab._util.machine"


def touch(path: Path) -> None:
    path.touch()


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
        f"import os\nfrom attnlab._util.process import fork\nfork(os.getpid, (), name='child', preload={PRELOAD!r}).join()\n"
    )
    subprocess.run([sys.executable, command], cwd=work, check=True, timeout=60)
    assert not (tmp_path / "ran").exists()
    subprocess.run([sys.executable, "-m", "attnlab", "list", "backends"], cwd=work, check=True, timeout=60)
    assert not (tmp_path / "ran").exists()
