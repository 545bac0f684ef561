"""Tests that the server of `attnlab ui` ends with the command, however the command ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import free_port, listening


def wait_until_listening(port: int, *, expected: bool, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while bool(listening(port)) != expected:
        assert time.monotonic() < until, f"expected {'a' if expected else 'no'} server on port {port}"
        time.sleep(0.1)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.exhaustive)])
def test_the_server_ends_with_the_command(root: Path, name: str) -> None:
    for module in ("mlflow", "select", "uvicorn"):  # a stranger's: the server runs in this folder
        (root / f"{module}.py").write_text(f"open({str(root / 'ran')!r}, 'w')\n")
    port = free_port()
    command = [sys.executable, "-m", "attnlab", "ui", "--port", str(port)]
    environment = {**os.environ, "ATTNLAB_RUNS": str(root)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            wait_until_listening(port, expected=True)
            process.send_signal(signal.Signals[name])
            process.wait()
            wait_until_listening(port, expected=False)
        finally:
            process.kill()
    assert not (root / "ran").exists()
