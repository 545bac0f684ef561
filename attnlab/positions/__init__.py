"""Position schemes: where order enters attention. The contract is ``Position``."""

from attnlab.positions.base import Position, PositionSetting, Products

__all__ = ["Position", "PositionSetting", "Products"]
