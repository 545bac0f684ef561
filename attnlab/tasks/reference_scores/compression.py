"""``gzip`` and ``xz``: the test text compressed by general-purpose compressors.

The score is the size of the compressed text in bits, including headers, over the bytes of the text. Unlike a model, a
compressor learns nothing from ``train``: the score shows the value of repetition within the text alone.
"""

import gzip

import numpy as np

GZIP = "the test text compressed by gzip -9, which learns nothing from train"
XZ = "the test text compressed by xz -9e, which learns nothing from train"


def gzip_bits_per_byte(text: np.ndarray) -> float:
    """Return the bits per byte of (n,) uint8 at gzip's highest level: Lempel-Ziv in a window of 32 kB."""
    return 8 * len(gzip.compress(text.tobytes(), compresslevel=9, mtime=0)) / len(text)


def xz_bits_per_byte(text: np.ndarray) -> float:
    """Return the bits per byte of (n,) uint8 at xz's highest level (``xz -9e``).

    Lempel-Ziv over up to 64 MB, with arithmetic coding.
    """
    import lzma  # some builds of Python lack it

    return 8 * len(lzma.compress(text.tobytes(), preset=9 | lzma.PRESET_EXTREME)) / len(text)
