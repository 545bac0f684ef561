"""``enwik8``: the first 10^8 bytes of the English Wikipedia dump of 3 March 2006, split 90M/5M/5M.

A standard benchmark of byte-level language models (Large Text Compression Benchmark, M. Mahoney). Templates, tables and lists
repeat: 1.7 % of ``test`` also occurs in ``train``, in windows of 64 bytes (``attnlab.tasks.overlap``).
"""

import logging
from pathlib import Path

import numpy as np

from attnlab.tasks import datasets
from attnlab.tasks.archives import ENWIK8
from attnlab.tasks.bytes import ByteTask

logger = logging.getLogger(__name__)

FORMAT = 1  # of the prepared file


class Enwik8(ByteTask):
    """Predict the next byte, or subword, of Wikipedia's XML.

    The options are those of ``ByteTask``.
    """

    def identity(self) -> str:
        return f"enwik8 md5:{ENWIK8.contents}{self.tokens_identity()}"

    def data_notes(self) -> list[str]:
        share = "1.9 % of valid and 1.7 % of test also occur in train, compared in windows of 64 bytes"
        return [f"{share}: templates, tables and lists of Wikipedia, which a model may have memorized", *self.tokens_notes()]

    def cuts(self) -> tuple[int, int, int]:
        return 90_000_000, 95_000_000, 100_000_000

    def read(self) -> np.ndarray:
        def build(folder: Path) -> None:
            contents = datasets.load(ENWIK8)
            logger.info("enwik8: writing the bytes to %s", folder)
            np.save(folder / "bytes.npy", np.frombuffer(contents, dtype=np.uint8))

        folder = datasets.prepared("enwik8", {"contents": ENWIK8.contents, "format": FORMAT}, build)
        return np.load(folder / "bytes.npy", mmap_mode="r")
