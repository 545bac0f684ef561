"""Advice names the cause that was seen: wrong variants, components and position schemes, each with one known mistake."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.components import Component
from attnlab.nn.attention import AttentionMask, attend
from attnlab.nn.layers import Projections, merge_heads, relative_distance
from attnlab.positions import Position
from attnlab.positions.none import NoPosition
from attnlab.testing import CheckResult, check_position
from attnlab.testing.checks import CHECKS
from attnlab.testing.checks.target import CheckTarget
from attnlab.testing.composition import ComponentSpec, compose
from attnlab.testing.contract import run_checks, select_checks
from attnlab.variants import AttentionConfig, Variant
from attnlab.variants.dense import Dense


class Plain(Variant):
    """Softmax attention without mistakes."""

    all_calls = 0

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.project = Projections(config.dim, config.dim, heads=config.heads)
        self.norm = nn.BatchNorm1d(config.dim, affine=False)
        self.register_buffer("running", torch.zeros(config.dim))
        self.last: Tensor | None = None
        self.calls = 0

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        return merge_heads(self.attend(q, k, v, mask))


def variant(change: Callable[[Any, Tensor], Tensor]) -> type[Variant]:
    """Return a variant that changes the output of ``Plain``."""

    class Changed(Plain):
        def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
            return change(self, super().forward(x, context=context, mask=mask))

    return Changed


def masked(change: Callable[[Tensor], Tensor]) -> type[Variant]:
    """Return a variant that changes its mask."""

    class Changed(Plain):
        def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
            return super().forward(x, context=context, mask=None if mask is None else change(mask))

    return Changed


def keep_running_mean(self: Any, y: Tensor) -> Tensor:
    with torch.no_grad():
        self.running.lerp_(y.mean((0, 1)), 0.1)
    return y - self.running


def add_last(self: Any, y: Tensor) -> Tensor:
    last, self.last = self.last, y.detach()
    return y if last is None else y + last.mean()


def count_calls(self: Any, y: Tensor) -> Tensor:
    self.calls += 1
    return y * (1 + 0.01 * self.calls)


def count_all_calls(self: Any, y: Tensor) -> Tensor:
    Plain.all_calls += 1
    return y * (1 + 0.01 * Plain.all_calls)


def show_first(mask: Tensor) -> Tensor:
    mask[:, 0] = True
    return mask


class ChangesInput(Plain):
    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            x.mul_(1.1)
        return super().forward(x, context=context, mask=mask)


class SwapsHeads(Plain):
    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        return self.attend(q, k, v, mask).reshape(x.shape)


class Unmasked(Plain):
    """Attention of which ``causal`` and the padding mask each apply or do not."""

    causal_mask, padding_mask = False, True

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        keys = mask[:, None, None] if mask is not None and self.padding_mask else None
        causal = self.causal and self.causal_mask
        q, k, v = self.project(x, context)
        return merge_heads(attend(q, k, v, AttentionMask(causal, attn_mask=keys)))


class ForgetsPadding(Unmasked):
    causal_mask, padding_mask = True, False


class ForgetsBoth(Unmasked):
    padding_mask = False


class ShowsNext(Plain):
    roles = frozenset({"causal"})

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        visible = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(1)
        visible = visible if mask is None else visible & mask[:, None, None]
        return merge_heads(attend(q, k, v, AttentionMask(attn_mask=visible)))


class ZerosKeys(Plain):
    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        return merge_heads(self.attend(q, k if mask is None else k * mask[:, None, :, None], v, None))


class ReadsPaddedNeighbors(Plain):
    roles = frozenset({"causal"})
    permutation_equivariant = False

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask=mask) + F.pad(x, (0, 0, 1, 0))[:, :-1]


def small(cls: type[Variant], *names: str) -> list[CheckResult]:
    """Return the results of checks at one small size."""
    target = CheckTarget(cls, {}, NoPosition, any_scheme=True).with_supported_shape()
    target = replace(target, sizes=replace(target.sizes, length=7, name="small"))
    return run_checks(select_checks(CHECKS, names), target, classes=(cls, NoPosition))


PADDING, ROWS, STATE, MODES = "padding", "batch independence", "no hidden state", "precisions and modes"
CAUSES: list[tuple[str, type[Variant], str]] = [
    # statistics of positions are no forgotten mask
    ("statistic", variant(lambda self, y: y / (1 + y.norm(dim=1, keepdim=True))), PADDING),
    ("statistic", variant(lambda self, y: y - y.mean(1, keepdim=True)), PADDING),
    ("statistic", variant(lambda self, y: F.normalize(y, dim=1)), PADDING),
    ("statistic", variant(lambda self, y: y * y.softmax(1)), PADDING),
    ("statistic", variant(lambda self, y: F.instance_norm(y.mT).mT), PADDING),
    ("statistic", variant(lambda self, y: y / y.abs().max()), PADDING),
    ("statistic", variant(lambda self, y: y.cumsum(1)), PADDING),
    ("statistic", variant(lambda self, y: y.cummax(1).values), PADDING),
    ("statistic", variant(lambda self, y: y.cumsum(1) / torch.arange(1, 1 + y.shape[1])[:, None]), PADDING),
    ("statistic", variant(lambda self, y: y + y.sort(1).values), PADDING),
    ("transform", variant(lambda self, y: torch.fft.fft(y, dim=1).real), PADDING),
    # randomness is no mask
    ("randomness", variant(lambda self, y: F.dropout(y, 0.1)), PADDING),
    ("randomness", variant(lambda self, y: y + torch.randn_like(y)), ROWS),
    ("randomness", variant(lambda self, y: y + 0.1 * torch.randn_like(y)), "state_dict"),
    ("randomness", variant(lambda self, y: y + torch.randn_like(y) if self.training else y), "training mode"),
    # neither are state and statistics of the batch
    ("state", variant(keep_running_mean), PADDING),
    ("state", variant(add_last), PADDING),
    ("state", variant(count_calls), ROWS),
    ("state", variant(count_calls), STATE),
    ("state", variant(count_all_calls), PADDING),
    ("randomness", variant(lambda self, y: y * np.random.rand()), PADDING),
    ("batch", variant(lambda self, y: y - y.mean(0, keepdim=True)), PADDING),
    ("batch", variant(lambda self, y: y - y.mean(0, keepdim=True)), ROWS),
    ("batch", variant(lambda self, y: self.norm(y.mT).mT), "dropout share"),
    ("batch size", variant(lambda self, y: y * len(y)), ROWS),
    ("batch", masked(lambda mask: mask | mask.all(1).any()), ROWS),
    # arguments that are changed in place are no reshape
    ("mutation", masked(lambda mask: ~mask.logical_not_()), ROWS),
    ("mutation", masked(show_first), PADDING),
    ("mutation", ChangesInput, ROWS),
    # causes that the pattern of the outputs distinguishes
    ("mask is not used", ForgetsPadding, PADDING),
    ("inverted mask", masked(torch.logical_not), PADDING),
    ("hidden keys count", ZerosKeys, PADDING),
    ("neighbors", ReadsPaddedNeighbors, PADDING),
    ("length", variant(lambda self, y: y / y.shape[1]), PADDING),
    ("training mode", variant(lambda self, y: y if self.training else 0.9 * y), "dropout share"),
    # in the precision or mode in which it acts
    ("statistic", variant(lambda self, y: y if y.dtype == torch.float64 else y - y.mean(1, keepdim=True)), MODES),
    ("batch", variant(lambda self, y: y if y.dtype == torch.float64 else y - y.mean(0)), MODES),
]


@pytest.mark.parametrize(("cause", "cls", "name"), CAUSES)
def test_the_cause_of_a_failure_is_named(cause: str, cls: type[Variant], name: str) -> None:
    [result] = small(cls, name)
    assert (result.status, result.cause) == ("failed", cause), result.detail


class BelowMean(Plain):
    """Keys count where their logit is above the mean of all, later ones included."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        logits = q @ k.mT
        visible = relative_distance(q.shape[2], k.shape[2], device=x.device) >= 0
        visible = visible if self.causal else torch.ones_like(visible)
        weights = (logits - logits.mean(-1, keepdim=True)).relu() * (visible if mask is None else visible & mask[:, None, None])
        return merge_heads(weights @ v)


