"""``pysource``: the source code of Python's standard library, about eight megabytes of text that need no download.

Names, imports and whole phrases return within a file, so that a model that reads far back has something to find. A file is in
one split, and the files of a split are a random sample of the library, drawn by the hash of their names. Left out are tests,
tables of character encodings, ``pydoc_data`` (the text of ``pydocs``), bundled programs, and what depends on the machine that
Python was built on.

The text differs between versions of Python, so its checksum is part of a run's fingerprint. Results from different versions
are not comparable.
"""

import hashlib
import sysconfig
from functools import lru_cache
from pathlib import Path

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks.bytes import ByteTask

LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "encodings", "pydoc_data", "turtledemo", "site-packages"}
MACHINE = ("_sysconfigdata", "sitecustomize")


class PySource(ByteTask):
    """Predict the next byte, or subword, of the modules of Python's standard library, split 90/5/5 % by file.

    The options are those of ``ByteTask``.
    """

    def identity(self) -> str:
        contents, _ = _contents()
        return f"pysource sha256:{hashlib.sha256(contents).hexdigest()}{self.tokens_identity()}"

    def data_notes(self) -> list[str]:
        share = "about 3 % of valid and 2 % of test also occur in train, compared in windows of 64 bytes"
        return [f"{share}: phrases that programmers repeat, which a model may have memorized", *self.tokens_notes()]

    def cuts(self) -> tuple[int, int, int]:
        """Return the ends of the splits: the first end of a file after 90 and 95 % of the bytes."""
        contents, ends = _contents()
        train, valid = (next(end for end in ends if end >= len(contents) * share // 100) for share in (90, 95))
        return train, valid, len(contents)

    def read(self) -> np.ndarray:
        return np.frombuffer(_contents()[0], dtype=np.uint8)


@lru_cache(maxsize=1)  # constant in a process
def _contents() -> tuple[bytes, tuple[int, ...]]:
    """Return the text, and the end of each file in it."""
    root = Path(sysconfig.get_path("stdlib"))
    files = {path.relative_to(root): path for path in root.rglob("*.py")}
    kept = [name for name in files if LEFT_OUT.isdisjoint(name.parts) and not name.name.startswith(MACHINE)]
    if not kept:
        raise UserError(f"pysource: expected the source of Python's standard library in {root}, found no modules")
    text, ends = bytearray(), []
    for name in sorted(kept, key=lambda name: hashlib.sha256(name.as_posix().encode()).digest()):
        text += files[name].read_bytes()
        ends.append(len(text))
    return bytes(text), tuple(ends)
