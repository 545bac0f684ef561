"""Addition of two numbers: the sum is predicted digit by digit.

    5 3 + 8 6 =  3 0         35 + 68 = 103, with the lowest digit first
              3  0 1         targets

Each digit of the sum needs two digits that are found by their place, and a carry. Training rows have numbers of any size from
1 digit to the largest that ``length`` holds; evaluations score numbers of that size alone. ``evaluate.lengths`` therefore
tests numbers longer than in training: 8 digits fill a length of 26, and 16 digits a length of 50.

Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization in Transformers" (arXiv:2305.19466). There,
numbers start with the highest digit (``reverse: false``), and the model generates the whole sum. Here, both numbers have the
same size, and the digits before the predicted one are correct; ``exact`` is the share of sums without an error.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic

LEAST_SUMS = 256  # of the largest numbers, so that each split has some


class Addition(Diagnostic):
    """Predict the sum of two numbers of equally many digits, in rows of at most ``length`` tokens.

    Args:
        base: number of digits, 2 to 10; followed by the tokens of plus, equals and the padding.
        length: tokens of a row: n + 1 + n + 1 of two numbers of n digits, and n of their sum, without its last digit, which is
            not read.
        reverse: the lowest digit comes first.
    """

    paper = "arXiv:2305.19466"
    levels = ({"base": 2, "length": 14}, {"length": 14}, {"length": 26})
    steps = 1_000

    def __init__(self, *, base: int = 10, length: int = 14, reverse: bool = True) -> None:
        self.base = whole_number(base, name="base", least=2)
        if base > 10:
            raise UserError(f"base: expected at most 10, got {base}")
        self.plus, self.equals, self.padding = range(base, base + 3)
        self.vocabulary = base + 3
        self.length = whole_number(length, name="length")
        self.digits = (length - 2) // 3
        least = next(n for n in range(2, 5) if base ** (2 * n) >= LEAST_SUMS)
        if self.digits < least:
            raise UserError(
                f"length: expected at least {3 * least + 2} = 3 x {least} + 2 for {least} digits in base {base}, got {length}"
            )
        if not isinstance(reverse, bool):
            raise UserError(f"reverse: expected true or false, got {reverse!r}")
        self.reverse = reverse

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = np.full((count, self.length), self.padding)
        targets = np.full((count, self.length), IGNORED)
        sizes = rng.integers(1, self.digits + 1, size=count)
        for n in range(1, self.digits + 1):
            rows = np.flatnonzero(sizes == n)
            first, second = rng.integers(self.base, size=(2, len(rows), n))  # the lowest digit first
            total = np.zeros((len(rows), n + 1), dtype=np.int64)
            for i in range(n):
                total[:, i] += first[:, i] + second[:, i]
                total[:, i + 1] = total[:, i] // self.base  # the carry
                total[:, i] %= self.base
            if not self.reverse:
                first, second, total = first[:, ::-1], second[:, ::-1], total[:, ::-1]
            inputs[rows, :n], inputs[rows, n + 1 : 2 * n + 1] = first, second
            inputs[rows, n], inputs[rows, 2 * n + 1] = self.plus, self.equals
            inputs[rows, 2 * n + 2 : 3 * n + 2] = total[:, :-1]
            targets[rows, 2 * n + 1 : 3 * n + 2] = total
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        order = -1 if self.reverse else 1
        plus, equals = inputs.index(self.plus), inputs.index(self.equals)
        first, second = (
            int("".join(map(str, part[::order])), self.base) for part in (inputs[:plus], inputs[plus + 1 : equals])
        )
        total = [(first + second) // self.base**i % self.base for i in range(plus, -1, -1)][::order]
        return [IGNORED] * equals + total + [IGNORED] * (len(inputs) - equals - len(total))

    def evaluated_targets(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        longest = inputs[:, self.digits] == self.plus
        return np.where(longest[:, None], targets, IGNORED)

    def chance(self) -> float:
        """Return the accuracy of a model that knows the two previous digits of the sum, not the numbers.

        The carry, the highest digit, is rare behind high digits. Other digits are uniform: only the two behind the carry, where
        the highest digit is the first, depend on the digits before them.
        """
        n, digits = self.digits, np.arange(self.base)
        carried = (1 - self.base ** -(n - 2)) / 2  # the probability of a carry from all but the two highest digits
        added = np.add.outer([0, 1], np.add.outer(digits, digits).ravel())  # (carry, pairs of digits)
        step = np.stack([np.bincount(row, minlength=2 * self.base) for row in added]).reshape(2, 2, self.base) / self.base**2
        joint = np.einsum("i,ijk,jcl->clk", [1 - carried, carried], step, step)  # (carry, highest digit, the next one)
        if self.reverse:
            right = n / self.base + joint.max(axis=0).sum()
        else:
            behind = joint.sum(axis=2).max(axis=1).sum() + joint.max(axis=2).sum()
            right = joint.sum(axis=(1, 2)).max() + behind + (n - 2) / self.base
        return float(right) / (n + 1)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join((*map(str, range(self.base)), "+", "=", "_")[token] for token in ids)
