"""Tests of atomic writes and digests."""

import os
import stat
from pathlib import Path

import pytest

from attnlab._util.files import replacing, sha256
from attnlab.tasks import datasets


def test_replacing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as half:
        half.write_text("ne")
        raise RuntimeError
    assert path.read_text() == "old" and [file.name for file in tmp_path.iterdir()] == ["checkpoint"]
    with replacing(path) as half:
        half.write_text("new")
    assert path.read_text() == "new" and [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_and_folders_have_the_permissions_that_the_umask_allows(umask: int, mode: int, folders: Path) -> None:
    before = os.umask(umask)
    try:
        with replacing(folders / "a" / "b") as half:
            half.touch()
            assert stat.S_IMODE(half.stat().st_mode) == mode
        place = datasets.prepared("x", {}, lambda folder: (folder / "y").touch())
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folders / "a" / "b", place / "y", place / "manifest.json")]
    assert modes == [mode] * 3
    assert stat.S_IMODE(place.stat().st_mode) == stat.S_IMODE((folders / "a").stat().st_mode) == 0o777 & ~umask


def test_sha256_is_that_of_the_contents(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
