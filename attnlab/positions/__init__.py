"""Position schemes: where order enters attention. The contract is ``Position``."""

from attnlab.positions.base import Position, PositionConfig, RelativeLogits

__all__ = ["Position", "PositionConfig", "RelativeLogits"]
