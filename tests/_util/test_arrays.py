"""Tests that damaged files of arrays are refused in one line."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest

from attnlab.tracking.artifacts import read_arrays

KINDS = {"score": ("f", 1), "metric": ("U", 0)}
FLOATS = "'descr': '<f8', 'fortran_order': False"
SCORE = numpy.array([1.0, 2.0])


def npz(**content: Any) -> bytes:
    file = io.BytesIO()
    numpy.savez_compressed(file, **content)
    return file.getvalue()


def npy(header: str, data: bytes = b"") -> bytes:
    """Return a file with one array, ``score``, that has this header."""
    file, text = io.BytesIO(), header.ljust(117).encode() + b"\n"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("score.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data)
    return file.getvalue()


def test_arrays_are_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(npz(score=SCORE, metric=numpy.array("loss"), other=numpy.array([None])))
    read = read_arrays(tmp_path / "a.npz", {**KINDS, "keys": ("U", 1)}, optional=["keys"])
    assert read["score"].tolist() == [1, 2] and str(read["metric"]) == "loss" and len(read) == 2


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"x", b"PK\x03\x04", npz(score=SCORE, metric=numpy.array("loss"))[:-40], npz(metric=numpy.array("loss"))),
        *(npz(score=value, metric=numpy.array("loss")) for value in (numpy.array([None]), numpy.array(["x"]), [[1.0]], 1.0)),
        npz(score=SCORE, metric=numpy.array(["a", "b"])),
        *(npy(f"{{{FLOATS}, 'shape': ({size},), }}") for size in (10**12, 10**30, -1)),
        *(npy(header) for header in ("[" * 100, "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "3")),
    ],
)
def test_a_damaged_file_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=".") as refused:
        read_arrays(tmp_path / "a.npz", KINDS)
    assert "\n" not in str(refused.value)
