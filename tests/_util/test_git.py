"""Tests of the answers of git."""

import subprocess
from pathlib import Path

from attnlab.tracking.tags import git_tags


def test_a_commit_and_changed_files_are_seen(tmp_path: Path) -> None:
    def call(*words: str) -> None:
        author = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *author, "-C", str(tmp_path), *words], check=True, capture_output=True)

    call("init")
    (tmp_path / "a.txt").write_text("a\n")
    call("add", ".")
    call("commit", "-m", "a")
    commit = git_tags(str(tmp_path))["attnlab.commit"]
    assert len(commit) == 12
    (tmp_path / "a.txt").write_text("b\n")
    git_tags.cache_clear()
    assert git_tags(str(tmp_path))["attnlab.commit"] == f"{commit}+dirty"


def test_a_folder_without_a_repository_has_no_commit(tmp_path: Path) -> None:
    assert git_tags(str(tmp_path)) == git_tags(str(tmp_path / "nowhere")) == {}
