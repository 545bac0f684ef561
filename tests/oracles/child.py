"""Child et al. 2019, section 4.2: the index sets A1 and A2 of the strided and the fixed pattern, as the paper writes them."""


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
