"""Masks, windows and shared heads of keys in ``Variant.attend``, against the formula written out."""

import math

import pytest
import torch
from torch import Tensor

from attnlab.positions import Position, PositionConfig
from attnlab.registry import POSITIONS
from attnlab.testing import check
from attnlab.testing.checks.target import perturb_constant_parameters
from attnlab.variants import BACKENDS, AttentionConfig, Projections, Variant, merge_heads

B, H, T, S, D = 2, 6, 7, 11, 4
BACKENDS_HERE = ("reference", "blocked", "sdpa")


def scheme(name: str, role: str) -> Position | None:
    if name == "none":
        return None
    torch.manual_seed(4)
    position = POSITIONS.get(name)(PositionConfig(dim=H * D, heads=H, head_dim=D, length=S, role=role))
    perturb_constant_parameters(position)
    return position.double()


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def expected(variant: Variant, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """Attention of each head on its own; query head i reads head i // (h / g) of the keys; zeros without a visible key."""
    group = H // k.shape[1]
    k, v = (torch.stack([z[:, i // group] for i in range(H)], dim=1) for z in (k, v))
    q, k = variant.rotate(q, k)
    logits = q @ k.mT / math.sqrt(D)
    bias = variant.position_bias(q, k, scale=1 / math.sqrt(D))
    logits = (logits if bias is None else logits + bias).masked_fill(~visible, -1e300)
    return (logits.softmax(-1) * visible) @ v


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize("position", ["none", "rotary", "alibi", "relative"])
@pytest.mark.parametrize("backend", BACKENDS_HERE)
def test_masks_windows_and_shared_heads_follow_the_formula(backend: str, position: str, kv_heads: int) -> None:
    variant = Variant(AttentionConfig(H * D, H, role="causal", backend=backend, position=scheme(position, "causal")))
    q, k, v = drawn(B, H, T, D, seed=1), drawn(B, kv_heads, S, D, seed=2), drawn(B, kv_heads, S, 5, seed=3)
    leaves = [z.requires_grad_() for z in (q, k, v)]
    mask = drawn(B, S, seed=5) > -1
    by_pair, by_head = drawn(T, S, seed=6) > -0.5, drawn(H, 1, S, seed=7) > -0.5
    distance = torch.arange(S - T, S)[:, None] - torch.arange(S)
    for mask_of_keys, attn_mask, window in (
        (None, None, None),
        (None, None, 3),
        (mask, by_pair, None),
        (mask, by_head, 4),
        (None, by_pair, 1),
    ):
        visible = (distance >= 0).expand(B, H, T, S)
        visible = visible if mask_of_keys is None else visible & mask_of_keys[:, None, None, :]
        visible = visible if attn_mask is None else visible & attn_mask
        visible = visible if window is None else visible & (distance < window)
        y = variant.attend(q, k, v, mask_of_keys, attn_mask=attn_mask, window=window)
        y_too = expected(variant, q, k, v, visible)
        torch.testing.assert_close(y, y_too, rtol=1e-9, atol=1e-10)
        weights = drawn(*y.shape, seed=8)
        for one, two in zip(
            torch.autograd.grad((y * weights).sum(), leaves, allow_unused=True),
            torch.autograd.grad((y_too * weights).sum(), leaves, allow_unused=True),
            strict=True,
        ):
            torch.testing.assert_close(one, two, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS_HERE)
def test_a_window_of_a_bidirectional_role_reaches_both_ways(backend: str) -> None:
    variant = Variant(AttentionConfig(H * D, H, role="bidirectional", backend=backend))
    q, k, v = drawn(B, H, T, D, seed=1), drawn(B, H, S, D, seed=2), drawn(B, H, S, 5, seed=3)
    distance = torch.arange(S - T, S)[:, None] - torch.arange(S)
    visible = distance.abs() < 3
    torch.testing.assert_close(variant.attend(q, k, v, None, window=3), expected(variant, q, k, v, visible))


def test_heads_of_keys_must_divide_those_of_queries() -> None:
    variant = Variant(AttentionConfig(H * D, H, role="bidirectional"))
    q, k = drawn(B, H, T, D, seed=1), drawn(B, 4, T, D, seed=2)
    with pytest.raises(ValueError, match=r"divides 6, got 4"):
        variant.attend(q, k, k, None)


def test_projections_without_kv_heads_are_those_with_all_heads() -> None:
    torch.manual_seed(0)
    one = Projections(12, 12, heads=3)
    torch.manual_seed(0)
    other = Projections(12, 12, heads=3, kv_heads=3)
    assert torch.equal(one.weight, other.weight) and one.weight.shape == (36, 12)


@pytest.mark.parametrize("has_context", [False, True])
def test_projections_with_fewer_heads_of_keys(has_context: bool) -> None:
    project = Projections(12, 24, heads=6, kv_heads=2).double()
    x, context = drawn(2, 5, 12, seed=1), drawn(2, 7, 12, seed=2)
    q, k, v = project(x, context if has_context else None)
    w_q, w_k, w_v = project.weight.split([24, 8, 8])
    source = context if has_context else x
    for z, w, of, heads in ((q, w_q, x, 6), (k, w_k, source, 2), (v, w_v, source, 2)):
        assert z.shape == (2, heads, of.shape[1], 4)
        for head in range(heads):
            torch.testing.assert_close(z[:, head], of @ w[4 * head : 4 * head + 4].T)


@pytest.mark.parametrize(("width", "heads", "kv_heads"), [(12, 4, 3), (12, 4, 0), (13, 4, None), (12, 4, 8)])
def test_projections_refuse_heads_that_do_not_divide(width: int, heads: int, kv_heads: int | None) -> None:
    with pytest.raises(ValueError, match="divide"):
        Projections(12, width, heads=heads, kv_heads=kv_heads)


class Grouped(Variant):
    """Grouped-query attention within a window in the causal role: what a user writes."""

    roles = frozenset({"causal", "bidirectional"})
    supports_memory = True
    backends = BACKENDS
    permutation_equivariant = True

    def __init__(self, config: AttentionConfig, *, window: int = 400) -> None:
        super().__init__(config)
        self.window = window if self.causal else None
        self.project = Projections(config.dim, config.dim, heads=config.heads, kv_heads=1)
        self.out = torch.nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        return self.out(merge_heads(self.attend(q, k, v, mask, window=self.window)))


@pytest.mark.parametrize("position", [None, "rotary", "relative"])
def test_grouped_queries_in_a_window_pass_the_contract(position: str | None) -> None:
    only = [
        "shapes",
        "causality by gradient",
        "full visibility",
        "padding",
        "memory",
        "key-value cache",
        "gradcheck",
        "backends",
    ]
    results = check(Grouped, position=position, only=only)
    assert results and not results.failed
