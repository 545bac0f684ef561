"""``text``: any file, as bytes."""

import shutil
from pathlib import Path

import numpy as np

from attnlab._util.files import sha256
from attnlab.errors import UserError
from attnlab.tasks import datasets
from attnlab.tasks.bytes import ByteTask

FORMAT = 1  # of the prepared file


class Text(ByteTask):
    """Predict the next byte of a file, which is split 90/5/5 % in order.

    Args:
        path: the file, relative to the study's file in a study and to the working directory in Python.
        length: bytes of a row.
        sampling: ``random`` positions, or ``contiguous`` rows, which a model with memory requires.
    """

    def __init__(self, *, path: str, length: int = 256, sampling: str = "random") -> None:
        super().__init__(length=length, sampling=sampling)
        self.path = Path(path).expanduser().resolve()
        if not self.path.is_file():
            problem = "it is a folder" if self.path.is_dir() else "it does not exist"
            raise UserError(f"task text: expected a file at {self.path}: {problem}")
        size = self.path.stat().st_size
        if size * 90 // 100 <= self.length or size < 40:  # 40: two bytes for each of the small splits
            least = max(40, -(-(self.length + 1) * 100 // 90))
            raise UserError(f"task text: {self.path} has {size:,} bytes; rows of {length} need {least:,}")
        self._stamped_digest: tuple[tuple[int, int], str] | None = None

    def identity(self) -> str:
        return f"text sha256:{self._digest()}"

    def cuts(self) -> tuple[int, int, int]:
        size = self.path.stat().st_size if self._text is None else len(self._text)
        return size * 90 // 100, size * 95 // 100, size

    def read(self) -> np.ndarray:
        """Return a copy of the file, stored under its checksum: later changes of the file do not affect the data."""
        digest = self._digest()

        def build(folder: Path) -> None:
            shutil.copyfile(self.path, folder / "text")
            if sha256(folder / "text") != digest:
                raise UserError(f"task text: {self.path} changed while it was read")

        folder = datasets.prepared("text", {"sha256": digest, "format": FORMAT}, build)
        return np.memmap(folder / "text", dtype=np.uint8, mode="r")

    def _digest(self) -> str:
        if (
            self._text is not None and self._stamped_digest is not None
        ):  # the data were read: later changes of the file do not matter
            return self._stamped_digest[1]
        status = self.path.stat()
        stamp = (status.st_size, status.st_mtime_ns)
        if self._stamped_digest is None or self._stamped_digest[0] != stamp:
            self._stamped_digest = (stamp, sha256(self.path))
        return self._stamped_digest[1]
