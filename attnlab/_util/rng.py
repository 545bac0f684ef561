"""Named streams of random numbers, all derived from the seed of a run.

Two cells with the same seed draw the same batches in the same order and start parameters with the same name from the same
values, however many numbers the rest of the model consumes, so that the cells differ only in the compared setting.
"""

import hashlib


def derive_seed(seed: int, *names: str | int) -> int:
    """Return the seed of the stream ``names`` (``"initialisation"``, ``"order"`` or ``"dropout"``, then finer ones).

    Returns:
        A number in [0, 2**63), the same on every machine and in every version of Python.
    """
    path = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") >> 1
