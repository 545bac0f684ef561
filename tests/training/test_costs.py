"""Tests of costs, compared with counts by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.models.build import build
from attnlab.training import costs, trainer
from tests.models.test_models import Bytes, Reviews
from tests.support.small_runs import tiny

DIM, T, VOCABULARY, INNER = 12, 24, 31, 48


def test_parameters_are_counted_by_hand() -> None:
    counts = costs.parameters(build(tiny(), Bytes()))
    block = 4 * DIM**2 + (DIM * INNER + INNER) + (INNER * DIM + DIM) + 4 * DIM
    assert counts["attention_parameters"] == 2 * 4 * DIM**2
    assert counts["parameters"] == VOCABULARY * DIM + 2 * block + 2 * DIM + (DIM * VOCABULARY + VOCABULARY)


def test_parameters_of_a_position_scheme_in_a_block_are_attentions_own() -> None:
    counts = costs.parameters(build(tiny(position="relative"), Bytes()))
    assert counts["attention_parameters"] == 2 * (4 * DIM**2 + DIM**2 + 2 * DIM)


def test_flops_are_twice_the_multiply_accumulates() -> None:
    figures = costs.plan_figures(tiny(position="none"), Bytes())
    projections, attention, feed_forward = 4 * DIM**2, 2 * T * DIM, 2 * DIM * INNER
    assert figures["flops_per_token"] == 2 * (2 * (projections + attention + feed_forward) + DIM * VOCABULARY)
    assert figures["parameters"] == costs.parameters(build(tiny(position="none"), Bytes()))["parameters"]


@pytest.mark.parametrize(
    ("variant", "products", "biases"),
    [
        ("gru", 6 * DIM**2, 6 * DIM),
        ("lstm", 8 * DIM**2, 8 * DIM),
        ({"name": "convolution", "kernel": 5}, 2 * 5 * DIM**2, 2 * DIM),
        ("none", 2 * DIM**2, 0),
    ],
)
def test_operations_without_attention_match_a_count_by_hand(variant: str | dict, products: int, biases: int) -> None:
    """The count holds in the plan and for this machine's own kernels."""
    config = tiny(variant=variant, position="none")
    figures = costs.plan_figures(config, Bytes())
    assert figures["attention_parameters"] == 2 * (products + biases)
    assert figures["flops_per_token"] == 2 * (2 * (products + 2 * DIM * INNER) + DIM * VOCABULARY)
    assert costs._flops(build(config, Bytes()), config, Bytes()) == T * figures["flops_per_token"]


@pytest.mark.parametrize("backend", ["reference", "blocked", "sdpa"])
def test_a_real_model_is_counted_as_in_the_plan(backend: str) -> None:
    """The count also holds for this machine's own kernels: the length is one block, of which ``blocked`` skips nothing."""
    config = tiny(position="none", backend=backend)
    planned = costs.plan_figures(config, Bytes())["flops_per_token"]
    assert costs._flops(build(config, Bytes()), config, Bytes()) == T * planned


def test_the_recurrent_kernel_of_cudnn_is_counted_by_hand() -> None:
    weights = [[3 * DIM, DIM], [3 * DIM, DIM], [3 * DIM], [3 * DIM]]
    assert costs._rnn_flops([T, 2, DIM], weights, 0, None) == 2 * T * 2 * 6 * DIM**2


def test_sparse_attention_costs_less_arithmetic_than_dense() -> None:
    dense = costs.plan_figures(tiny(), Bytes(length=512))["flops_per_token"]
    sparse = costs.plan_figures(tiny(variant={"name": "strided_sparse", "stride": 22}), Bytes(length=512))["flops_per_token"]
    assert sparse < dense / 3


def test_memory_costs_arithmetic() -> None:
    without, with_memory = (costs.plan_figures(tiny(model__mem_len=m), Bytes())["flops_per_token"] for m in (0, 24))
    assert with_memory > without


@pytest.mark.parametrize("task", [Bytes(), Reviews()])
def test_saved_bytes_grow_with_the_batch_and_repeat_exactly(task: Bytes | Reviews) -> None:
    saved = []
    for size in (2, 4, 4):
        config = tiny(train__batch_size=size, position="learned")
        saved.append(costs.saved_mib(build(config, task), config, task))
    assert saved[1] == saved[2]
    assert 1.9 < saved[1] / saved[0] <= 2.0, "what does not grow with the batch is small"


def test_saved_memory_is_in_mebibytes() -> None:
    model = build(tiny(), Bytes())
    _, size = costs.saved_bytes(lambda: costs._forward(model, tiny(), Bytes(), rows=4), model)
    assert costs.saved_mib(model, tiny(), Bytes()) == pytest.approx(size / 1024 / 1024)


