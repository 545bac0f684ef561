"""Files of the user's that tasks read: their checksums, their parts in each split, and copies of them.

A task reads a copy that is stored under the checksums of its files, so that later changes of a file do not affect a run.
Until the copy has been made, a changed file is other data: the identity of the task changes with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from attnlab._util.files import real_path, sha256, why_no_file
from attnlab.errors import UserError
from attnlab.tasks import SPLITS, datasets
from attnlab.tasks.overlap import NOTABLE, WINDOW, Overlap, overlap

FORMAT = 1  # of the prepared file
DERIVED_PERCENT = 5  # of ``path``, for each of ``valid`` and ``test`` that has no file of its own
CHUNK = 1 << 24  # bytes that are copied at a time


class DataFile:
    """A file that an option of a task names.

    Args:
        path: the file; a relative path starts from the working directory.
        option: the name of the option, for messages.

    Raises:
        UserError: the file does not exist.
    """

    def __init__(self, path: str, *, option: str) -> None:
        self.path = real_path(Path(path).expanduser())
        self.option = option
        if not self.path.is_file():
            raise UserError(f"{option}: expected a file at {self.path}: {why_no_file(self.path)}")
        self._stamped_digest: tuple[tuple[int, int], str] | None = None

    @property
    def stamp(self) -> tuple[int, int]:
        """Size in bytes and time of the last change in nanoseconds."""
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.stamp[0]

    def digest(self) -> str:
        """Return the SHA-256 of the contents, computed again only if the file has another ``stamp``."""
        stamp = self.stamp
        if self._stamped_digest is None or self._stamped_digest[0] != stamp:
            self._stamped_digest = (stamp, sha256(self.path))
        return self._stamped_digest[1]


def same_split_notes(valid: DataFile | None, test: DataFile | None) -> list[str]:
    """Return a note when `valid` and `test` are read from files of the same contents; None is a split without a file."""
    if valid is None or test is None or valid.size != test.size or valid.digest() != test.digest():
        return []
    return [
        f"valid ({valid.path.name}) and test ({test.path.name}) are the same: a checkpoint, an early end, a rate or a trial "
        "that is chosen on valid is chosen on test, and the score on test is too good"
    ]


@dataclass(frozen=True)
class Part:
    """The bytes ``start`` to ``stop`` of a file."""

    file: DataFile
    start: int
    stop: int


class SplitFiles:
    """One array of items in ``train``, ``valid`` and ``test``, from one to three files.

    ``path`` holds ``train``. Each of ``valid`` and ``test`` that has no file is taken from the end of ``path``:
    its last 5 %, in this order.

    Args:
        path, valid, test: the files.
        task: the name of the task.
        items: what a file consists of, for messages, such as ``"bytes"``.
        dtype: of an item.

    Raises:
        UserError: a file does not exist, or its size is not a multiple of an item's size.
    """

    def __init__(
        self, path: str, valid: str | None, test: str | None, *, task: str, items: str = "bytes", dtype: str = "uint8"
    ) -> None:
        named = {"path": path, "valid": valid, "test": test}
        self.files = {option: DataFile(name, option=option) for option, name in named.items() if name is not None}
        self.task, self.items, self.dtype = task, items, np.dtype(dtype).newbyteorder("<")
        self._frozen: tuple[str, tuple[int, int, int]] | None = None  # once read: the digest and the cuts
        for file in self.files.values():
            if file.size % self.dtype.itemsize:
                whole = f"a multiple of {self.dtype.itemsize} bytes, the size of {dtype}"
                raise UserError(f"{file.option}: expected {whole}, but {file.path} has {file.size:,} bytes")

    @property
    def derived(self) -> list[str]:
        """The splits that are taken from the end of ``path``."""
        return [split for split in SPLITS[1:] if split not in self.files]

    def require(self, length: int) -> None:
        """Raise ``UserError`` unless ``train`` has more than ``length`` items, and ``valid`` and ``test`` at least two."""
        parts, size = self.parts(), self.dtype.itemsize
        path, share = self.files["path"], 100 - DERIVED_PERCENT * len(self.derived)
        least = -(-(length + 1) * 100 // share)
        if self.derived:
            least = max(least, 2 * 100 // DERIVED_PERCENT)
        if (parts["train"].stop - parts["train"].start) // size <= length or path.size // size < least:
            counted = self._counted(path)
            raise UserError(f"path: {path.path} has {counted}; rows of {length:,} need {least:,}")
        for option in SPLITS[1:]:
            if option in self.files and self.files[option].size // size < 2:
                file = self.files[option]
                raise UserError(f"{option}: {file.path} has {self._counted(file)}; a split needs at least 2")

    def _counted(self, file: DataFile) -> str:
        count = file.size // self.dtype.itemsize
        return f"{count:,} {self.items.removesuffix('s') if count == 1 else self.items}"

    def parts(self) -> dict[str, Part]:
        """Return the part of a file that each split consists of."""
        path, size = self.files["path"], self.dtype.itemsize
        count, missing = path.size // size, len(self.derived)
        stops = [count * (100 - DERIVED_PERCENT * (missing - i)) // 100 * size for i in range(missing + 1)]
        parts = {"train": Part(path, 0, stops[0])}
        for split in SPLITS[1:]:
            if split in self.files:
                parts[split] = Part(self.files[split], 0, self.files[split].size)
            else:
                i = self.derived.index(split)
                parts[split] = Part(path, stops[i], stops[i + 1])
        return parts

    def mapped(self) -> dict[str, np.ndarray]:
        """Return the items of each split, (n,) and memory-mapped from its file."""
        return {split: _mapped(part.file.path, part.start, part.stop, self.dtype) for split, part in self.parts().items()}

    def overlap_notes(self) -> list[str]:
        """Return notes on ``valid`` and ``test``: if they are the same, or more than a little also occurs in ``train``."""
        parts = self.parts()
        places = tuple((part.file.path, part.start, part.stop, part.file.stamp) for part in parts.values())
        notes = same_split_notes(self.files.get("valid"), self.files.get("test"))
        for split, result in zip(SPLITS[1:], _overlaps(places, self.dtype), strict=True):
            if result.share >= NOTABLE:
                least = "at least " if result.partial else ""
                names = f"{split} ({parts[split].file.path.name}) also occurs in train ({self.files['path'].path.name})"
                window = f"windows of {WINDOW // self.dtype.itemsize} {self.items}"
                notes.append(
                    f"{least}{100 * result.share:.1f} % of {names}, compared in {window}: a model may have memorized it"
                )
        return notes

    def test_share_in(self, other: SplitFiles) -> float:
        """Return the share of the windows of ``test`` that occur in ``train`` of other files; 0 if both have one ``train``."""
        if other.dtype != self.dtype or other.parts()["train"] == self.parts()["train"]:
            return 0.0
        parts = (other.parts()["train"], self.parts()["test"])
        places = tuple((part.file.path, part.start, part.stop, part.file.stamp) for part in parts)
        return _overlaps(places, self.dtype)[0].share

    def cuts(self) -> tuple[int, int, int]:
        """Return the ends of ``train``, ``valid`` and ``test`` in items."""
        if self._frozen is not None:
            return self._frozen[1]
        sizes = [(part.stop - part.start) // self.dtype.itemsize for part in self.parts().values()]
        return sizes[0], sizes[0] + sizes[1], sum(sizes)

    def digest(self) -> str:
        """Return a checksum of the contents: the file's if it is the only one."""
        return self._frozen[0] if self._frozen is not None else _combined(self._digests())

    def _digests(self) -> dict[str, str]:
        return {option: file.digest() for option, file in self.files.items()}

    def read(self) -> np.ndarray:
        """Return the three splits one after another, (n,) and memory-mapped, from a copy in the prepared data.

        Raises:
            UserError: a file changes while it is read.
        """
        digests, cuts = self._digests(), self.cuts()
        key = {"sha256": _combined(digests), "dtype": self.dtype.name, "format": FORMAT}
        folder = datasets.prepared(self.task, key, lambda place: self._copy(place / self.task, digests))
        self._frozen = _combined(digests), cuts
        return np.memmap(folder / self.task, dtype=self.dtype, mode="r")

    def _copy(self, target: Path, digests: dict[str, str]) -> None:
        hashes = {option: hashlib.sha256() for option in self.files}
        with target.open("wb") as out:
            for part in self.parts().values():  # the parts of one file come in its order, and together are all of it
                for chunk in _chunks(part):
                    hashes[part.file.option].update(chunk)
                    out.write(chunk)
        for option, file in self.files.items():
            if hashes[option].hexdigest() != digests[option]:
                raise UserError(f"task {self.task}: {file.path} changed while it was read")


