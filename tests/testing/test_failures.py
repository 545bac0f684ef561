"""A failed check says in few calls what fails and what to change, and leaves out what would repeat the same failure."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.nn.layers import Projections, merge_heads
from attnlab.positions.none import NoPosition
from attnlab.testing import CheckResult, check
from attnlab.testing.checks import CHECKS
from attnlab.testing.checks.target import CheckTarget
from attnlab.testing.contract import run_checks, select_checks
from attnlab.variants import AttentionConfig, Variant
from attnlab.variants.dense import Dense
from tests.mutants.modes import OverflowsInFloat16
from tests.testing.test_contract import check_fewer_sizes

MODES = "precisions and modes"


class Noisy(Dense):
    """Drops outputs in evaluation, too."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return F.dropout(super().forward(x, context=context, mask=mask), 0.1)


class ChangesMask(Dense):
    """Shows the first key, in the mask of its caller."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            mask[:, -1] = True
        return super().forward(x, context=context, mask=mask)


@pytest.mark.parametrize(("variant", "words"), [(Noisy, "training=self.training"), (ChangesMask, "in place")])
def test_what_would_fail_every_check_is_one_failure(variant: type[Variant], words: str) -> None:
    results = check(variant)
    assert [result.check for result in results.failed] == ["no hidden state"] and results[-1].status == "failed"
    assert words in str(results[-1])


def test_advice_fits_who_calls_attend() -> None:
    class Forgets(Dense):
        def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
            return super().forward(x, context=context)

    failed = check(Forgets, only=["padding", "all padding"]).failed
    assert all("Pass `mask` to every call of `attend`" in result.advice for result in failed) and len(failed) == 2


def test_nan_is_called_nan() -> None:
    [result] = check(OverflowsInFloat16, only=[MODES])
    assert result.status == "failed" and "fp16" in result.detail and result.detail.endswith("is NaN")
    assert "float32" in result.advice


class NormalizedSum(Variant):
    """Right: linear attention, whose epsilon fp16 rounds to 0; only a query without keys would see that."""

    hooks = frozenset({"embed"})
    has_attention_dropout = False

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.project = Projections(config.dim, config.dim, heads=config.heads)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        weights = (F.elu(q) + 1) @ ((F.elu(k) + 1) * (1 if mask is None else mask[:, None, :, None])).mT
        weights = weights.tril() if self.causal else weights
        return merge_heads((weights / (weights.sum(-1, keepdim=True) + 1e-8)) @ v)


def test_an_epsilon_that_underflows_without_effect_fails_no_check() -> None:
    assert not check(NormalizedSum, only=["shapes", "padding", "all padding", "extreme inputs", MODES]).failed


def test_a_wrong_gradient_of_a_wide_variant_is_found_in_few_calls() -> None:
    """The Jacobian of a width of studies takes minutes."""
    calls = []

    class Detached(Dense):
        def forward(self, x: Tensor, **inputs: Any) -> Tensor:
            calls.append(1)
            y = super().forward(x, **inputs)
            return y * y.detach()

    target = CheckTarget(Detached, {}, NoPosition, requested_heads=2, requested_dim=96).with_supported_shape(("causal",))
    results: list[CheckResult] = run_checks(select_checks(CHECKS, ["gradcheck"]), target, classes=(Detached, NoPosition))
    assert results[0].status == "failed" and len(calls) < 50


def test_a_failure_calls_no_more_often_than_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing check ends at its first failure and searches for no cause."""

    class Leaks(Dense):
        def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
            y = super().forward(x, context=context, mask=mask)
            return y - y.mean(1, keepdim=True)

    def count(variant: type[Variant]) -> int:
        calls = []
        forward = variant.forward

        def counted(self: Variant, *args: Any, **kwargs: Any) -> Tensor:
            calls.append(1)
            return forward(self, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(variant, "forward", counted)
            check(variant, only=[name for name in CHECKS if name not in ("compile", "flops", MODES)])
        return len(calls)

    check_fewer_sizes(monkeypatch, slice(1))
    passing = count(Dense)
    assert torch.is_grad_enabled() and count(Leaks) <= 2 * passing
