"""A small archive of made-up reviews in the layout of the real one: one word determines the class, the others are noise."""

import hashlib
import io
import tarfile

import numpy as np

PER_FOLDER = 20


def archive() -> tuple[bytes, str]:
    """Return the archive's bytes and the digest of its contents."""
    rng = np.random.default_rng(7)
    reviews = {}
    for half in ("train", "test"):
        for label, word in (("neg", "bad"), ("pos", "good")):
            for number in range(PER_FOLDER):
                filler = " ".join(f"w{i}" for i in rng.integers(0, 50, size=rng.integers(1, 30)))
                reviews[f"{half}/{label}/{number}_5.txt"] = f"{half}only {word}!<br /><br />{filler}".encode()
    digest = hashlib.sha256()
    for name in sorted(reviews):
        digest.update(f"{name} {len(reviews[name])}\n".encode() + reviews[name])
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in reviews.items():
            info = tarfile.TarInfo(f"aclImdb/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    return buffer.getvalue(), digest.hexdigest()
