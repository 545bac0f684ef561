"""``enwik8``: the first 10^8 bytes of the English Wikipedia dump of 3 March 2006, split 90M/5M/5M.

The usual benchmark of byte-level language models (Large Text Compression Benchmark, M. Mahoney).
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
    """Wikipedia's XML, byte by byte.

    Args:
        length: bytes that a row reads.
        sampling: ``random`` places, or ``contiguous`` rows, which a memory needs.
    """

    def __init__(self, *, length: int = 256, sampling: str = "random") -> None:
        super().__init__(length=length, sampling=sampling)

    def identity(self) -> str:
        return f"enwik8 md5:{ENWIK8.contents}"

    def cuts(self) -> tuple[int, int, int]:
        return 90_000_000, 95_000_000, 100_000_000

    def read(self) -> np.ndarray:
        def build(place: Path) -> None:
            contents = datasets.load(ENWIK8)
            logger.info("enwik8: writing the bytes to %s", place)
            np.save(place / "bytes.npy", np.frombuffer(contents, dtype=np.uint8))

        place = datasets.prepared("enwik8", {"contents": ENWIK8.contents, "format": FORMAT}, build)
        return np.load(place / "bytes.npy", mmap_mode="r")
