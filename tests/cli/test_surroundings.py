"""Tests of surroundings that people meet in containers and on clusters: each is one line that says what to do, or works."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import attnlab
from attnlab._util.files import file_lock
from attnlab._util.user_code import load_file
from attnlab.config.study import StudyConfig
from attnlab.config.yaml import read
from attnlab.errors import UserError
from attnlab.extras.profile.results import load_profile
from attnlab.planning.resolve import import_files
from attnlab.report.stored import load
from attnlab.report.write import load_index
from attnlab.tasks import datasets
from attnlab.tasks.data_files import DataFile
from attnlab.tracking.client import runs_folder

FILES: dict[str, Callable[[Path], object]] = {  # name of a file -> what reads it
    "aclImdb_v1.tar.gz": lambda folder: datasets.verify(datasets.find("imdb")),
    "enwik8.zip": lambda folder: datasets.load(datasets.find("enwik8")),
    "x.txt": lambda folder: DataFile(str(folder / "x.txt"), option="path"),
    "x.py": lambda folder: import_files(StudyConfig(study="s", imports=[str(folder / "x.py")])),
    "y.py": lambda folder: load_file(folder / "y.py"),
    "report.json": load,
    "index.json": load_index,
    "profile.json": load_profile,
    "x.lock": lambda folder: file_lock(folder / "x.lock", activity="x").__enter__(),
}


def test_a_pattern_that_matches_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.fifo")
    (tmp_path / "data").mkdir()
    study = tmp_path / "study.yaml"
    for pattern, kind in (("data.fifo", "named pipe"), ("*.fifo", "matches none"), ("data", "matches none")):
        text = "study: s\ncommand: 'true {a} {seed}'\nfiles: ['" + pattern + "']\ngrid: {a: [1, 2]}\n"
        study.write_text(text + "metric: {name: x, direction: min}\n", encoding="utf-8")
        with pytest.raises(UserError, match=kind) as refused:
            attnlab.plan(study)
        assert refused.value.where == f"{study}:3:9"


def test_a_runs_folder_that_is_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    for name in ("pipe", "file"):
        monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / name))
        with pytest.raises(UserError, match="expected a runs folder, got a file"):
            runs_folder()


def test_a_level_that_is_no_number_is_refused_where_it_stands(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("study: s\ngrid:\n  train.lr: [1e-3, .nan]\n")
    with pytest.raises(UserError, match="expected a number, got '.nan'") as refused:
        read(study, what="a study")
    assert refused.value.where == f"{study}:3:20"


def test_a_user_without_a_home_gets_one() -> None:
    """MLflow asks for it at import, and so do the folders of data and state."""
    code = "import os, pwd; pwd.getpwuid = {}.__getitem__; import attnlab; print(os.environ['HOME'], attnlab.__file__)"
    for home in ({}, {"HOME": "relative"}, {"HOME": "/somewhere"}):
        environment = {**{name: text for name, text in os.environ.items() if name != "HOME"}, **home}
        shown = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
        assert shown.stdout.split()[0] == ("/somewhere" if "/somewhere" in home.values() else "/")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error(closed: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m attnlab list nonsense {closed}; {sys.executable} -m attnlab --version {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and not re.search("Traceback|Errno", done.stderr + done.stdout)
