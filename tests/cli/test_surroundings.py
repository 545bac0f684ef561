"""Tests of surroundings that people meet in containers and on clusters: each is one line that says what to do, or works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab._util.files import sha256
from attnlab._util.process import MAX_SOCKET_PATH, require_short_temporary_folder
from attnlab.cli.main import main
from attnlab.config.yaml import read
from attnlab.errors import UserError


def test_a_named_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "study.yaml"
    os.mkfifo(pipe)
    assert main(["plan", str(pipe)]) == 2 and "named pipe" in capsys.readouterr().err
    assert main(["merge", str(pipe)]) == 2 and "named pipe" in capsys.readouterr().err
    with pytest.raises(UserError, match="named pipe"):
        sha256(pipe)


def test_a_level_that_is_no_number_is_refused_where_it_stands(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("study: s\ngrid:\n  train.lr: [1e-3, .nan]\n")
    with pytest.raises(UserError, match="expected a number, got '.nan'") as refused:
        read(study, what="a study")
    assert refused.value.where == f"{study}:3:20"


def test_a_long_path_of_temporary_files_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * MAX_SOCKET_PATH)))
    with pytest.raises(UserError, match="set TMPDIR=/tmp"):
        require_short_temporary_folder()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error(closed: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m attnlab list nonsense {closed}; {sys.executable} -m attnlab --version {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and not re.search("Traceback|Errno", done.stderr + done.stdout)
