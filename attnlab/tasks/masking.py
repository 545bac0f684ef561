"""Masked language modelling (Devlin et al. 2019, section 3.1, "Task #1: Masked LM", and appendix A.1).

15 % of the tokens of a row are chosen. Of these, 80 % are replaced by ``[MASK]``, 10 % by a random token, and 10 % are kept. A
model predicts the chosen tokens, and computes its output layer for them alone.

The random numbers are drawn for every position, whatever token stands there: neither the choice of a position nor its
replacement depends on the token that it hides.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlab.tasks.base import IGNORED, Batch

CHOSEN = 0.15  # share of the tokens that are predicted
MASKED, REPLACED = 0.8, 0.1  # shares of the chosen tokens; the rest is kept


class MaskedOutput(NamedTuple):
    """Output of a masked language model.

    Attributes:
        tokens: logits (b, p, vocabulary) at ``Batch.positions``, or (b, t, vocabulary) where a batch has no positions.
        labels: logits (b, 2) of the next-sentence prediction, or None.
    """

    tokens: Tensor
    labels: Tensor | None = None


def uniform_output(batch: Batch, *, vocabulary: int, classes: int) -> MaskedOutput:
    """Return the output of a model that predicts every token, and every class of a row, with the same probability."""
    tokens = torch.zeros(*predicted_tokens(batch).shape, vocabulary)
    return MaskedOutput(tokens, torch.zeros(len(batch.inputs), classes) if classes else None)


def predicted_tokens(batch: Batch) -> Tensor:
    """Return the targets of ``MaskedOutput.tokens``: (b, p), or (b, t) where a batch has no positions."""
    return batch.targets if batch.positions is None else batch.targets.gather(1, batch.positions)


def mask_tokens(
    tokens: np.ndarray, maskable: np.ndarray, *, rng: np.random.Generator, mask: int, first: int, vocabulary: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Mask tokens for prediction.

    Args:
        tokens: (b, t) int64.
        maskable: (b, t) bool, True at tokens that may be chosen: not at padding and special tokens.
        rng: decides the positions and what replaces their tokens.
        mask: the id of ``[MASK]``.
        first: the first id of a random token; those before it are special.
        vocabulary: number of token ids.

    Returns:
        The inputs (b, t); the targets (b, t), ``IGNORED`` where nothing is predicted; and the positions (b, p) of the targets,
        p of the row with the most. Rows with fewer repeat a position without a target.
    """
    counts = np.maximum(1, np.rint(CHOSEN * maskable.sum(1)).astype(np.int64))
    order = np.where(maskable, rng.random(tokens.shape), 2.0).argsort(1, kind="stable")
    action, random = rng.random(tokens.shape), rng.integers(first, vocabulary, tokens.shape)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(tokens.shape[1])[None], axis=1)
    chosen = (ranks < counts[:, None]) & maskable
    replacement = np.where(action < MASKED, mask, np.where(action < MASKED + REPLACED, random, tokens))
    inputs = np.where(chosen, replacement, tokens)
    targets = np.where(chosen, tokens, IGNORED)
    positions = order[:, : counts.max()]
    without_target = (~chosen).argmax(1)[:, None]
    positions = np.where(np.take_along_axis(chosen, positions, axis=1), positions, without_target)
    return torch.from_numpy(inputs), torch.from_numpy(targets), torch.from_numpy(positions)
