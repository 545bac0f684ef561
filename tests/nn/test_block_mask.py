"""Mask functions in ``blocked``: equal to the whole mask, evaluated by blocks, which leave out keys that are hidden."""

import itertools

import pytest
import torch
from torch import Tensor

from attnlab.nn import blocked
from attnlab.nn import mask as masks
from attnlab.nn.attention import AttentionMask, attend
from attnlab.nn.mask import MaskFunction
from tests.nn.test_attention import DistanceBias, tensors

DOCUMENTS = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3])
FUNCTIONS: dict[str, MaskFunction] = {
    "documents": lambda b, h, i, j: DOCUMENTS[i] == DOCUMENTS[j],
    "prefix": lambda b, h, i, j: (j < 5) | (j <= i),
    "dilated": lambda b, h, i, j: (i - j) % 4 == 0,
    "window with a sink": lambda b, h, i, j: (j < 2) | ((i - j).abs() < 3),
    "of heads and rows": lambda b, h, i, j: (i - j).abs() <= h + b,
    "some queries without a key": lambda b, h, i, j: (i > 6) & (j < 3),
    "no key": lambda b, h, i, j: j < 0,
    "every key": lambda b, h, i, j: j >= 0,
}


@pytest.fixture
def small_tiles(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "KEYS", 2)


@pytest.mark.parametrize(
    ("extra", "padded"),
    [("none", False), ("none", True), ("scores", True), ("tensor", False), ("keys", True), ("relative", False)],
)
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, 4)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_reference_with_its_gradients(
    name: str, causal: bool, window: int | None, padded: bool, extra: str, small_tiles: None
) -> None:
    padding = torch.arange(14) >= torch.tensor([0, 3]).view(2, 1, 1, 1) if padded else None
    scores = [lambda s, b, h, i, j: s.tanh() + 0.1 * j * (h + 1)] if extra == "scores" else []
    mask = AttentionMask(causal, window, padding, (FUNCTIONS[name],))
    for t in (14, 5):
        results = []
        for backend in ("reference", "blocked"):
            leaves, bias = tensors(t, 14), None
            if extra in ("tensor", "keys"):
                shape = (3, t, 14) if extra == "tensor" else (2, 1, 1, 14)
                bias = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
                leaves.append(bias)
            if extra == "relative":
                pair = [
                    torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3, t, 8), (3, 14 + t, 8))
                ]
                bias = DistanceBias(pair[0], pair[1][:, :15] if causal else pair[1])
                leaves += pair
            y = attend(*leaves[:3], mask=mask, bias=bias, backend=backend, scores=scores)
            gradients = torch.autograd.grad((y * y.detach().cos()).sum(), leaves, allow_unused=True)
            results.append([y, *(z for z in gradients if z is not None)])
        for expected, actual in zip(*results, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("scores", [[], [lambda s, b, h, i, j: s.tanh()]], ids=["plain", "scores"])
@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("documents", {2, 4, 6, 8, 10}),  # of the one or two documents of a block
        ("prefix", {6, 8, 10, 12, 14}),
        ("window with a sink", {4, 6, 8}),
        ("every key", {14}),
    ],
)
def test_keys_that_no_query_may_attend_to_are_left_out(
    name: str, widths: set[int], scores: list, small_tiles: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: set[int] = set()
    softmax = Tensor.softmax
    monkeypatch.setattr(Tensor, "softmax", lambda z, dim: computed.add(z.shape[-1]) or softmax(z, dim))
    attend(*tensors(14, 14), mask=AttentionMask(functions=(FUNCTIONS[name],)), backend="blocked", scores=scores)
    assert computed <= widths and max(computed) == max(widths)


def test_functions_are_evaluated_for_one_block_at_a_time(small_tiles: None) -> None:
    shapes: list[torch.Size] = []

    def function(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        shapes.append(torch.broadcast_shapes(i.shape, j.shape))
        return (i - j) % 3 == 0

    y = attend(*tensors(14, 14), mask=AttentionMask(causal=True, functions=(function,)), backend="blocked")
    y.sum().backward()
    assert len(shapes) == 7  # once for each block, not again on the way back
    assert sorted(shape[-1] for shape in shapes) == [2, 4, 6, 8, 10, 12, 14] and {shape[-2] for shape in shapes} == {2}


def test_a_block_whose_keys_are_all_visible_has_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "CAUSAL_BLOCK", 2)
    monkeypatch.setattr(masks, "KEYS", 2)
    mask = AttentionMask(functions=(FUNCTIONS["documents"],))
    pairs = (slice(0, 2), slice(2, 4))
    first, second = masks.make_block_masks(mask, torch.zeros(1, 1, 14, 8), 14, pairs)
    assert first.keys == (slice(0, 4),) and first.visible is not None and not first.visible.all()
    only = masks.make_block_masks(mask, torch.zeros(1, 1, 14, 8), 14, [slice(12, 14)])[0]
    assert only.keys == (slice(12, 14),) and only.visible is None
    assert second.keys == (slice(0, 8),)


@pytest.mark.parametrize("name", ["documents", "window with a sink"])
def test_the_same_weights_are_dropped_on_the_way_back(name: str, small_tiles: None) -> None:
    def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(0)
        return attend(q, k, v, AttentionMask(functions=(FUNCTIONS[name],)), backend="blocked", dropout=0.5)

    torch.manual_seed(1)
    leaves = [torch.randn(1, 1, n, 2, dtype=torch.float64, requires_grad=True) for n in (5, 9, 9)]
    assert torch.autograd.gradcheck(dropped, leaves, fast_mode=True)


def test_a_mask_of_another_call_is_not_reused() -> None:
    visible = torch.ones(9, dtype=torch.bool)
    mask = AttentionMask(functions=(lambda b, h, i, j: visible[j] & (i >= 0),))
    q, k, v = tensors(9, 9)
    for hidden, backend in itertools.product((0, 5), ("reference", "blocked")):
        visible[hidden] = False
        y = attend(q, k, v, mask, backend=backend)
        assert torch.autograd.grad(y.sum(), v)[0][:, :, hidden].abs().max() == 0
