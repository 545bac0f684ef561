"""Train a profile: diagnostics of increasing difficulty, until a variant does not solve them."""
