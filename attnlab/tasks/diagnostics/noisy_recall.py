"""Noisy recall: a stream of pairs of a key and a value with noise between them; a key that occurs again asks for its value.

    k3 v7 n2 n5 k1 v2 k3 v7 n1 n1 k1 v2
                      v7          v2            targets

The noise has a separate vocabulary, and a model must learn to keep it out of its state or its
attention.

Poli et al. 2024, "Mechanistic Design and Scaling of Hybrid Architectures" (MAD, arXiv:2403.17844), which
trains on the noise and on first occurrences, too. There, keys are drawn from the whole vocabulary, each
slot is noise with a given probability, and two keys may have the same value. Here the number of keys and
of noisy slots of a row are fixed and values differ, so that the score of a guess is known exactly.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, distinct


class NoisyRecall(Diagnostic):
    """Recall the values of keys that occur again, in rows of ``length`` tokens of which a share is noise.

    Args:
        pairs: distinct keys of a row, each with a value.
        noise: the share of noise, at least 0 and below 1.
        length: tokens of a row, an even number.
        keys: number of distinct keys, and of distinct values.
        noise_tokens: number of distinct tokens of noise.
    """

    paper = "arXiv:2403.17844"
    levels = ({"pairs": 4, "length": 32}, {"pairs": 8, "length": 64}, {"pairs": 8, "noise": 0.5, "length": 64})

    def __init__(self, *, pairs: int = 8, noise: float = 0.2, length: int = 64, keys: int = 16, noise_tokens: int = 16) -> None:
        self.pairs = whole_number(pairs, name="pairs")
        self.length = whole_number(length, name="length")
        self.keys = whole_number(keys, name="keys")
        self.noise_tokens = whole_number(noise_tokens, name="noise_tokens")
        if not isinstance(noise, int | float) or isinstance(noise, bool) or not 0 <= noise < 1:
            raise UserError(f"noise: expected a number of at least 0 and below 1, got {noise!r}")
        if length % 2:
            raise UserError(f"length: expected an even number, two tokens for each pair, got {length}")
        if pairs > keys:
            raise UserError(f"pairs: expected at most {keys}, the number of keys, got {pairs}")
        noisy = round(noise * length / 2)  # slots of two tokens
        self.clean = length // 2 - noisy
        if self.clean <= pairs:  # otherwise a row may have no key that occurs again
            raise UserError(
                f"length: expected more than {pairs} slots of two tokens without noise, so that one of {pairs} keys "
                f"occurs again, got {length} // 2 - {noisy} = {self.clean}"
            )
        self.vocabulary = 2 * keys + noise_tokens

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        keys, values = distinct(rng, count, self.keys, self.pairs), distinct(rng, count, self.keys, self.pairs) + self.keys
        choices = rng.integers(self.pairs, size=(count, self.clean))
        again = np.zeros(choices.shape, dtype=bool)
        for i in range(1, self.clean):
            again[:, i] = (choices[:, :i] == choices[:, i : i + 1]).any(axis=1)
        inputs = rng.integers(2 * self.keys, self.vocabulary, size=(count, self.length))
        targets = np.full(inputs.shape, IGNORED)
        slots = np.sort(distinct(rng, count, self.length // 2, self.clean), axis=1)
        values = np.take_along_axis(values, choices, axis=1)
        np.put_along_axis(inputs, 2 * slots, np.take_along_axis(keys, choices, axis=1), axis=1)
        np.put_along_axis(inputs, 2 * slots + 1, values, axis=1)
        np.put_along_axis(targets, 2 * slots, np.where(again, values, IGNORED), axis=1)
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        targets, values = [], {}
        for i, token in enumerate(inputs):
            targets.append(values.get(token, IGNORED))
            if token < self.keys:
                values[token] = inputs[i + 1]
        return targets

    def chance(self) -> float:
        """Return the accuracy of a guess among the values so far.

        After i pairs, the next key is any one of the keys so far with probability 1 / pairs, and so a guess is right; it is one
        of them with probability 1 - (1 - 1 / pairs) ** i, and so has a target.
        """
        after = np.arange(1, self.clean)
        return len(after) / self.pairs / float((1 - (1 - 1 / self.pairs) ** after).sum())
