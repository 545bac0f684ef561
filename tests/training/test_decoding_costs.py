"""Tests of the bytes that decoding keeps of a sequence, compared with counts by hand and with the caches of real models."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.models.decoding import key_value_cache
from attnlab.nn.cache import Cache
from attnlab.planning.plan import plan
from attnlab.training import costs
from attnlab.training.costs import cached_bytes, decoding_module
from attnlab.variants import AttentionConfig, Variant
from tests.models.test_decoding import Pairs, configuration
from tests.models.test_layers import hybrid
from tests.models.test_models import Bytes, Reviews
from tests.support.small_runs import tiny

DIM, T, DEPTH = 12, 24, 2


def sizes(config: RunConfig, task: Any = None) -> tuple[int | None, int | None]:
    figures = costs.plan_figures(config, task or Bytes())
    return figures.get("cache_bytes"), figures.get("state_bytes")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("length", [T, 1])
def test_keys_and_values_are_counted_by_hand(length: int, precision: str) -> None:
    itemsize = {"fp32": 4, "bf16": 2}[precision]
    config = tiny(train__precision=precision)
    assert sizes(config, Bytes(length=length)) == (DEPTH * 2 * length * DIM * itemsize, 0)


def test_keys_and_values_cover_the_memory() -> None:
    config = tiny(variant="transformer_xl", position="relative", model__mem_len=10)
    assert sizes(config) == (DEPTH * 2 * (10 + T) * DIM * 4, 0)


def test_a_decoder_keeps_the_target_and_the_source() -> None:
    pairs = Pairs()
    config = configuration()
    expected = config.model.depth * 2 * (pairs.length + pairs.length) * config.model.dim * 4
    assert sizes(config, pairs) == (expected, 0)
    without = configuration(model__decoder={"variant": "strided_sparse", "position": "none"})
    assert sizes(without, pairs) == (None, None)


def test_a_model_that_does_not_decode_or_has_no_cache_has_no_such_cost() -> None:
    assert sizes(tiny(), Reviews()) == (None, None)
    assert sizes(tiny(variant="strided_sparse")) == (None, None)


@pytest.mark.parametrize("variant", ["dense", "no_wo", "narrow"])
def test_the_plan_counts_what_a_real_model_keeps(variant: str) -> None:
    config, task = tiny(variant=variant, train__precision="bf16"), Bytes()
    model = build(config, task).eval()
    with torch.no_grad(), key_value_cache(model) as caches, torch.autocast("cpu", torch.bfloat16):
        model(torch.ones(1, T, dtype=torch.long))
        held = caches.nbytes
    assert sizes(config) == (held, 0)
    run = costs.fixed_costs(build(config, task), config, task)
    assert (run["cache_bytes"], run["state_bytes"]) == (held, 0)


@pytest.mark.parametrize("length", [T, 2 * T])
def test_a_recurrent_state_is_the_same_at_every_length(length: int) -> None:
    config, heads = tiny(variant="delta", position="none"), 3
    inputs = 3 * 3 * DIM  # of three convolutions
    assert sizes(config, Bytes(length=length)) == (0, DEPTH * (heads * (DIM // heads) ** 2 + inputs) * 4)


def test_the_layers_of_a_pattern_keep_what_each_of_them_keeps() -> None:
    """Of five blocks, the third is dense and the others are recurrent."""
    config = hybrid("delta", "delta", "dense")
    dim, heads = config.model.dim, config.model.heads
    assert sizes(config, Bytes(length=T)) == (2 * T * dim * 4, 4 * (heads * (dim // heads) ** 2 + 3 * 3 * dim) * 4)


class Mixed(Cache):
    """A state (b, dim), the inputs of the last three positions (b, 3, dim), and one number for each position (b, t)."""

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.recent: Tensor | None = None
        self.positions: Tensor | None = None


class KeepsAll(Variant):
    """Fills the three tensors of ``Mixed``."""

    supports_cache = True

    def new_cache(self) -> Cache:
        return Mixed()

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        if isinstance(self.cache, Mixed):
            self.cache.total, self.cache.recent, self.cache.positions = x.sum(1), x[:, -3:], x.sum(2)
        return x


def test_a_state_is_what_is_as_large_after_one_position_as_after_all() -> None:
    variant = KeepsAll(AttentionConfig(dim=DIM, heads=2, role="causal"))
    assert cached_bytes(variant, lambda length: variant(torch.zeros(1, length, DIM)), length=T) == (
        4 * (3 * DIM + T),
        4 * DIM,
    )
    assert variant.cache is None


def test_cells_of_a_plan_have_the_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    from attnlab.cli.plan import print_plan

    model = {"dim": DIM, "depth": DEPTH, "heads": 2}
    base = {"task": {"name": "pydocs", "length": T}, "model": model, "train": {"steps": 1, "precision": "fp32"}}
    planned = plan({"study": "s", "base": base, "grid": {"variant": ["dense", "strided_sparse"]}})
    assert [(cell.cache_bytes, cell.state_bytes) for cell in planned.cells] == [(4608, 0), (None, None)]
    print_plan(planned, tflops=1.0)
    printed = capsys.readouterr().out
    assert "4.5 KiB" in printed and "state  " not in printed, "a column without a value is left out"
    assert decoding_module(build(tiny(), Reviews())) is None