CAUSALITY: list[tuple[str, type[Variant]]] = [
    ("statistic", BelowMean),
    ("statistic", variant(lambda self, y: y / (1 + y.norm(dim=1, keepdim=True)))),
    ("state", variant(count_calls)),
    ("batch", variant(lambda self, y: self.norm(y.mT).mT)),
    ("no causal mask", Unmasked),
    ("no mask", ForgetsBoth),
    ("off by one", ShowsNext),
    ("reads ahead", variant(lambda self, y: y + F.pad(y, (0, 0, 0, 2))[:, 2:] if self.causal else y)),
    ("wraps around", variant(lambda self, y: y + y.roll(1, 1))),
    ("transform", variant(lambda self, y: torch.fft.fft2(y).real)),
    ("transform", variant(lambda self, y: torch.fft.irfft(torch.fft.rfft(y, dim=1) ** 2, n=y.shape[1], dim=1))),
    ("reversed", variant(lambda self, y: y.flip(1).cumsum(1).flip(1))),
    ("reversed", variant(lambda self, y: y + y.flip(1))),
    ("reshape", SwapsHeads),
]


class EveryThird(Plain):
    """Another function in each third module, which a class attribute counts."""

    made = 0

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        EveryThird.made += 1
        self.leaks = EveryThird.made % 3 == 0

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        return y + x.flip(1) if self.leaks else y


