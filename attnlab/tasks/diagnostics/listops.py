"""ListOps: the values of nested operations on lists of digits.

    [MAX 4 [MIN 2 3 ] 0 [SM 8 5 ] ]
                    2           3 4         targets, at each closing bracket

A model must follow the nesting, and combine a value with the values of its list when a bracket closes. ``SM`` is the sum modulo
10, ``MED`` the median, rounded down.

Nangia and Bowman 2018, "ListOps: A Diagnostic Dataset for Latent Tree Learning" (arXiv:1804.06028): a classifier of
the value of a whole expression, with a depth of up to 20. Here, the inner values are targets, too, which a model learns first;
evaluations score the whole expression alone. An argument is an operation with a probability of 1/2 instead of 1/4, so that
small expressions are as deep as ``depth`` allows.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import ROWS, Diagnostic

NAMES = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "]", "_")
MIN, MAX, MED, SM, CLOSE, PADDING = range(10, 16)  # tokens 0 to 9 are the digits
NESTED = 0.5  # probability that an argument is an operation
FITTED = 8_000  # rows whose values ``chance`` counts


class ListOps(Diagnostic):
    """Predict the value of an expression at its closing bracket, in rows of at most ``length`` tokens.

    Args:
        depth: largest number of operations that are open at once; 1: no nesting.
        length: tokens of a row; of the whole expression, shorter ones are padded.
        arguments: largest number of arguments of an operation; the smallest is 2.
    """

    paper = "arXiv:1804.06028"
    vocabulary = 16
    chance_is_estimated = True
    levels = ({"depth": 1, "arguments": 3, "length": 8}, {"depth": 2, "length": 24}, {"depth": 3, "length": 48})

    def __init__(self, *, depth: int = 2, length: int = 32, arguments: int = 5) -> None:
        self.depth = whole_number(depth, name="depth")
        self.length = whole_number(length, name="length")
        self.arguments = whole_number(arguments, name="arguments", least=2)
        if length < 3 * depth + 1:
            raise UserError(
                f"length: expected at least {3 * depth + 1} = 3 x {depth} + 1, an expression of depth {depth}, got {length}"
            )

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        rows = np.arange(count)
        inputs = np.full((count, self.length), PADDING)
        targets = np.full((count, self.length), IGNORED)
        # Of each operation that is open, by its depth: its arguments and how many it has and shall have. The first has most.
        lists = np.zeros((count, self.depth, self.arguments), dtype=np.int64)
        sizes = np.zeros((count, self.depth), dtype=np.int64)
        goals = np.full_like(sizes, self.arguments)
        operators = rng.integers(MIN, CLOSE, size=(count, self.depth))
        inputs[:, 0] = operators[:, 0]
        level = np.zeros(count, dtype=np.int64)  # the depth of the innermost open operation; -1: all are closed
        for i in range(1, self.length):
            size, is_open = sizes[rows, level], level >= 0
            # 1. Choose one of the tokens after which the rest of the row can hold what closes all open operations.
            missing = np.maximum(2 - sizes, 0) + 1
            spare = self.length - i - (missing * (np.arange(self.depth) <= level[:, None])).sum(axis=1) + (size < 2)
            closes = is_open & (size >= 2) & ((size >= goals[rows, level]) | (spare < 1))
            opens = is_open & ~closes & (level + 1 < self.depth) & (spare >= 4) & (rng.random(count) < NESTED)
            digit = rng.integers(10, size=count)
            operator = rng.integers(MIN, CLOSE, size=count)
            token = np.select([closes, opens, is_open], [CLOSE, operator, digit], PADDING)
            inputs[:, i] = token
            # 2. Close: the value becomes the latest argument of the operation outside.
            value = _apply(operators[rows, level], lists[rows, level], size)
            targets[closes, i] = value[closes]
            level = level - closes
            lists[rows[closes], level[closes], sizes[rows, level][closes] - 1] = value[closes]
            # 3. Append a digit, or open an operation, which is an argument, too.
            appends = is_open & ~closes
            lists[rows[appends], level[appends], size[appends]] = digit[appends]
            sizes[rows[appends], level[appends]] += 1
            level = level + opens
            new = rows[opens], level[opens]
            sizes[new], operators[new] = 0, operator[opens]
            goals[new] = rng.integers(2, self.arguments + 1, size=len(new[0]))
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        targets: list[int] = []
        stack: list[list[int]] = [[]]
        for token in inputs:
            targets.append(IGNORED)
            if MIN <= token < CLOSE:
                stack.append([token])
            elif token == CLOSE:
                operator, *values = stack.pop()
                middle = sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]
                results = {MIN: min(values), MAX: max(values), MED: sum(middle) // len(middle), SM: sum(values) % 10}
                targets[-1] = results[operator]
                stack[-1].append(results[operator])
            elif token < MIN:
                stack[-1].append(token)
        return targets

    def evaluated_targets(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        last = np.maximum.accumulate((targets != IGNORED)[:, ::-1], axis=1)[:, ::-1].sum(axis=1) - 1
        return np.where(np.arange(self.length) == last[:, None], targets, IGNORED)

    def chance(self) -> float:
        """Return the accuracy of a model that reads the outermost operation and the token before its bracket, an estimate.

        It answers the commonest value of rows with these two: of ``[MIN`` a low digit. The values are counted in some rows, and
        scored on others.
        """
        inputs, targets = self.rows("train", FITTED + ROWS)
        targets = self.evaluated_targets(inputs, targets)
        rows, place = np.arange(len(inputs)), (targets != IGNORED).argmax(axis=1)
        operator, before, value = inputs[:, 0], inputs[rows, place - 1], targets[rows, place]
        counts = np.zeros((CLOSE, CLOSE + 1, 10))
        np.add.at(counts, (operator[:FITTED], before[:FITTED], value[:FITTED]), 1)
        return float((counts.argmax(axis=2)[operator, before] == value)[FITTED:].mean())

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(NAMES[token] for token in ids)


def _apply(operators: np.ndarray, lists: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the values of operations (count,) on the first ``sizes`` numbers of lists (count, arguments)."""
    rows, sizes = np.arange(len(lists)), np.maximum(sizes, 1)
    in_list = np.arange(lists.shape[1]) < sizes[:, None]
    ordered = np.sort(np.where(in_list, lists, 10), axis=1)
    middle = (ordered[rows, (sizes - 1) // 2] + ordered[rows, sizes // 2]) // 2
    total = np.where(in_list, lists, 0).sum(axis=1) % 10
    return np.choose(operators - MIN, [ordered[:, 0], ordered[rows, sizes - 1], middle, total])
