"""Independent implementations of the variants and position schemes: explicit loops in float64, written from the papers.

Nothing here imports attnlab, so that an error would have to be made twice.
"""
