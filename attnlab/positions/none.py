"""No position scheme: without a causal mask, attention treats its input as a set."""

from attnlab.positions import Position


class NoPosition(Position):
    """Does nothing."""

    hook = "none"
