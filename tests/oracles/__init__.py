"""Each variant and position scheme once more, rebuilt from its paper with explicit loops in float64.

Nothing here imports attnlab: what agrees with these was written twice.
"""
