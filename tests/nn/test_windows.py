"""Windows: every backend computes the same, and ``blocked`` computes only the keys near each block of queries."""

import itertools

import pytest
import torch
from torch import Tensor

from attnlab.nn import blocked
from attnlab.nn.attention import AttentionMask, attend
from tests.nn.test_attention import DistanceBias, tensors

SIZES = [(7, 7), (5, 11), (1, 9)]
WINDOWS = [1, 3, 20]


def near(t: int, s: int, window: int, *, causal: bool) -> Tensor:
    """Return the mask (t, s) of a window, written out."""
    distances = [[i + s - t - j for j in range(s)] for i in range(t)]
    return torch.tensor([[(0 if causal else -window) < d + causal and d < window for d in row] for row in distances])


def hidden_keys(kind: str, t: int, s: int) -> Tensor | None:
    """Return an ``attn_mask`` for the batch of ``tensors``; each leaves some query of some window without a key."""
    if kind == "padding":
        return torch.arange(s) >= torch.tensor([0, 3]).view(2, 1, 1, 1)
    return None if kind == "none" else torch.rand(2, 1, t, s, generator=torch.Generator().manual_seed(4)) < 0.6


@pytest.mark.parametrize("kind", ["none", "padding", "pairs"])
@pytest.mark.parametrize("biased", ["none", "tensor", "relative"])
@pytest.mark.parametrize(("sizes", "causal", "window"), list(itertools.product(SIZES, [True, False], WINDOWS)))
def test_blocks_within_a_window_equal_reference_with_their_gradients(
    sizes: tuple[int, int], causal: bool, window: int, biased: str, kind: str, small_blocks: None
) -> None:
    (t, s), results = sizes, []
    attn_mask = hidden_keys(kind, t, s)
    visible = near(t, s, window, causal=causal)
    masks = {
        "reference": AttentionMask(attn_mask=visible if attn_mask is None else visible & attn_mask),
        "blocked": AttentionMask(causal, window, attn_mask),
    }
    for backend, mask in masks.items():
        leaves = tensors(t, s)
        bias: Tensor | DistanceBias | None = None
        if biased == "tensor":
            bias = torch.randn(3, t, s, dtype=torch.float64, requires_grad=True)
            leaves.append(bias)
        if biased == "relative":
            pair = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3, t, 8), (3, s + t, 8))]
            # The reference sees no causal mask, and needs the distances of all keys.
            bias = DistanceBias(pair[0], pair[1][:, : s + 1] if backend == "blocked" and causal else pair[1])
            leaves += pair
        y = attend(*leaves[:3], mask=mask, bias=bias, backend=backend)
        results.append([y, *torch.autograd.grad((y * y.detach().cos()).sum(), leaves)])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("s", [3, 7])
def test_blocks_of_more_than_twice_as_many_queries_as_keys_equal_reference(s: int, small_blocks: None) -> None:
    q, k, v = tensors(23, s)
    expected, actual = (attend(q, k, v, AttentionMask(), backend=backend) for backend in ("reference", "blocked"))
    assert (actual - expected).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("backend", "changed"),
    [("reference", False), ("reference", True), ("blocked", False), ("blocked", True), ("sdpa", False)],
)
@pytest.mark.parametrize(("sizes", "causal", "window"), list(itertools.product([*SIZES, (9, 4)], [True, False], WINDOWS)))
def test_a_window_hides_distant_keys(
    sizes: tuple[int, int], causal: bool, window: int, backend: str, changed: bool, small_blocks: None
) -> None:
    (t, s), leaves = sizes, tensors(*sizes)
    scores = [lambda logits, b, h, i, j: logits + 0.1 * j * (h + 1) - 0.2 * i] if changed else []
    distance = torch.arange(s - t, s)[:, None] - torch.arange(s)
    bias = 0.1 * torch.arange(s) * torch.arange(1, 4).view(3, 1, 1) if changed else 0.0 * distance
    results = []
    for mask, arguments in (
        (AttentionMask(causal, window), {"backend": backend, "scores": scores}),
        (AttentionMask(attn_mask=near(t, s, window, causal=causal)), {"bias": bias.double()}),
    ):
        y = attend(*leaves, mask=mask, **arguments)  # type: ignore[arg-type] of different types
        results.append([y, *torch.autograd.grad((y * y.detach().cos()).sum(), leaves)])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("causal", [True, False])
def test_blocks_within_a_window_drop_the_same_weights_on_the_way_back(causal: bool, small_blocks: None) -> None:
    def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(0)
        return attend(q, k, v, AttentionMask(causal, window=3), backend="blocked", dropout=0.5)

    assert torch.autograd.gradcheck(dropped, tensors(5, 9), fast_mode=True)


@pytest.mark.parametrize("scores", [[], [lambda logits, b, h, i, j: logits.tanh()]], ids=["plain", "scores"])
@pytest.mark.parametrize(("causal", "keys"), [(True, 2 + 4), (False, 2 + 2 * 4)])
def test_blocks_compute_the_keys_within_a_window_alone(
    causal: bool, keys: int, scores: list[object], small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths: list[int] = []
    softmax = Tensor.softmax
    monkeypatch.setattr(Tensor, "softmax", lambda z, dim: widths.append(z.shape[-1]) or softmax(z, dim))
    attend(*tensors(31, 31), mask=AttentionMask(causal, window=5), backend="blocked", scores=scores)  # type: ignore[arg-type]
    assert widths and max(widths) == keys


def test_weights_of_short_rows_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    def saved_weights(t: int, window: int | None, *, causal: bool, total_length: int | None = None) -> bool:
        saved: list[Tensor] = []
        q, k, v = tensors(t, t)  # queries and keys are 8 wide
        with torch.autograd.graph.saved_tensors_hooks(lambda z: saved.append(z) or z, lambda z: z):
            attend(q, k, v, AttentionMask(causal, window), backend="blocked", total_length=total_length)
        return len(saved) > 3  # q, k and v

    monkeypatch.setattr(blocked, "CAUSAL_BLOCK", 10)
    monkeypatch.setattr(blocked, "MAX_SAVED_ROW", 100)
    assert saved_weights(100, None, causal=True)
    assert not saved_weights(101, None, causal=True)
    assert saved_weights(400, 91, causal=True)  # 10 queries see 100 keys
    assert not saved_weights(400, 92, causal=True)
    assert saved_weights(400, 46, causal=False)
    assert not saved_weights(400, 47, causal=False)
    assert not saved_weights(20, None, causal=True, total_length=400)
    assert saved_weights(16, None, causal=True, total_length=400)  # no more than a query and a key


@pytest.mark.parametrize("window", [0, -2])
def test_a_window_below_one_is_refused(window: int) -> None:
    with pytest.raises(ValueError, match=f"window .* got {window}"):
        AttentionMask(causal=True, window=window)


@pytest.mark.parametrize("window", [None, *WINDOWS])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("t", "s"), [*SIZES, (9, 4), (4, 1)])
def test_queries_that_see_a_key_are_counted_for_all_sizes(t: int, s: int, causal: bool, window: int | None) -> None:
    padding = (torch.arange(s) >= torch.tensor([0, 3]).view(2, 1, 1, 1)) & (torch.arange(s) % 3 != 1)
    mask = AttentionMask(causal=causal, window=window, attn_mask=padding)
    visible = mask.dense(t, s, device=torch.device("cpu"))
    assert visible is not None
    expected = visible.any(-1, keepdim=True).expand(2, 1, t, 1)
    assert mask.shows_any(t, s, device=torch.device("cpu")).expand(2, 1, t, 1).equal(expected)