@lru_cache(maxsize=8)  # a plan asks once for each combination of the task's options
def _overlaps(places: tuple[tuple[Path, int, int, tuple[int, int]], ...], dtype: np.dtype) -> list[Overlap]:
    """Return the overlap of ``valid`` and ``test`` with ``train``: of each a file, its bytes and the file's stamp."""
    return overlap(*(_mapped(path, start, stop, dtype) for path, start, stop, _ in places))


def _mapped(path: Path, start: int, stop: int, dtype: np.dtype) -> np.ndarray:
    return np.memmap(path, dtype=dtype, mode="r", offset=start, shape=((stop - start) // dtype.itemsize,))


def _combined(digests: dict[str, str]) -> str:
    if len(digests) == 1:
        return digests["path"]
    return hashlib.sha256(" ".join(f"{option} {digest}" for option, digest in digests.items()).encode()).hexdigest()


def _chunks(part: Part) -> Iterator[bytes]:
    with part.file.path.open("rb") as file:
        file.seek(part.start)
        remaining = part.stop - part.start
        while remaining and (chunk := file.read(min(CHUNK, remaining))):
            remaining -= len(chunk)
            yield chunk


def decode(contents: bytes, file: DataFile, *, encoding: str) -> str:
    """Return the text of a file, without a byte order mark; raise ``UserError`` with the offset of the first invalid byte."""
    try:
        return contents.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        problem = f"the byte 0x{contents[error.start]:02x} at offset {error.start:,}"
        raise UserError(f"{file.option}: expected a text in {encoding.upper()}, but {file.path} has {problem}") from None
