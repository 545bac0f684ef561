"""Recurrences and convolutions against their papers, in both directions, with padding."""

import pytest
import torch
from torch import Tensor

from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.registry import VARIANTS
from attnlab.variants import AttentionConfig, Setting
from attnlab.variants.gru import Gru
from tests.oracles import recurrent
from tests.oracles.recurrent import convolved
from tests.variants.test_variants import T, assert_same, inputs, make

ROLES = ["causal", "bidirectional"]
BASE = {"task": "pydocs", "train": {"steps": 1}}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("name", "paper"), [("gru", recurrent.gru), ("lstm", recurrent.lstm)])
def test_recurrences_follow_cho_and_hochreiter(name: str, paper: recurrent.Recurrence, role: str) -> None:
    variant = make(name, role=role)
    weights = dict(variant.named_parameters())

    def layer(side: str) -> recurrent.Layer:
        start = f"recurrence.{side}."
        return {name.removeprefix(start): p for name, p in weights.items() if name.startswith(start)}

    def oracle(x: Tensor, context: Tensor) -> Tensor:
        left = torch.stack(paper(layer("from_left"), list(x)))
        if role == "causal":
            return left
        right = paper(layer("from_right"), list(x)[::-1])[::-1]
        return torch.cat([left, torch.stack(right)], dim=1)

    assert_same(variant, oracle)


@pytest.mark.parametrize(("role", "kernel"), [("causal", 1), ("causal", 4), ("causal", T + 2), ("bidirectional", 5)])
def test_convolution_follows_gehring(role: str, kernel: int) -> None:
    variant = make("convolution", role=role, kernel=kernel)
    weight, bias = variant.parameters()
    assert_same(variant, lambda x, context: convolved(x, weight, bias, causal=role == "causal"))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", ["gru", "lstm", "convolution"])
def test_a_padded_row_is_the_row_alone(name: str, role: str) -> None:
    """Padding at the end, at the start and on both sides changes neither the output nor the gradient of any parameter."""
    variant = make(name, role=role)
    parameters = list(variant.parameters())
    x, _ = inputs()
    for real in (slice(0, T - 4), slice(3, T), slice(2, T - 1)):
        mask = torch.zeros(1, T, dtype=torch.bool)
        mask[:, real] = True
        padded, alone = variant(x[:1], mask=mask)[:, real], variant(x[:1, real])
        torch.testing.assert_close(padded, alone)
        gradients = (torch.autograd.grad(y.square().sum(), parameters) for y in (padded, alone))
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_a_recurrence_skips_padding_in_the_middle(name: str) -> None:
    variant = make(name, role="bidirectional")
    x, _ = inputs()
    mask = torch.tensor([[True, True, False, True, False, False, *[True] * (T - 6)], [False] * T])
    y = variant(x, mask=mask)
    torch.testing.assert_close(y[0][mask[0]], variant(x[:1, mask[0]])[0])
    assert y.isfinite().all(), "the second row consists of padding"


@pytest.mark.parametrize("name", ["gru", "lstm", "convolution"])
def test_bf16_autocast_stays_near_float32(name: str) -> None:
    setting = Setting("bidirectional", hook="none", memory=False, backend="reference", dim=8, heads=1, precision="bf16")
    reason = VARIANTS.get(name).unsupported(setting)
    if reason:
        pytest.skip(f"{name}: {reason}")
    variant = make(name, role="bidirectional").float()
    x = inputs()[0].detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        rough = variant(x)
        rough.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in variant.parameters())
    torch.testing.assert_close(rough.float(), variant(x), rtol=0.05, atol=0.02)


def test_variants_without_logits_or_heads_are_refused_or_adjusted_in_the_plan() -> None:
    grid = {"variant": ["gru", "convolution"], "position": ["learned", "rotary", "alibi"]}
    planned = plan({"study": "families", "base": {**BASE, "model": {"dim": 20, "heads": 4}}, "grid": grid})
    reasons = {cell.refusal for cell, _ in planned.refused}
    assert len(planned.refused) == 4 and all("position scheme that acts by" in str(r) for r in reasons)


def test_an_unsupported_width_or_kernel_yields_a_one_line_error() -> None:
    with pytest.raises(UserError, match="width of at least 2 .*, got 1"):
        Gru(AttentionConfig(1, 1, role="bidirectional"))
    with pytest.raises(UserError, match="expected a kernel of at least 1, got 0"):
        make("convolution", kernel=0)
    with pytest.raises(UserError, match="expected an odd kernel in a bidirectional role, got 4"):
        make("convolution", role="bidirectional", kernel=4)
