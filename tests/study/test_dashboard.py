"""`attnlab ui --search` serves Optuna's dashboard of the searches, and lets nobody change them there."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from attnlab.study.trials.dashboard import hosts_of, read_only
from attnlab.study.trials.store import Store
from tests.support.processes import free_port


def test_searches_are_shown_and_cannot_be_changed(tmp_path: Path) -> None:
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
            delete = urllib.request.Request(f"{address}/{search['study_id']}", method="DELETE")
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(delete, timeout=60)
            other_site = urllib.request.Request(address, headers={"Host": f"elsewhere.example:{port}"})
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(other_site, timeout=60)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
    assert len(Store(tmp_path).rdb.get_all_studies()) == 1


@pytest.mark.parametrize(
    ("host", "port", "answered"),
    [
        *(("127.0.0.1:5000", 5000, True), ("LOCALHOST:5000", 5000, True), ("localhost", 80, True), ("127.0.0.1", 80, True)),
        *(("127.0.0.1", 5000, False), ("127.0.0.1:5001", 5000, False), ("", 5000, False), ("evil.example:5000", 5000, False)),
        *(
            ("127.0.0.1:5000,evil.example", 5000, False),
            ("127.0.0.1:5000.evil.example", 5000, False),
            ("evil.example", 80, False),
        ),
    ],
)
def test_only_the_printed_address_is_answered(host: str, port: int, answered: bool) -> None:
    said: list[str] = []
    application = read_only(lambda *_: [b"shown"], hosts=hosts_of(port))
    content = application({"REQUEST_METHOD": "GET", "HTTP_HOST": host}, lambda status, headers: said.append(status))
    assert (list(content) == [b"shown"], said == []) == (answered, answered)
