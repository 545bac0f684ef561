"""No position scheme: without a causal mask, attention treats its input as a set.

Haviv et al. 2022, arXiv:2203.16634, find that causal language models learn positions without one.

    x_p = e_p              the embedding of token p, unchanged

Departures from the paper: none.
Cost: none.
"""

from attnlab.positions.base import Position


class NoPosition(Position):
    """Do nothing."""

    hook = "none"
