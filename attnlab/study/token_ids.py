"""Validation of token ids that a caller passes to a trained model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.errors import UserError


def token_ids(inputs: Sequence[int] | Tensor, *, vocabulary: int) -> Tensor:
    """Return token ids (b, t) in int64; a single row (t,) becomes (1, t).

    Raises:
        UserError: they are not whole numbers from 0 to ``vocabulary`` - 1, or have another shape.
    """
    tokens = torch.as_tensor(inputs)
    tokens = tokens[None] if tokens.dim() == 1 else tokens
    if tokens.dim() != 2 or not tokens.numel() or tokens.is_floating_point() or tokens.dtype == torch.bool:
        shape = tuple(tokens.shape)
        raise UserError(f"expected token ids of shape (t,) or (b, t), whole numbers, got {tokens.dtype} of shape {shape}")
    least, most = int(tokens.min()), int(tokens.max())
    if least < 0 or most >= vocabulary:
        raise UserError(f"expected token ids from 0 to {vocabulary - 1}, got {least} to {most}")
    return tokens.long()
