"""Tests of atomic writes and digests."""

from pathlib import Path

import pytest

from attnlab._util.files import replacing, sha256


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


def test_sha256_is_that_of_the_contents(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
