"""``text``: any file of yours, as bytes."""

import shutil
from pathlib import Path

import numpy as np

from attnlab._util.files import sha256
from attnlab.errors import UserError
from attnlab.tasks import datasets
from attnlab.tasks.bytes import ByteTask

FORMAT = 1  # of the prepared file


class Text(ByteTask):
    """A file read byte by byte, split 90/5/5 % in the order of its bytes.

    Args:
        path: the file; in a study relative to the study's file, in Python to the working directory.
        length: bytes that a row reads.
        sampling: ``random`` places, or ``contiguous`` rows, which a memory needs.
    """

    def __init__(self, *, path: str, length: int = 256, sampling: str = "random") -> None:
        super().__init__(length=length, sampling=sampling)
        self.path = Path(path).expanduser().resolve()
        if not self.path.is_file():
            what = "that is a folder" if self.path.is_dir() else "it is not there"
            raise UserError(f"task text: expected a file at {self.path}: {what}")
        size = self.path.stat().st_size
        if size * 90 // 100 <= self.length or size < 40:  # 40: two bytes for each of the small splits
            least = max(40, -(-(self.length + 1) * 100 // 90))
            raise UserError(f"task text: {self.path} has {size:,} bytes; rows of {length} need {least:,}")
        self._seen: tuple[tuple[int, int], str] | None = None

    def identity(self) -> str:
        return f"text sha256:{self._digest()}"

    def cuts(self) -> tuple[int, int, int]:
        size = self.path.stat().st_size if self._text is None else len(self._text)
        return size * 90 // 100, size * 95 // 100, size

    def read(self) -> np.ndarray:
        """A copy of the file, under its checksum: what is trained on stays, whatever becomes of the file."""
        digest = self._digest()

        def build(place: Path) -> None:
            shutil.copyfile(self.path, place / "text")
            if sha256(place / "text") != digest:
                raise UserError(f"task text: {self.path} changed while it was read")

        place = datasets.prepared("text", {"sha256": digest, "format": FORMAT}, build)
        return np.memmap(place / "text", dtype=np.uint8, mode="r")

    def _digest(self) -> str:
        if self._text is not None and self._seen is not None:  # what was read counts, whatever has become of the file
            return self._seen[1]
        status = self.path.stat()
        stamp = (status.st_size, status.st_mtime_ns)
        if self._seen is None or self._seen[0] != stamp:
            self._seen = (stamp, sha256(self.path))
        return self._seen[1]
