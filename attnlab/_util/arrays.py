"""Arrays in files that somebody else may have made."""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._util.files import describe_error, require_no_pipe

if TYPE_CHECKING:
    import numpy

MAX_BYTES = 1 << 30  # that a file may unpack to: a compressed file of zeros is a thousandth of its content


def read_arrays(
    source: Path | bytes, kinds: Mapping[str, tuple[str, int]], *, optional: Collection[str] = ()
) -> dict[str, numpy.ndarray]:
    """Return arrays of an ``.npz`` file by name, after checking them; loading the file runs no code from it.

    Args:
        source: the file, or its content.
        kinds: name -> the data types that the array may have (``dtype.kind``), and its number of axes.
        optional: names of arrays that may be missing.

    Raises:
        ValueError: the file is damaged, would unpack to more than `MAX_BYTES`, lacks an array, or has another one.
        UserError: the file is a named pipe.
    """
    import numpy

    if isinstance(source, Path):
        require_no_pipe(source)
    try:
        with zipfile.ZipFile(_opened(source)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > MAX_BYTES:
            raise ValueError(f"expected at most {MAX_BYTES / 1e6:,.0f} MB, got a file that unpacks to {unpacked / 1e6:,.0f} MB")
        with numpy.load(_opened(source), allow_pickle=False) as file:
            arrays = {name: file[name] for name in kinds if name in file or name not in optional}
    except Exception as error:  # any exception: the file may be damaged or hostile
        raise ValueError(describe_error(error)) from error
    for name, array in arrays.items():
        types, axes = kinds[name]
        if array.dtype.kind not in types or array.ndim != axes:
            expected = f"expected {name!r} of type {' or '.join(types)} with {axes} axes"
            raise ValueError(f"{expected}, got type {array.dtype} and shape {array.shape}")
    return arrays


def _opened(source: Path | bytes) -> Path | BytesIO:
    return source if isinstance(source, Path) else BytesIO(source)
