"""The sizes at which the checks run: small fixed ones, and sizes drawn at random from a seed.

The ranges are as in studies: the largest batches, lengths and memories that a study trains with, and longer paddings than
its batches have. Each range is divided into ``DRAWS`` parts on a logarithmic scale, and each draw takes a value of another part
(a Latin hypercube), so that every seed covers each range from small to large.
"""

import random
from dataclasses import dataclass

DRAWS = 3
BATCH = (1, 64)
LENGTH = (1, 512)
CONTEXT = (1, 512)
MEMORY = (1, 512)
PADDING = (1, 256)
PREFIX = (1, 128)
HEADS = (1, 2, 4, 6, 8)
HEAD_WIDTHS = (4, 8, 16)
MAX_LOGITS = 2**19  # entries (b, h, t, s) of one forward pass: the batch is reduced to fit
DEFAULT_HEADS = 4  # ``model.heads`` of a study that does not set it


@dataclass(frozen=True)
class Sizes:
    """Sizes of the inputs of a check.

    The defaults are prime and unequal, so that swapped dimensions do not go unnoticed, and small, so that a failure is.

    Attributes:
        batch: number of sequences, b.
        length: number of queries, t.
        context: length of the other sequence in cross-attention, s.
        memory: positions of memory in front of the queries.
        padding: padded positions that are appended to a sequence.
        prefix: padded positions in front of a sequence.
        name: ``seed N, draw N`` of drawn sizes, else "".
    """

    batch: int = 3
    length: int = 13
    context: int = 11
    memory: int = 10
    padding: int = 4
    prefix: int = 2
    name: str = ""

    @property
    def total(self) -> int:
        """The longest sequence of any check."""
        return self.prefix + self.memory + max(self.length, self.context) + self.padding

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths at which a check runs, ascending, so that the first failure is the smallest."""
        return (self.length,) if self.name else (1, 2, 3, self.length)


def draw_heads(seed: int, draw: int) -> tuple[int, int]:
    """Return the number of heads and the width of a head of one draw; the first draw has the default number of heads."""
    generator = random.Random(f"heads {seed} {draw}")
    heads = generator.choice(HEADS)
    return (DEFAULT_HEADS if draw == 0 else heads), generator.choice(HEAD_WIDTHS)


def draw_sizes(seed: int, draw: int, *, heads: int) -> Sizes:
    """Return the sizes of one draw.

    Args:
        seed: of all draws.
        draw: 0 to ``DRAWS`` - 1.
        heads: number of heads, for ``MAX_LOGITS``.
    """
    generator = random.Random(f"sizes {seed}")  # the same for each draw of a seed: the draws take different parts
    order = generator.sample(range(DRAWS), DRAWS)

    def value(limits: tuple[int, int], part: int) -> int:
        low, high = limits
        at = [(part + generator.random()) / DRAWS for _ in range(DRAWS)][draw]
        return round(low * (high / low) ** at)

    def shuffled() -> int:
        return generator.sample(range(DRAWS), DRAWS)[draw]

    length = value(LENGTH, order[draw])
    context, memory, padding, prefix = (value(limits, shuffled()) for limits in (CONTEXT, MEMORY, PADDING, PREFIX))
    batch = value(BATCH, DRAWS - 1 - order[draw])  # the shortest sequences are those of the largest batch
    longest = max(context, prefix + memory + length + padding)
    batch = max(2, min(batch, MAX_LOGITS // (heads * length * longest)))
    return Sizes(batch, length, context, memory, padding, prefix, f"seed {seed}, draw {draw}")
