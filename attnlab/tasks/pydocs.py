"""``pydocs``: the text of Python's ``pydoc_data.topics``, real English with markup that needs no download.

The topics repeat each other: ``compound`` includes ``while`` and ``with``, and some sections occur in two or three topics. To
keep the splits disjoint, every paragraph is used once, when it occurs first; of a topic that is part of another, little more
than the heading is left. No two splits then share a string of 96 bytes (Python 3.11 to 3.13).

The text differs between versions of Python, so its checksum is part of a run's fingerprint. Results from different versions
are not comparable.
"""

import hashlib
from functools import lru_cache

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks.bytes import ByteTask


class PyDocs(ByteTask):
    """Predict the next byte, or subword, of the topics of Python's ``help()``.

    They are sorted by name, each paragraph occurs once, and they are split 90/5/5 %.

    The options are those of ``ByteTask``.
    """

    def identity(self) -> str:
        return f"pydocs sha256:{hashlib.sha256(_contents()).hexdigest()}{self.tokens_identity()}"

    def data_notes(self) -> list[str]:
        return self.tokens_notes()

    def cuts(self) -> tuple[int, int, int]:
        size = len(_contents())
        return size * 90 // 100, size * 95 // 100, size

    def read(self) -> np.ndarray:
        return np.frombuffer(_contents(), dtype=np.uint8)


@lru_cache(maxsize=1)  # constant in a process
def _contents() -> bytes:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:  # some distributions omit it
        raise UserError(f"pydocs: this Python has no pydoc_data.topics ({error})") from error
    paragraphs: dict[str, str] = {}
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            paragraphs.setdefault(paragraph.strip(), paragraph)  # equal up to indentation
    return "\n\n".join(paragraphs.values()).encode()
