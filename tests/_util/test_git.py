"""Tests of the answers of git."""

import subprocess
from pathlib import Path

from attnlab.tracking.tags import checkout


def test_a_commit_and_changed_files_are_seen(tmp_path: Path) -> None:
    def call(*words: str) -> None:
        author = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *author, "-C", str(tmp_path), *words], check=True, capture_output=True)

    call("init")
    (tmp_path / "a.txt").write_text("a\n")
    call("add", ".")
    call("commit", "-m", "a")
    commit, dirty = checkout(str(tmp_path))
    assert len(commit) == 40 and not dirty
    (tmp_path / "a.txt").write_text("b\n")
    checkout.cache_clear()
    assert checkout(str(tmp_path)) == (commit, "+dirty")


def test_a_folder_without_a_repository_has_no_commit(tmp_path: Path) -> None:
    assert checkout(str(tmp_path)) == checkout(str(tmp_path / "nowhere")) == ("", "")
