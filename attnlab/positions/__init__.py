"""Position schemes: the ways in which order enters attention. ``Position`` is the contract.

One scheme per file; ``attnlab list positions`` prints them all.

Examples:
    >>> import torch
    >>> from attnlab.registry import POSITIONS
    >>> scheme = POSITIONS.get("alibi")(PositionConfig(dim=4, heads=1, head_dim=4, length=3, role="causal"))
    >>> q = torch.zeros(1, 1, 3, 4)
    >>> scheme.bias(q, q, scale=0.5)[0, 2] * 256  # the last query, with one head of slope 2^-8
    tensor([-2., -1., -0.])
"""

from attnlab.positions.base import Position, PositionConfig, RelativeLogits

__all__ = ["Position", "PositionConfig", "RelativeLogits"]
