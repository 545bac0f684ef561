"""Tests of git in a repository of somebody else: programs that it names are not run, and the answers are right."""

import os
import subprocess
from pathlib import Path

import pytest

from attnlab.tracking import tags


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with one committed file, and programs in every place where git would run one."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/it_was_run\ncat\n")
    program.chmod(0o755)

    def call(*words: str) -> None:
        author = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *author, "-C", str(folder), *words], check=True, capture_output=True)

    call("init")
    (folder / "a.txt").write_text("a\n")
    (folder / ".gitattributes").write_text("*.txt filter=theirs diff=theirs\n")
    call("add", ".")
    call("commit", "-m", "a")
    for key in ("core.fsmonitor", "filter.theirs.clean", "filter.theirs.smudge", "diff.external", "diff.theirs.textconv"):
        call("config", key, str(program))
    call("config", "core.pager", str(program))
    call("config", "filter.theirs.required", "true")
    (folder / "more.config").write_text(f'[filter "theirs"]\n\tprocess = {program}\n')
    call("config", "include.path", "../more.config")
    hooks = folder / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "pre-commit", "fsmonitor-watchman"):
        (hooks / name).write_text(program.read_text())
        (hooks / name).chmod(0o755)
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(program))
    (tmp_path / "it_was_run").unlink(missing_ok=True)
    return folder


def test_programs_of_the_repository_are_not_run(repository: Path) -> None:
    os.utime(repository / "a.txt", (1, 1))  # git has to read the file, through its filter
    assert len(tags.git_commit(str(repository))) == 40 and not tags.git_is_dirty(str(repository))
    (repository / "a.txt").write_text("b\n")
    assert tags.git_is_dirty(str(repository))
    assert not (repository.parent / "it_was_run").exists()
    subprocess.run(["git", "-C", str(repository), "status"], capture_output=True, check=False)
    assert (repository.parent / "it_was_run").exists(), "the test's own programs do run"


def test_a_folder_without_a_repository_has_no_commit(tmp_path: Path) -> None:
    assert tags.git_commit(str(tmp_path)) == ""
    assert tags.git_commit(str(tmp_path / "nowhere")) == ""
