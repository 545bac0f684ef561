"""``pydocs``: the text of Python's own ``pydoc_data.topics``: real English with markup, without a download.

Its topics repeat each other: ``while`` and ``with`` stand in ``compound``, too, and whole sections in two or three. A split
must not hold what another has, so every paragraph stands here once, where it comes first; of a topic that is part of another
little more than its heading is left. No two splits then share a string of 96 bytes (Pythons 3.11 to 3.13).

It differs between versions of Python, so its checksum is part of a run's fingerprint; numbers from different
versions are not numbers on the same data.
"""

import hashlib
from functools import lru_cache

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks.bytes import ByteTask


class PyDocs(ByteTask):
    """The language reference behind Python's ``help()``, topic after topic by name, each paragraph once, split 90/5/5 %.

    Args:
        length: bytes that a row reads.
        sampling: ``random`` places, or ``contiguous`` rows, which a memory needs.
    """

    def __init__(self, *, length: int = 256, sampling: str = "random") -> None:
        super().__init__(length=length, sampling=sampling)

    def identity(self) -> str:
        return f"pydocs sha256:{hashlib.sha256(_contents()).hexdigest()}"

    def cuts(self) -> tuple[int, int, int]:
        size = len(_contents())
        return size * 90 // 100, size * 95 // 100, size

    def read(self) -> np.ndarray:
        return np.frombuffer(_contents(), dtype=np.uint8)


@lru_cache(maxsize=1)  # one process has one Python, hence one text
def _contents() -> bytes:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:  # some distributions leave it out of a minimal Python
        raise UserError(f"pydocs: this Python has no pydoc_data.topics ({error})") from error
    once: dict[str, str] = {}
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            once.setdefault(paragraph.strip(), paragraph)  # how far it is indented makes it no other
    return "\n\n".join(once.values()).encode()
