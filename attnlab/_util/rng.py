"""Named streams of random numbers, all derived from a run's one seed.

Two cells with the same seed draw the same batches in the same order and start shared modules from the same values,
however many numbers the rest of the model consumes: what is compared differs in nothing else.
"""

import hashlib


def derive_seed(seed: int, *names: str | int) -> int:
    """The seed of the stream called ``names`` (``"initialisation"``, ``"order"`` or ``"dropout"``, then finer ones).

    Returns:
        A number in [0, 2**63), the same on every machine and in every version of Python.
    """
    path = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") >> 1