class Dropped(nn.Module):
    """Computes the exponential of each of eight rows, one after the other, and returns that of the first alone."""

    def __init__(self, in_a_cycle: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.in_a_cycle = in_a_cycle

    def forward(self, x: Tensor) -> Tensor:
        kept = (x[0] * self.weight).exp()  # saves a view of x, and its own result
        for row in x[1:]:
            dropped = (row * self.weight).exp()
            if self.in_a_cycle:
                cycle: list[Any] = [dropped]
                cycle.append(cycle)
        return kept


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_only_what_the_graph_of_the_result_holds_is_saved(in_a_cycle: bool) -> None:
    """By hand: the input of eight rows, of which one is used, and one row of the exponential; the parameter does not count."""
    module, x = Dropped(in_a_cycle), torch.ones(8, 1_000)
    y, size = costs.saved_bytes(lambda: module(x), module)
    assert size == 4 * (8 * 1_000 + 1_000)
    y.sum().backward()
    assert module.weight.grad is not None


def test_a_storage_that_is_saved_twice_counts_once() -> None:
    x = torch.ones(50, requires_grad=True)
    _, size = costs.saved_bytes(lambda: (x * x) + (x.view(5, 10) * x.view(5, 10)).view(-1), nn.Identity())
    assert size == 4 * 50


def test_accumulation_and_recomputing_save_less() -> None:
    def saved(**changes: object) -> float:
        config = tiny(**changes)
        return costs.saved_mib(build(config, Bytes()), config, Bytes())

    assert saved(train__gradient_accumulation=4) < saved() / 3
    assert saved(train__activation_checkpointing=True) < saved() / 3


def test_measuring_disturbs_no_random_stream() -> None:
    config = tiny(model__dropout=0.5)
    model = build(config, Bytes())
    before = torch.get_rng_state()
    costs.saved_mib(model, config, Bytes())
    assert torch.equal(before, torch.get_rng_state())


def test_the_first_interval_is_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 10.0, 20.0, 21.0, 30.0, 32.0])
    monkeypatch.setattr(trainer, "perf_counter", lambda: next(now))
    running = trainer.Timer(torch.device("cpu"))
    for tokens in (50, 100, 200):
        running.start()
        running.count(tokens)
        running.stop()
    assert running.seconds == 13.0 and running.tokens == 350
    assert running.tokens_per_s() == pytest.approx(300 / 3)


def test_the_first_interval_after_a_resume_is_warm_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 10.0, 20.0, 21.0, 0.0, 9.0, 20.0, 22.0])
    monkeypatch.setattr(trainer, "perf_counter", lambda: next(now))
    first, second = trainer.Timer(torch.device("cpu")), trainer.Timer(torch.device("cpu"))
    for running in (first, second):
        if running is second:
            second.restore(first.state())
        for tokens in (50, 100):
            running.start()
            running.count(tokens)
            running.stop()
    assert second.seconds == 22.0 and second.tokens == 300
    assert second.tokens_per_s() == pytest.approx(200 / 3)


def test_any_number_of_blocks_is_planned_from_two_of_them() -> None:
    three = tiny(model__depth=3, position="relative", model__mem_len=5)
    figures = costs.plan_figures(three, Bytes())
    assert figures["parameters"] == costs.parameters(build(three, Bytes()))["parameters"]
    assert figures["flops_per_token"] == costs._flops(build(three, Bytes()), three, Bytes()) // T
    assert costs.plan_figures(tiny(model__depth=10**15), Bytes())["parameters"] > 10**15


@pytest.mark.parametrize("backend", ["reference", "blocked", "sdpa"])
def test_dropping_weights_costs_no_arithmetic_and_no_real_model(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without = costs.plan_figures(tiny(backend=backend), Bytes())
    monkeypatch.setattr(costs, "MAX_COMPUTED", 0)
    built = []
    monkeypatch.setattr(costs, "build", lambda *args: built.append(torch.empty(0).device.type) or build(*args))
    assert costs.plan_figures(tiny(backend=backend, model__attention_dropout=0.1), Bytes()) == without
    assert set(built) == {"meta"}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "variant", ["einsum", "strided_sparse", "transformer_xl", "delta", "ssd", "gru", "lstm", "convolution"]
)
def test_a_small_model_is_computed_with_the_figures_of_the_meta_device(
    variant: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(variant=variant, position="relative" if variant == "transformer_xl" else "none", train__precision=precision)
    computed = costs.plan_figures(config, Bytes())
    monkeypatch.setattr(costs, "MAX_COMPUTED", 0)
    assert costs.plan_figures(config, Bytes()) == computed and computed["flops_per_token"] > 0


def test_a_size_that_no_tensor_has_is_not_tried_on_a_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(costs, "build", lambda *args: built.append(torch.empty(0).device.type) or build(*args))
    with pytest.raises(RuntimeError, match="overflowed"):
        costs.plan_figures(tiny(model__dim=3 * 10**14), Bytes())
    assert built == ["meta"]
