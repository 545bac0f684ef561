"""`attnlab ui --search` serves Optuna's dashboard of the searches."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from attnlab.study.trials.store import Store
from tests.support.processes import free_port


def test_searches_are_shown(tmp_path: Path) -> None:
    import optuna

    optuna.create_study(study_name="small / dense", storage=Store(tmp_path).rdb)
    port = free_port()
    command = [sys.executable, "-m", "attnlab", "ui", "--search", "--port", str(port)]
    environment = {**os.environ, "ATTNLAB_RUNS": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"searches: http://127.0.0.1:{port}/dashboard/\n"
            address = f"http://127.0.0.1:{port}/api/studies"
            with urllib.request.urlopen(address, timeout=60) as answer:
                (search,) = json.load(answer)["study_summaries"]
            assert search["study_name"] == "small / dense"
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
