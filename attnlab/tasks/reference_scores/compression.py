"""``gzip`` and ``xz``: what a compressor of files makes of the text to be predicted, and of nothing else.

The size of the compressed text, headers and all, over the bytes of the text. Unlike a model they have learned nothing from
``train``: they stand for what repetition within the text alone is worth.
"""

import gzip

import numpy as np

GZIP = "the test text compressed by gzip -9, which learns nothing from train"
XZ = "the test text compressed by xz -9e, which learns nothing from train"


def gzip_bits_per_byte(text: np.ndarray) -> float:
    """Of (n,) uint8, at gzip's highest level: Lempel-Ziv in a window of 32 kB."""
    return 8 * len(gzip.compress(text.tobytes(), compresslevel=9, mtime=0)) / len(text)


def xz_bits_per_byte(text: np.ndarray) -> float:
    """Of (n,) uint8, at xz's highest level (``xz -9e``): Lempel-Ziv over up to 64 MB, with arithmetic coding."""
    import lzma  # some builds of Python have none

    return 8 * len(lzma.compress(text.tobytes(), preset=9 | lzma.PRESET_EXTREME)) / len(text)