@pytest.mark.parametrize(("cause", "cls"), CAUSALITY)
def test_the_cause_of_a_leak_is_named(cause: str, cls: type[Variant]) -> None:
    [result] = small(cls, "causality by value")
    assert (result.status, result.cause) == ("failed", cause), result.detail


class RunningMean(Plain):
    """The mean of the outputs so far, which starts again in each segment."""

    supports_memory = supports_cache = True

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, context=context, mask=mask).cumsum(1) / torch.arange(1, 1 + x.shape[1])[:, None]


@pytest.mark.parametrize("name", ["memory", "decoding"])
def test_a_scan_that_starts_again_in_each_segment_is_named(name: str) -> None:
    [result] = small(RunningMean, name)
    assert (result.status, result.cause) == ("failed", "statistic") and "segment" in result.advice


def of_blocks(self: Any, y: Tensor) -> Tensor:
    b, t, width = y.shape
    return y if t % 8 else y + y.view(b, t // 8, 8, width).mean(2).repeat_interleave(8, 1)


def where_wide(self: Any, y: Tensor) -> Tensor:
    return y + y.mean(1, keepdim=True) if y.shape[2] > 64 else y


@pytest.mark.parametrize(("cause", "change"), [("length", of_blocks), ("statistic", where_wide)])
def test_a_leak_at_some_sizes_alone_is_no_forgotten_mask(cause: str, change: Callable[[Any, Tensor], Tensor]) -> None:
    cls = variant(change)
    cls.roles, cls.permutation_equivariant = frozenset({"causal"}), False
    target = CheckTarget(cls, {}, NoPosition).with_supported_shape()
    [result] = run_checks(select_checks(CHECKS, ["causality by value"]), target, classes=(cls, NoPosition))
    assert (result.status, result.cause) == ("failed", cause), result.detail
    assert "AttentionMask" not in result.advice.split(":")[0]


class WrongInLaterBlocks(Plain):
    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.later = config.layer > 0

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x, context=context, mask=mask)
        return F.dropout(y, 0.1) if self.later else y


def test_the_cause_of_a_failure_in_later_blocks_alone_is_named() -> None:
    """Evidence is collected in the block in which the check fails."""
    target = CheckTarget(WrongInLaterBlocks, {}, NoPosition).with_supported_shape(("causal",))
    [result] = run_checks(select_checks(CHECKS, [ROWS]), target, classes=(WrongInLaterBlocks, NoPosition))
    assert (result.status, result.cause) == ("failed", "randomness") and "in block 1" in result.advice


def test_the_cause_is_found_where_small_sizes_do_not_have_the_check() -> None:
    """Leading padding needs a relative scheme, which one random scheme of the small sizes may not be."""
    cls = variant(lambda self, y: y + torch.randn_like(y))
    target = CheckTarget(cls, {}, NoPosition, any_scheme=True).with_supported_shape(("causal",))
    [result] = run_checks(select_checks(CHECKS, ["leading padding"]), target, classes=(cls, NoPosition))
    assert (result.status, result.cause) == ("failed", "randomness"), result.advice


