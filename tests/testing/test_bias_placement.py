"""The check "bias placement" of variants that use queries and keys a second time."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.layers import Projections, merge_heads
from attnlab.positions.none import NoPosition
from attnlab.testing import check
from attnlab.testing.checks.positions import lands
from attnlab.testing.checks.result import Failure
from attnlab.testing.checks.target import CheckTarget
from attnlab.variants import AttentionConfig, Variant


class Written(Variant):
    """Softmax attention, written out; subclasses change a step of it."""

    hooks = frozenset({"embed", "bias"})
    has_attention_dropout = False

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        d = config.dim // config.heads
        self.project = Projections(config.dim, config.dim, heads=config.heads)
        self.second = nn.Linear(d, d)
        self.temperature = nn.Linear(d, 1)
        self.null_key = nn.Parameter(torch.randn(config.heads, 1, d))

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        return merge_heads(self.heads_of(q, k, v, mask))

    def heads_of(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        scale = q.shape[-1] ** -0.5
        visible = self.visible(q, k, mask)
        logits = self.logits(q, k, visible, scale).masked_fill(~visible, torch.finfo(q.dtype).min)
        return self.weights(q, logits, scale) * visible @ v

    def visible(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        t, s = q.shape[-2], k.shape[-2]
        visible = torch.ones(t, s, dtype=torch.bool).tril(s - t if self.causal else s)
        return visible if mask is None else visible & mask[:, None, None]

    def logits(self, q: Tensor, k: Tensor, visible: Tensor, scale: float) -> Tensor:
        bias = self.position_bias(q, k, scale=scale, visible=visible)
        return scale * q @ k.mT + (0 if bias is None else bias)

    def weights(self, q: Tensor, logits: Tensor, scale: float) -> Tensor:
        return logits.softmax(-1)


class NullKey(Written):
    def weights(self, q: Tensor, logits: Tensor, scale: float) -> Tensor:
        return torch.cat([scale * q @ self.null_key.mT, logits], dim=-1).softmax(-1)[..., 1:]


class Gate(Written):
    def heads_of(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return self.second(q).sigmoid() * super().heads_of(q, k, v, mask)


class TemperatureOfLogits(Written):
    def weights(self, q: Tensor, logits: Tensor, scale: float) -> Tensor:
        return (F.softplus(self.temperature(q)) * logits).softmax(-1)


class TemperatureOfProducts(Written):
    def logits(self, q: Tensor, k: Tensor, visible: Tensor, scale: float) -> Tensor:
        bias = self.position_bias(q, k, scale=scale, visible=visible)
        return F.softplus(self.temperature(q)) * scale * q @ k.mT + (0 if bias is None else bias)


class GateOfKeys(Written):
    def heads_of(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return super().heads_of(q, k, self.second(k).sigmoid() * v, mask)


class TwoMaps(Written):
    """Subtracts attention without positions, so that queries and keys both have a second use."""

    hooks = frozenset({"embed", "rotate", "bias"})

    def heads_of(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        visible = self.visible(q, k, mask)
        logits = (q.shape[-1] ** -0.5 * q @ k.mT).masked_fill(~visible, torch.finfo(q.dtype).min)
        content = logits.softmax(-1) * visible @ v
        q, k = self.rotate(q, k)
        return super().heads_of(q, k, v, mask) - 0.3 * content


class BeforeScale(Gate):
    def logits(self, q: Tensor, k: Tensor, visible: Tensor, scale: float) -> Tensor:
        bias = self.position_bias(q, k, scale=scale, visible=visible)
        return scale * (q @ k.mT + (0 if bias is None else bias))


class Twice(Gate):
    def logits(self, q: Tensor, k: Tensor, visible: Tensor, scale: float) -> Tensor:
        bias = self.position_bias(q, k, scale=scale, visible=visible)
        return super().logits(q, k, visible, scale) + (0 if bias is None else bias)


class OfKeysReversed(Gate):
    def logits(self, q: Tensor, k: Tensor, visible: Tensor, scale: float) -> Tensor:
        bias = self.position_bias(q, k, scale=scale, visible=visible)
        return scale * q @ k.mT + (0 if bias is None else bias.flip(-1))


class OtherHead(NullKey):
    def logits(self, q: Tensor, k: Tensor, visible: Tensor, scale: float) -> Tensor:
        bias = self.position_bias(q, k, scale=scale, visible=visible)
        return scale * q @ k.mT + (0 if bias is None else bias.roll(1, 1))


class TwoMapsBeforeScale(TwoMaps):
    logits = BeforeScale.logits


def fails(variant: type[Variant]) -> bool:
    target = CheckTarget(variant, {}, NoPosition, any_scheme=True).with_supported_shape()
    try:
        lands(target)
    except Failure:
        return True
    return False


@pytest.mark.parametrize("variant", [Written, NullKey, Gate, TemperatureOfLogits, TemperatureOfProducts, GateOfKeys, TwoMaps])
def test_a_second_use_of_queries_or_keys_is_no_misplaced_bias(variant: type[Variant]) -> None:
    assert not fails(variant)


@pytest.mark.parametrize("variant", [BeforeScale, Twice, OfKeysReversed, OtherHead, TwoMapsBeforeScale])
def test_a_misplaced_bias_fails_beside_a_second_use(variant: type[Variant]) -> None:
    assert fails(variant)


def test_a_second_use_passes_at_every_size() -> None:
    [result] = check(TemperatureOfProducts, only=["bias placement"])
    assert result.status == "passed"
