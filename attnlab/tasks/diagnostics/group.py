"""The word problem of a group: at each element, the product of all elements so far.

    (1 2)  (2 3)    (1 2)                tokens: elements of S3
    (1 2)  (1 2 3)  (1 3)                targets

The state is an element of the group, and each token permutes the states. For products of A5 and S5, a model that reads all
tokens in parallel needs a depth that grows with the length (unless TC0 = NC1); products of S3, A4 and S4 have shortcuts, which
attention may learn, but not beyond the trained length. One layer of a linear recurrence needs several reflections a token.

Liu et al. 2022, "Transformers Learn Shortcuts to Automata" (arXiv:2210.10749); Merrill et al. 2024, "The Illusion of State in
State-Space Models" (arXiv:2404.08819); Grazzi et al. 2024 (arXiv:2411.12537); Siems et al. 2025 (arXiv:2502.10297). Here,
all positions have a target in training, as there, and evaluations score the last quarter.
"""

from collections.abc import Sequence
from itertools import combinations, permutations

import numpy as np

from attnlab.errors import UserError, nearest
from attnlab.tasks import whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, last_quarter

GROUPS = ("s3", "a4", "s4", "a5", "s5")


class Group(Diagnostic):
    """Predict the product of all elements so far, in rows of ``length`` random elements.

    Args:
        group: ``s3``, ``s4`` or ``s5``, all permutations of 3, 4 or 5 items, or ``a4`` or ``a5``, the even ones.
        length: elements of a row.
    """

    paper = "arXiv:2411.12537"
    levels = ({"group": "s3", "length": 8}, {"group": "s3", "length": 16}, {"group": "a5", "length": 16})

    def __init__(self, *, group: str = "s3", length: int = 16) -> None:
        if group not in GROUPS:
            raise UserError(f"group: expected {', '.join(GROUPS[:-1])} or {GROUPS[-1]}, got {group!r}{nearest(group, GROUPS)}")
        self.length = whole_number(length, name="length", least=4)  # 1,296 rows: each split has some
        self.elements = [p for p in permutations(range(int(group[1]))) if group[0] == "s" or _is_even(p)]
        self.vocabulary = len(self.elements)
        items = np.array(self.elements)  # in lexicographic order
        weights = items.shape[1] ** np.arange(items.shape[1])[::-1]
        self.products = np.searchsorted(items @ weights, items[:, items] @ weights)  # (first, second): second, then first

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = rng.integers(self.vocabulary, size=(count, self.length))
        targets = inputs.copy()
        for i in range(1, self.length):
            targets[:, i] = self.products[targets[:, i - 1], inputs[:, i]]
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        targets, product = [], self.elements[0]  # the identity
        for token in inputs:
            product = tuple(product[item] for item in self.elements[token])
            targets.append(self.elements.index(product))
        return targets

    def evaluated_targets(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return last_quarter(targets)

    def chance(self) -> float:
        return 1 / self.vocabulary

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join("".join(str(1 + item) for item in self.elements[token]) for token in ids)


def _is_even(permutation: Sequence[int]) -> bool:
    return sum(first > second for first, second in combinations(permutation, 2)) % 2 == 0
