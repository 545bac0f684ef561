"""``text``: your files, as bytes."""

import codecs

import numpy as np

from attnlab.tasks.bytes import ByteTask
from attnlab.tasks.data_files import DataFile, SplitFiles, require_text

HEAD = 1 << 20  # bytes of a file that the plan reads


class Text(ByteTask):
    """Predict the next byte, or subword, of a file.

    Without ``valid`` and ``test``, the file is split 90/5/5 % in order. If one of them is given, the other is the last 5 % of
    ``path``.

    Args:
        path: the file, relative to the study's file in a study and to the working directory in Python.
        valid, test: separate files for these splits.
        length: tokens of a row.
        sampling: ``random`` positions, or ``contiguous`` rows, which a model with memory requires.
        tokens: ``bytes``, or ``bpe``: byte-level byte-pair encoding, learned on ``train``.
        vocabulary: number of tokens of ``bpe``, at least 256.
    """

    files = ("path", "valid", "test")

    def __init__(
        self,
        *,
        path: str,
        valid: str | None = None,
        test: str | None = None,
        length: int = 256,
        sampling: str = "random",
        tokens: str = "bytes",
        vocabulary: int | None = None,
    ) -> None:
        super().__init__(length=length, sampling=sampling, tokens=tokens, vocabulary=vocabulary)
        self.split_files = SplitFiles(path, valid, test, task="text")
        self.split_files.require(self.length)
        for file in self.split_files.files.values():
            require_text(_head(file), file)

    def identity(self) -> str:
        return f"text sha256:{self.split_files.digest()}{self.tokens_identity()}"

    def cuts(self) -> tuple[int, int, int]:
        return self.split_files.cuts()

    def data_notes(self) -> list[str]:
        others = [file.path.name for file in self.split_files.files.values() if not _is_utf8(_head(file))]
        notes = [f"{', '.join(others)}: not UTF-8, and read as bytes all the same"] if others else []
        return [*self.split_files.overlap_notes(), *notes, *self.tokens_notes()]

    def read(self) -> np.ndarray:
        return self.split_files.read()


def _head(file: DataFile) -> bytes:
    with file.path.open("rb") as contents:
        return contents.read(HEAD)


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True
