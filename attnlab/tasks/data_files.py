"""Files of the user's that tasks read: their checksums, their parts in each split, and copies of them.

A task reads a copy that is stored under the checksums of its files, so that later changes of a file do not affect a run.
Until the copy has been made, a changed file is other data: the identity of the task changes with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from attnlab._util.files import real_path, sha256, why_no_file
from attnlab.errors import UserError
from attnlab.tasks import SPLITS, datasets
from attnlab.tasks.overlap import NOTABLE, WINDOW, Overlap, overlap

FORMAT = 2  # of the prepared file
DERIVED_PERCENT = 5  # of ``path``, for each of ``valid`` and ``test`` that has no file of its own
POINTER = b"version https://git-lfs"  # begins the text that stands for a large file in a repository

_overlaps: dict[tuple[str, tuple[int, int, int]], list[Overlap]] = {}  # of each digest and cuts: a plan asks often


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

    def digest(self) -> str:
        """Return the SHA-256 of the contents, computed again only if the file has another ``stamp``."""
        stamp = self.stamp
        if self._stamped_digest is None or self._stamped_digest[0] != stamp:
            self._stamped_digest = (stamp, sha256(self.path))
        return self._stamped_digest[1]


def require_text(contents: bytes, file: DataFile) -> None:
    """Raise ``UserError`` when a file is no text: archives, Parquet, pickles and UTF-16 have NUL bytes, and a text has none."""
    if (offset := contents.find(b"\0")) >= 0:
        found = f"has a NUL byte at offset {offset:,}, as archives, Parquet files and texts in UTF-16 have"
    elif contents.startswith(POINTER):
        found = "is a pointer of Git LFS: `git lfs pull` fetches the file"
    else:
        return
    raise UserError(f"{file.option}: expected a text, but {file.path} {found}")


def decode(contents: bytes, file: DataFile, *, encoding: str = "utf-8") -> str:
    """Return the text of a file, without a byte order mark; raise ``UserError`` if it is no text in this encoding."""
    try:
        text = contents.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        require_text(contents, file)
        problem = f"the byte 0x{contents[error.start]:02x} at offset {error.start:,}"
        raise UserError(f"{file.option}: expected a text in {encoding.upper()}, but {file.path} has {problem}") from None
    require_text(text.encode(errors="replace"), file)
    return text


def same_split_notes(valid: DataFile | None, test: DataFile | None) -> list[str]:
    """Return a note when `valid` and `test` are read from files of the same contents; None is a split without a file."""
    if valid is None or test is None or valid.digest() != test.digest():
        return []
    return [f"valid ({valid.path.name}) and test ({test.path.name}) are the same: what is chosen on valid is chosen on test"]


def read_bytes(file: DataFile) -> np.ndarray:
    """Return the bytes of a file, (n,) and memory-mapped."""
    return np.memmap(file.path, dtype=np.uint8, mode="r") if file.stamp[0] else np.zeros(0, np.uint8)


class SplitFiles:
    """One array of items in ``train``, ``valid`` and ``test``, from one to three files.

    ``path`` holds ``train``. Each of ``valid`` and ``test`` that has no file is taken from the end of ``path``:
    its last 5 %, in this order.

    Args:
        path, valid, test: the files.
        task: the name of the task.
        items: what a file consists of, for messages, such as ``"bytes"``.
        read: returns the items of a file, (n,) and memory-mapped.

    Raises:
        UserError: a file does not exist.
    """

    def __init__(
        self,
        path: str,
        valid: str | None,
        test: str | None,
        *,
        task: str,
        items: str = "bytes",
        read: Callable[[DataFile], np.ndarray] = read_bytes,
    ) -> None:
        named = {"path": path, "valid": valid, "test": test}
        self.files = {option: DataFile(name, option=option) for option, name in named.items() if name is not None}
        self.task, self.items, self._read = task, items, read
        self._frozen: tuple[str, tuple[int, int, int]] | None = None  # once read: the digest and the cuts

    def file(self, split: str) -> DataFile:
        """Return the file that holds a split."""
        return self.files.get(split, self.files["path"])

    def parts(self) -> dict[str, np.ndarray]:
        """Return the items of each split, (n,) and memory-mapped from its file."""
        path = self._read(self.files["path"])
        derived = [split for split in SPLITS[1:] if split not in self.files]
        stops = [len(path) * (100 - DERIVED_PERCENT * (len(derived) - i)) // 100 for i in range(len(derived) + 1)]
        parts = {split: path[begin:end] for split, (begin, end) in zip(["train", *derived], pairwise([0, *stops]), strict=True)}
        return {split: parts[split] if split in parts else self._read(self.files[split]) for split in SPLITS}

    def require(self, length: int) -> None:
        """Raise ``UserError`` unless ``train`` has more than ``length`` items, and ``valid`` and ``test`` at least two."""
        for split, items in self.parts().items():
            least, file = length + 1 if split == "train" else 2, self.file(split)
            if len(items) < least:
                expected = f"at least {least:,} {self.items} in {split}"
                raise UserError(f"{file.option}: expected {expected}, got {len(items):,} from {file.path}")

    def overlap_notes(self) -> list[str]:
        """Return notes on ``valid`` and ``test``: if they are the same, or more than a little also occurs in ``train``."""
        parts, key = self.parts(), (self.digest(), self.cuts())
        if key not in _overlaps:
            _overlaps[key] = overlap(*parts.values())
        notes = same_split_notes(self.files.get("valid"), self.files.get("test"))
        for split, result in zip(SPLITS[1:], _overlaps[key], strict=True):
            if result.share >= NOTABLE:
                least = "at least " if result.partial else ""
                names = f"{split} ({self.file(split).path.name}) also occurs in train ({self.file('train').path.name})"
                window = f"windows of {WINDOW // parts[split].itemsize} {self.items}"
                notes.append(
                    f"{least}{100 * result.share:.1f} % of {names}, compared in {window}: a model may have memorized it"
                )
        return notes

    def test_share_in(self, other: SplitFiles) -> float:
        """Return the share of the windows of ``test`` that occur in ``train`` of other files; 0 if both have one ``train``."""
        train, test = other.parts()["train"], self.parts()["test"]
        same = other.file("train").digest() == self.file("train").digest() and other.cuts()[0] == self.cuts()[0]
        return 0.0 if same or train.dtype != test.dtype else overlap(train, test)[0].share

    def cuts(self) -> tuple[int, int, int]:
        """Return the ends of ``train``, ``valid`` and ``test`` in items."""
        if self._frozen is not None:
            return self._frozen[1]
        train, valid, test = map(len, self.parts().values())
        return train, train + valid, train + valid + test

    def digest(self) -> str:
        """Return a checksum of the contents: the file's if it is the only one."""
        if self._frozen is not None:
            return self._frozen[0]
        return _combined({option: file.digest() for option, file in self.files.items()})

    def read(self) -> np.ndarray:
        """Return the three splits one after another, (n,) and memory-mapped, from a copy in the prepared data.

        Raises:
            UserError: a file changes while it is read.
        """
        digest, cuts = self.digest(), self.cuts()
        key = {"sha256": digest, "cuts": cuts, "format": FORMAT}
        folder = datasets.prepared(self.task, key, lambda place: self._copy(place / "items.npy", digest))
        self._frozen = digest, cuts
        return np.load(folder / "items.npy", mmap_mode="r")

    def _copy(self, target: Path, digest: str) -> None:
        parts = list(self.parts().values())
        descr = np.lib.format.dtype_to_descr(parts[0].dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (sum(map(len, parts)),)}
        with target.open("wb") as file:  # not memory-mapped: a full disk would kill the process by a bus error
            np.lib.format.write_array_header_1_0(file, header)
            for part in parts:
                file.write(np.ascontiguousarray(part).data)
        if _combined({option: sha256(file.path) for option, file in self.files.items()}) != digest:
            raise UserError(
                f"task {self.task}: {', '.join(str(f.path) for f in self.files.values())} changed while it was read"
            )


def _combined(digests: Mapping[str, str]) -> str:
    if len(digests) == 1:
        return digests["path"]
    return hashlib.sha256(" ".join(f"{option} {digest}" for option, digest in digests.items()).encode()).hexdigest()