def test_a_wrong_gradient_of_a_wide_variant_is_found_in_few_calls() -> None:
    """The Jacobian of a width of studies takes minutes."""
    calls = []

    def detached(self: Any, y: Tensor) -> Tensor:
        calls.append(1)
        return y * y.detach()

    cls = variant(detached)
    target = CheckTarget(cls, {}, NoPosition, requested_heads=2, requested_dim=96).with_supported_shape(("causal",))
    [result] = run_checks(select_checks(CHECKS, ["gradcheck"]), target, classes=(cls, NoPosition))
    assert result.status == "failed" and len(calls) < 200


def test_modules_that_differ_by_a_class_attribute_are_named() -> None:
    EveryThird.made = 0
    failed = [result for result in small(EveryThird, "causality by value", PADDING, "seed", ROWS) if result.status == "failed"]
    assert failed and {result.cause for result in failed} == {"state"}


def test_the_advice_names_the_line_that_draws_or_reduces() -> None:
    [leak] = small(variant(lambda self, y: y - y.mean(1, keepdim=True)), PADDING)
    assert "test_diagnosis.py" in leak.advice and "y.mean(1, keepdim=True)" in leak.advice
    [noise] = small(variant(lambda self, y: F.dropout(y, 0.1)), ROWS)
    assert "F.dropout(y, 0.1)" in noise.advice


def test_a_cause_without_effect_is_not_blamed() -> None:
    """A table that is kept between calls is harmless, and no reason for a forgotten mask."""

    class KeepsTable(ForgetsPadding):
        def forward(self, x: Tensor, **inputs: Any) -> Tensor:
            self.last = torch.arange(x.shape[1])
            return super().forward(x, **inputs)

    [result] = small(KeepsTable, PADDING)
    assert result.cause == "mask is not used"


class NormOverPositions(Component):
    def head_outputs(self, y: Tensor, *, x: Tensor, v: Tensor) -> Tensor:
        return y / (1 + y.norm(dim=2, keepdim=True))


class ShiftsPadding(Component):
    roles = frozenset({"causal", "bidirectional"})
    permutation_equivariant = False

    def input(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return x + F.pad(x, (0, 0, 1, 0))[:, :-1]


class Drops(Component):
    def head_outputs(self, y: Tensor, *, x: Tensor, v: Tensor) -> Tensor:
        return F.dropout(y, 0.1)


@pytest.mark.parametrize(
    ("cls", "cause"), [(NormOverPositions, "statistic"), (ShiftsPadding, "hidden keys count"), (Drops, "randomness")]
)
def test_a_component_gets_advice_for_components(cls: type[Component], cause: str) -> None:
    [result] = small(compose(Dense, [ComponentSpec.of({"name": cls})]), PADDING)
    assert (result.status, result.cause) == ("failed", cause)
    assert "self.attend" not in result.advice and "AttentionMask" not in result.advice
    if cls is ShiftsPadding:
        assert "input(x, mask)" in result.advice


class Scheme(Position):
    hook = "bias"
    relative = True
    calls = 0

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        return self.changed(-0.1 * relative_distance(q.shape[-2], k.shape[-2]).abs().to(q.dtype), q, k)

    def changed(self, bias: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return bias


class Noise(Scheme):
    def changed(self, bias: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return bias + torch.randn_like(bias)


class Counts(Scheme):
    def changed(self, bias: Tensor, q: Tensor, k: Tensor) -> Tensor:
        self.calls += 1
        return bias * self.calls


class MeanOfRows(Scheme):
    def changed(self, bias: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return bias * (q @ k.mT).mean(0, keepdim=True)


class MeanOfKeys(Scheme):
    def changed(self, bias: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return bias * k.mean((2, 3), keepdim=True)


class ChangesQueries(Scheme):
    def changed(self, bias: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return bias + q.mul_(0.5)[..., :1] * 0


@pytest.mark.parametrize(
    ("scheme", "cause", "name"),
    [
        (Noise, "randomness", "relative"),
        (Counts, "state", "prefix"),
        (MeanOfRows, "batch", "batch independence"),
        (MeanOfKeys, "statistic", "prefix"),
        (ChangesQueries, "mutation", "prefix"),
    ],
)
def test_the_cause_of_a_failure_of_a_position_scheme_is_named(scheme: type[Position], cause: str, name: str) -> None:
    [result] = check_position(scheme, only=[name])
    assert (result.status, result.cause) == ("failed", cause), result.detail
