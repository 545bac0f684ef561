"""Compression: all symbols of a row, predicted from the output at its last token.

    c a b a E
      c a b a         targets, all predicted at E

A model must gather the row in one vector, which attention needs for this task as much as a recurrence
does: no later position can look a symbol up.

Poli et al. 2024, "Mechanistic Design and Scaling of Hybrid Architectures" (MAD, arXiv:2403.17844).
There, an MLP with two hidden layers decodes each symbol from the sum of that vector and an embedding of
the place. Here the output layer of the model decodes all of them at once, with a group of logits for
each place.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, commonest_share


class Compression(Diagnostic):
    """Predict ``tokens`` symbols from the output at the token behind them.

    Args:
        tokens: symbols of a row.
        symbols: number of distinct symbols.
    """

    paper = "arXiv:2403.17844"
    levels = ({"tokens": 4}, {"tokens": 8}, {"tokens": 16}, {"tokens": 32})
    estimand, threshold = "mean", None  # the share of the symbols that fit varies little between seeds

    def __init__(self, *, tokens: int = 16, symbols: int = 16) -> None:
        self.tokens = whole_number(tokens, name="tokens", least=4)
        self.symbols = whole_number(symbols, name="symbols", least=4)
        self.length = tokens + 1
        self.vocabulary = tokens * symbols  # a logit for each symbol at each place; inputs use the first 1 + symbols

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = rng.integers(self.symbols, size=(count, self.length))
        inputs[:, -1] = self.symbols  # the end of the row
        targets = np.roll(inputs, 1, axis=1)
        targets[:, 0] = IGNORED
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        return [IGNORED, *inputs[:-1]]

    def target_logits(self, logits: Tensor) -> Tensor:
        groups = logits[:, -1].unflatten(-1, (self.tokens, self.symbols))
        return torch.cat([torch.zeros_like(groups[:, :1]), groups], dim=1)  # the first position has no target

    def chance(self) -> float:
        return commonest_share(self.tokens, self.symbols)  # the most frequent symbol of the row
