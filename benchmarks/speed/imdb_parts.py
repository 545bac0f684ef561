"""Lower bounds for section ``imdb``: its longest operations, each at the rate that it reaches alone on this machine."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from benchmarks.speed import floor
from benchmarks.speed.case import Row, Size, median_ms

PARTS: tuple[str, ...] = ("linear layers", "attention's products", "softmax")
LINEAR, PRODUCTS, SOFTMAX = PARTS
TYPICAL = 256  # words at which the rates are measured


def bounds(size: Size, device: torch.device, *, epoch: tuple[int, int], evaluation: tuple[int, int]) -> list[Row]:
    """Return the seconds of each of ``PARTS`` in an epoch and in an evaluation in bf16.

    Args:
        epoch, evaluation: numbers of computed positions, and of pairs of positions within a review.
    """
    forward, backward = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0.0)  # seconds per position, or per pair of positions

    def add(part: str, acts: Iterable[Callable[[], object]], share: float) -> None:
        first, *rest = [1e-3 * share * median_ms(act, device) for act in acts]
        forward[part] += first
        backward[part] += sum(rest)

    # The logits of ``few`` fit into a cache.
    many, few = (replace(size, length=TYPICAL, batch=batch) for batch in (64, 2))
    for part, shape, units in ((LINEAR, many, 64 * TYPICAL), (PRODUCTS, few, 2 * TYPICAL**2)):
        for product in floor.products(shape)[:-1]:  # the last is a language model's head
            if (product.batch == 1) == (part == LINEAR):
                add(part, floor.three(product, device, torch.bfloat16).values(), product.count / units)
    logits = torch.randn(2 * size.heads, TYPICAL, TYPICAL, device=device).bfloat16()
    weights, back = logits.softmax(-1), torch.ops.aten._softmax_backward_data
    both = (lambda: logits.softmax(-1), lambda: back(logits, weights, -1, weights.dtype))
    add(SOFTMAX, both, size.depth / (2 * TYPICAL**2))
    rows = []
    for part in PARTS:
        of = 0 if part == LINEAR else 1
        rows.append(Row("epoch_bound_seconds", part, (forward[part] + backward[part]) * epoch[of]))
        rows.append(Row("evaluation_bound_seconds", part, forward[part] * evaluation[of]))
    return rows
