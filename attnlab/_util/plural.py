"""Numbers with their nouns, in messages."""


def count(n: int, noun: str) -> str:
    """Return a number with its noun: "1 seed", "5 seeds"."""
    return f"{n} {noun}{'' if n == 1 else 's'}"
