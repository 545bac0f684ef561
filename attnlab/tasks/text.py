"""``text``: your files, as bytes."""

import numpy as np

from attnlab.tasks.bytes import ByteTask
from attnlab.tasks.data_files import SplitFiles
from attnlab.tasks.lines import form_notes


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

    def identity(self) -> str:
        return f"text sha256:{self.split_files.digest()}{self.tokens_identity()}"

    def cuts(self) -> tuple[int, int, int]:
        return self.split_files.cuts()

    def data_notes(self) -> list[str]:
        files = {split: part.file.path for split, part in self.split_files.parts().items()}
        return [*self.split_files.overlap_notes(), *form_notes(files), *self.tokens_notes()]

    def read(self) -> np.ndarray:
        return self.split_files.read()
