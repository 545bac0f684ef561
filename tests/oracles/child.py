"""Child et al. 2019, section 4.2: the index sets A1 and A2 of the strided and the fixed pattern, as the paper writes them.

Attention over these sets, one in each half of the heads: dense logits without the pairs outside the set.
"""

from collections.abc import Callable

from torch import Tensor

from tests.oracles.attention import attention, concatenated, heads_of
from tests.oracles.model import Weights, logit_of

Sets = Callable[[int], tuple[set[int], set[int]]]  # i -> A1_i, A2_i


def strided(i: int, stride: int) -> tuple[set[int], set[int]]:
    """A1 = {t, ..., i} with t = max(0, i - l); A2 = {j <= i : (i - j) mod l = 0}."""
    window = set(range(max(0, i - stride), i + 1))
    column = {j for j in range(i + 1) if (i - j) % stride == 0}
    return window, column


def fixed(i: int, stride: int, summary: int) -> tuple[set[int], set[int]]:
    """A1 = {j <= i : floor(j/l) = floor(i/l)}; A2 = {j <= i : j mod l in {l - c, ..., l - 1}} (the paper counts from 1)."""
    block = {j for j in range(i + 1) if j // stride == i // stride}
    summaries = {j for j in range(i + 1) if j % stride in range(stride - summary, stride)}
    return block, summaries


def attended(x: Tensor, seen: Tensor, weights: Weights, *, heads: int, position: str, sets: Sets) -> Tensor:
    """x (t, dim) over the sets of each position, restricted to the keys where ``seen`` (t,) is True: (t, dim)."""
    q, k, v = (heads_of(x, w, heads) for w in weights["project.weight"].chunk(3))
    allowed = [[{j for j in half if seen[j]} for half in sets(i)] for i in range(len(x))]
    logit = logit_of(weights, "position", position, heads=heads, t=len(x), s=len(x))
    y = attention(q, k, v, visible=lambda h, i, j: j in allowed[i][h >= heads // 2], logit=logit)
    return concatenated(y) @ weights["out.weight"].T
