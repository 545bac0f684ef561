"""The stated mask of the sparse variants, and dense attention under a mask, against the paper and the fast code."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.nn.attention import AttentionMask, attend
from attnlab.variants import Variant, merge_heads
from attnlab.variants.dense import reference
from tests.oracles import child
from tests.variants.test_variants import HEADS, B, M, T, inputs, make

# Child et al. 2019, section 4.2, written by hand: rows are queries, columns keys, for 7 positions.
WINDOW_OF_2 = """
1......
11.....
111....
.111...
..111..
...111.
....111
"""
COLUMNS_OF_2 = """
1......
.1.....
1.1....
.1.1...
1.1.1..
.1.1.1.
1.1.1.1
"""
BLOCKS_OF_3 = """
1......
11.....
111....
...1...
...11..
...111.
......1
"""
SUMMARIES_OF_3 = """
.......
.......
..1....
..1....
..1....
..1..1.
..1..1.
"""
HANDWRITTEN = [
    ("strided_sparse", {"stride": 2}, WINDOW_OF_2, COLUMNS_OF_2),
    ("fixed_sparse", {"stride": 3, "summary": 1}, BLOCKS_OF_3, SUMMARIES_OF_3),
]
CASES = [("strided_sparse", {"stride": stride}) for stride in (1, 3, 4, T, T + 2)]
CASES += [("fixed_sparse", {"stride": stride, "summary": c}) for stride, c in ((1, 1), (3, 1), (4, 2), (5, 5), (T + 2, 3))]


def rows(variant: Variant, head: int, t: int) -> list[str]:
    visible = variant.visible  # type: ignore[union-attr, operator]
    return ["".join("1" if visible(head, i, j) else "." for j in range(t)) for i in range(t)]  # type: ignore[operator]


@pytest.mark.parametrize(("name", "options", "first", "second"), HANDWRITTEN)
def test_the_stated_mask_is_the_paper_s(name: str, options: dict[str, Any], first: str, second: str) -> None:
    variant = make(name, **options)
    for head in range(HEADS):
        expected = first if head < HEADS // 2 else second
        assert rows(variant, head, 7) == expected.split()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_stated_mask_is_the_sets_of_child(name: str, options: dict[str, Any]) -> None:
    variant = make(name, **options)
    sets = {"strided_sparse": child.strided, "fixed_sparse": child.fixed}[name]
    for head in range(HEADS):
        expected = [sets(i, **options)[head >= HEADS // 2] for i in range(T)]
        assert rows(variant, head, T) == ["".join("1" if j in keys else "." for j in range(T)) for keys in expected]


@pytest.mark.parametrize("backend", ["reference", "blocked", "sdpa"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_sparse_variants_are_dense_attention_under_the_stated_mask(name: str, options: dict[str, Any], backend: str) -> None:
    variant = make(name, **options)
    variant.backend = backend
    visible = torch.tensor([[[v == "1" for v in row] for row in rows(variant, head, T)] for head in range(HEADS)])
    x, _ = inputs()
    q, k, v = variant.project(x, None)  # type: ignore[operator]
    expected = variant.out(merge_heads(reference(q, k, v, visible)))  # type: ignore[operator]
    torch.testing.assert_close(variant(x), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("backend", ["reference", "blocked", "sdpa"])
@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize("causal", [False, True])
def test_every_backend_computes_the_reference_of_dense(causal: bool, memory: int, backend: str) -> None:
    torch.manual_seed(2)
    q, k, v = (torch.randn(B, HEADS, n, 4, dtype=torch.float64) for n in (T, memory + T, memory + T))
    visible: Tensor = torch.ones(T, memory + T, dtype=torch.bool)
    y = attend(q, k, v, AttentionMask(causal=causal), backend=backend)
    torch.testing.assert_close(y, reference(q, k, v, visible.tril(memory) if causal else visible), rtol=1e-9, atol=1e-11)


def test_the_reference_of_dense_yields_zeros_for_a_query_without_keys() -> None:
    q, k, v = torch.randn(3, B, HEADS, T, 4, dtype=torch.float64).unbind()
    visible = torch.ones(T, T, dtype=torch.bool)
    visible[3] = False
    y = reference(q, k, v, visible)
    assert not y[:, :, 3].any() and y[:, :, :3].all()
