"""Position schemes that act by bias, or widen queries and keys, in the variants that compute their logits in parts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnlab.nn.layers import relative_distance
from attnlab.positions import Position, PositionConfig
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.testing import check_position
from attnlab.testing.contract import check_variant as check
from attnlab.variants import AttentionConfig, Variant
from attnlab.variants.fixed_sparse import FixedSparse
from tests.oracles import child

B, DIM, HEADS = 2, 15, 3  # heads: one in the first half, two in the second
STRIDED = [{"stride": stride} for stride in (1, 3, 4, 5, 13)]
FIXED = [{"stride": stride, "summary": c} for stride, c in ((1, 1), (3, 1), (4, 2), (5, 3), (5, 5), (13, 3))]
CASES = [("strided_sparse", options) for options in STRIDED] + [("fixed_sparse", options) for options in FIXED]


def make(name: str, position: str, options: dict[str, int], *, heads: int = HEADS, dim: int = DIM, t: int = 13) -> Variant:
    torch.manual_seed(7)
    config = PositionConfig(dim=dim, heads=heads, head_dim=dim // heads, length=t, role="causal", blockwise_bias=True)
    scheme = POSITIONS.get(position)(config)
    for parameter in scheme.parameters():
        nn.init.normal_(parameter)  # u and v start at zero, where mistakes hide
    return VARIANTS.get(name)(AttentionConfig(dim, heads, role="causal", position=scheme), **options).double()


def padding(t: int) -> Tensor:
    """Return a mask (b, t) with padding in the middle and at the end of one row and at the beginning of the other."""
    mask = torch.ones(B, t, dtype=torch.bool)
    mask[0, t // 2] = mask[0, -1] = mask[1, 0] = False
    return mask


def assert_follows_child(name: str, position: str, options: dict[str, int], *, t: int, mask: Tensor | None) -> None:
    """Output, and the gradient of every parameter and of the input, with each backend that runs here."""
    variant = make(name, position, options)
    sets = {"strided_sparse": child.strided, "fixed_sparse": child.fixed}[name]
    named: dict[str, Tensor] = dict(variant.named_parameters())
    x = torch.randn(B, t, DIM, dtype=torch.float64, requires_grad=True)
    output_weights = torch.randn(B, t, DIM, dtype=torch.float64)

    def gradients(y: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((y * output_weights).sum(), [x, *named.values()], materialize_grads=True)

    seen = torch.ones(B, t, dtype=torch.bool) if mask is None else mask
    options_of_oracle: dict[str, Any] = {"heads": HEADS, "position": position, "sets": lambda i: sets(i, **options)}
    expected = torch.stack([child.attended(x[b], seen[b], named, **options_of_oracle) for b in range(B)])
    expected_gradients = gradients(expected)
    for variant.backend in ("reference", "sdpa"):
        y = variant(x, mask=mask)
        torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-11)
        for what, one, other in zip(["x", *named], gradients(y), expected_gradients, strict=True):
            assert t < 13 or one.abs().max() > 0, f"{what} gets no gradient"
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10, msg=lambda m, n=what: f"{n}: {m}")


@pytest.mark.parametrize("t", [2, 12, 13])  # shorter than most strides, a multiple of some, a multiple of none but 1 and 13
@pytest.mark.parametrize("position", ["relative", "alibi"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_sparse_variants_follow_child_under_a_bias(name: str, options: dict[str, int], position: str, t: int) -> None:
    assert_follows_child(name, position, options, t=t, mask=None)


@pytest.mark.parametrize("t", [11, 12])
@pytest.mark.parametrize("position", ["t5", "kerple", "pope"])
@pytest.mark.parametrize(
    ("name", "options"), [("strided_sparse", {"stride": 4}), ("fixed_sparse", {"stride": 4, "summary": 2})]
)
def test_sparse_variants_follow_child_with_newer_schemes(name: str, options: dict[str, int], position: str, t: int) -> None:
    assert_follows_child(name, position, options, t=t, mask=padding(t))


@pytest.mark.parametrize("position", ["relative", "alibi"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_padding_and_bias_together(name: str, options: dict[str, int], position: str) -> None:
    assert_follows_child(name, position, options, t=13, mask=padding(13))


@pytest.mark.parametrize("position", ["relative", "alibi"])
def test_the_oracle_sees_summaries_in_another_order(position: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two summaries of a block get each other's bias, which no check of a single summary could detect."""
    correct: Callable[..., Tensor] = FixedSparse.position_bias  # type: ignore[assignment]

    def swapped(*args: Any, **part: Any) -> Tensor:
        bias = correct(*args, **part)
        return bias.flip(-4) if "offset" in part else bias  # (p, e, h, a, m): e is the place of a summary in its block

    monkeypatch.setattr(FixedSparse, "position_bias", swapped)
    with pytest.raises(AssertionError, match="not close"):
        assert_follows_child("fixed_sparse", position, {"stride": 4, "summary": 2}, t=12, mask=None)


class Largest(TorchDispatchMode):
    """Record the size of the largest tensor that any operation returns."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.size = max(self.size, *(z.numel() for z in tree_leaves(result) if isinstance(z, Tensor)), 0)
        return result


@pytest.mark.parametrize("position", ["relative", "alibi", "t5", "kerple"])
@pytest.mark.parametrize(
    ("name", "more"), [("strided_sparse", {}), ("fixed_sparse", {"summary": 1}), ("fixed_sparse", {"summary": 3})]
)
def test_nothing_is_built_for_every_pair_of_positions(name: str, more: dict[str, int], position: str) -> None:
    """At four times the length, the largest temporary tensor, forward or backward, is at most 4^1.5 times as large."""
    sizes = []
    for t, stride in ((256, 16), (1024, 32)):
        variant = make(name, position, {"stride": stride, **more}, heads=2, dim=8, t=t)
        with Largest() as largest:
            variant(torch.randn(1, t, 8, dtype=torch.float64)).sum().backward()
        sizes.append(largest.size)
    assert sizes[1] < t * t
    assert sizes[1] / sizes[0] < 4**1.55, sizes


class Buckets(Position):
    """A learned bias for each head and each distance up to 7, as in T5 (Raffel et al. 2020)."""

    hook = "bias"
    relative = True

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        self.table = nn.Parameter(torch.randn(config.heads, 8))

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        n = relative_distance(q.shape[-2], k.shape[-2], device=q.device) * step + offset
        table = self.table[heads]
        return table[torch.arange(len(table))[:, None, None], n.clamp(0, 7)]


class WholeBuckets(Buckets):
    """The same bias, for whole logits only."""

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        return super().bias(q, k, scale=scale)


@pytest.mark.parametrize("name", ["strided_sparse", "fixed_sparse"])
def test_a_users_scheme_works_blockwise_or_is_refused(name: str) -> None:
    only = ["shapes", "causality by gradient", "padding", "hooks take effect", "bias placement", "gradcheck"]
    results = check(name, position=Buckets, only=only)
    assert not results.failed and "bias placement" in {result.check for result in results if result.status == "passed"}
    (result,) = check(name, position=WholeBuckets, roles=["causal"])
    assert result.status == "refused"
    assert all(word in result.detail for word in ("bias()", "heads", "step", "offset"))


def test_a_scheme_of_whole_biases_serves_where_logits_are_whole() -> None:
    assert check("dense", position=WholeBuckets, roles=["causal"], only=["bias placement"])
    statuses = {
        scheme: [result.status for result in check_position(scheme, only=["bias in blocks"])]
        for scheme in (Buckets, WholeBuckets)
    }
    assert statuses == {Buckets: ["passed"], WholeBuckets: ["not declared"]}
