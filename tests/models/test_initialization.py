"""Tests of initial values: tensors of the same name and shape start alike, and keep the distribution of their constructor."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab import register_variant
from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.registry import MODELS, VARIANTS
from attnlab.variants import AttentionConfig
from attnlab.variants.dense import Dense
from tests.support.small_runs import tiny


@dataclass
class Bytes:
    kind: str = "language_model"
    role: str = "causal"
    length: int = 24
    vocabulary: int = 31
    classes: int = 0


@dataclass
class Reviews:
    kind: str = "classifier"
    role: str = "bidirectional"
    length: int = 24
    vocabulary: int = 31
    classes: int = 3


BUILT_IN = [name for name in VARIANTS.names() if VARIANTS.get(name).__module__.startswith("attnlab.")]


def config_of(variant: str, **changes: Any) -> RunConfig:
    cls = VARIANTS.get(variant)
    position = "rotary" if "rotate" in cls.hooks else "learned"
    heads = 3 if cls.has_heads else 1
    return tiny(variant=variant, **{"position": position, "model__heads": heads, "evaluate": {}, **changes})


def initial(variant: str, **changes: Any) -> dict[str, Tensor]:
    return build(config_of(variant, **changes), Bytes()).state_dict()


class GateFirst(Dense):
    """``dense`` with a layer, a parameter, and a discarded draw before the layers that it shares with ``dense``."""

    def __init__(self, config: AttentionConfig) -> None:
        nn.Module.__init__(self)
        gate, floor = nn.Linear(config.dim, 2 * config.dim), torch.randn(3)
        torch.rand(5)
        super().__init__(config)
        self.gate, self.floor = gate, nn.Parameter(floor)


class Swapped(Dense):
    """``dense`` whose layers are registered in the other order."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        project, out = self.project, self.out
        del self.project, self.out
        self.out, self.project = out, project


class DrawnAgain(Dense):
    """``dense`` whose output projection is drawn a second time, by its own method."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.out.reset_parameters()


class Direct(Dense):
    """``dense`` with parameters of its own: computed from a draw, drawn in place, and cut from one draw."""

    def __init__(self, config: AttentionConfig, *, more: bool = False) -> None:
        super().__init__(config)
        if more:
            self.a_first = nn.Parameter(torch.randn(7) * 3)
        self.scaled = nn.Parameter(torch.randn(config.dim) * 0.1 + 2)
        if more:
            self.between = nn.Parameter(nn.init.xavier_uniform_(torch.empty(4, 4)))
        self.in_place = nn.Parameter(torch.empty(3, config.dim))
        nn.init.normal_(self.in_place, std=0.5)
        self.register_buffer("features", torch.randn(5))
        self.plain = torch.rand(11)
        self.left, self.right = (nn.Parameter(z) for z in torch.randn(2, config.dim))


class Truncated(Dense):
    """``dense`` re-initialized by rejection sampling, as ``apply(init_weights)`` does."""

    def __init__(self, config: AttentionConfig, *, more: bool = False) -> None:
        super().__init__(config)
        if more:
            self.a_first = nn.Linear(config.dim, 2 * config.dim)
        for part in self.modules():
            for weight in part.parameters(recurse=False):
                nn.init.trunc_normal_(weight, std=0.3, a=-0.3, b=0.3)


class Rejection(Dense):
    """``dense`` with parameters whose values outside of a range are drawn again in the constructor itself."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        first, second = torch.randn(9), torch.randn(9)
        while (first > 0.5).any():
            first = torch.where(first > 0.5, torch.randn(9), first)
        while (second > 0.5).any():
            second = torch.where(second > 0.5, torch.randn(9), second)
        self.first, self.second = nn.Parameter(first), nn.Parameter(second)


class Discarding(Dense):
    """``dense`` with a parameter that is drawn until all of its values satisfy a condition."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        first = torch.randn(3)
        while first.max() > -0.5:
            first = torch.randn(3)
        self.first = nn.Parameter(first)


OWN = {cls.__name__: cls for cls in (GateFirst, Swapped, DrawnAgain, Direct, Truncated, Rejection, Discarding)}


@pytest.fixture(scope="module", autouse=True)
def own_variants(forget_a_modules_files: None) -> None:
    """Register the variants of this file for its tests only: an import must not add them to the contract's matrix."""
    for name, cls in OWN.items():
        register_variant(f"initialised_{name}")(cls)


def assert_shared(one: dict[str, Tensor], other: dict[str, Tensor], *, at_least: int = 1, label: str = "") -> None:
    shared = [name for name in one if name in other and one[name].shape == other[name].shape]
    assert len(shared) >= at_least, label
    for name in shared:
        assert torch.equal(one[name], other[name]), f"{label}: {name}"


def unstacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    stacked = {name: z for name, z in tensors.items() if name.endswith("project.weight")}
    parts = {f"{name}.{i}": part for name, z in stacked.items() for i, part in enumerate(z.chunk(3))}
    return {name: z for name, z in tensors.items() if name not in stacked} | parts


def assert_leading_slices_agree(one: dict[str, Tensor], other: dict[str, Tensor], *, at_least: int) -> None:
    """Assert that tensors of one name agree in their common leading slice up to one factor.

    W_Q, W_K and W_V, which some variants stack, agree each by itself.

    Args:
        one: the tensors of a model by name.
        other: those of another model.
        at_least: the number of tensors whose shapes differ.
    """
    reshaped, (one, other) = 0, (unstacked(one), unstacked(other))
    for name in one.keys() & other.keys():
        common = tuple(slice(min(n, m)) for n, m in zip(one[name].shape, other[name].shape, strict=True))
        a, b = one[name][common], other[name][common]
        factor = a.norm() / b.norm() if b.any() else 1
        assert torch.allclose(a, factor * b, rtol=1e-4, atol=1e-6), name
        reshaped += one[name].shape != other[name].shape
    assert reshaped >= at_least


def test_every_pair_of_variants_starts_tensors_of_one_name_and_shape_alike() -> None:
    models = {name: initial(name) for name in BUILT_IN}
    for one, other in combinations(models, 2):
        assert_shared(models[one], models[other], at_least=10, label=f"{one}, {other}")
    assert "backbone.blocks.1.attention.out.weight" in models["narrow"].keys() & models["dense"].keys()


@pytest.mark.parametrize(
    ("one", "other", "reshaped"),
    [
        (("dense", {"model__ff_mult": 4}), ("no_wo", {"model__ff_mult": 4.625}), 6),  # as {name: no_wo, match: params}
        (("dense", {"model__dim": 24}), ("dense", {"model__dim": 36, "model__heads": 3}), 20),
        (("none", {"model__dim": 24}), ("none", {"model__dim": 33, "model__ff_mult": 2}), 20),
        (("narrow", {"model__heads": 2}), ("narrow", {"model__heads": 4}), 6),
        (("gru", {"model__dim": 24}), ("dense", {"model__dim": 36}), 10),
        (("initialised_Direct", {"model__dim": 24}), ("initialised_Direct", {"model__dim": 48}), 24),
        (("initialised_Truncated", {"model__ff_mult": 2}), ("initialised_Truncated", {"model__ff_mult": 3.5}), 6),
    ],
)
def test_narrower_and_wider_tensors_agree_in_their_leading_slice(
    one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]], reshaped: int
) -> None:
    first, second = (initial(variant, position="learned", **changes) for variant, changes in (one, other))
    assert_leading_slices_agree(first, second, at_least=reshaped)


@pytest.mark.parametrize("variant", ["initialised_GateFirst", "initialised_Swapped", "initialised_DrawnAgain"])
def test_additional_draws_and_another_order_move_no_shared_tensor(variant: str) -> None:
    dense, own = initial("dense"), initial(variant)
    assert dense.keys() <= own.keys()
    assert_shared(dense, own, at_least=len(dense))


@pytest.mark.parametrize("variant", ["initialised_Direct", "initialised_Truncated"])
def test_parameters_of_an_option_move_no_other_parameter(variant: str) -> None:
    with_more = {"name": variant, "more": True}
    one, other = initial(variant), build(config_of(variant).replace({"variant": with_more}), Bytes()).state_dict()
    assert one.keys() < other.keys()
    assert_shared(one, other, at_least=len(one))


@pytest.mark.parametrize(
    "changes",
    [
        {"model__depth": 5},
        {"model__heads": 2},
        {"model__feed_forward": "relu"},
        {"position": "relative"},
        {"position": "learned"},
        {"model__mem_len": 7},
        {"model__norm": "post"},
        {"model__norm_type": "rms"},
        {"model__feed_forward": "swiglu", "model__bias": False},  # the scale of a bias depends on the inner width
        {"model__bias": False},
        {"model__attention_bias": True},
        {"model__head_bias": False},
    ],
)
def test_a_field_of_the_model_moves_no_shared_tensor(changes: dict[str, Any]) -> None:
    assert_shared(initial("dense"), initial("dense", **changes), at_least=10)


def test_language_model_and_classifier_share_their_backbone() -> None:
    one, other = (build(config_of("dense"), task).state_dict() for task in (Bytes(), Reviews()))
    assert_shared(one, other, at_least=20)


@pytest.mark.parametrize("variant", [*BUILT_IN, "initialised_Direct"])
def test_every_tensor_has_a_stream_of_its_own(variant: str) -> None:
    """No two drawn tensors hold the same values, and another seed changes all of them."""
    config = config_of(variant, position="learned") if variant != "basic" else config_of(variant)
    start, other = (build(config.replace({"seed": seed}), Bytes()).state_dict() for seed in (0, 1))
    drawn = {name: z for name, z in start.items() if z.numel() > 1 and z.std() > 0}
    for name, z in drawn.items():
        if "cos" not in name.split(".") and "sin" not in name.split("."):
            assert not torch.equal(z, other[name]), name
    for one, two in combinations(drawn, 2):
        n = min(drawn[one].numel(), drawn[two].numel())
        assert not torch.equal(drawn[one].flatten()[:n], drawn[two].flatten()[:n]), (one, two)


@pytest.mark.parametrize("task", [Bytes(), Reviews()])
@pytest.mark.parametrize("variant", [*BUILT_IN, "initialised_Direct"])
def test_the_distribution_is_that_of_the_constructor(variant: str, task: Bytes | Reviews) -> None:
    """Mean, standard deviation and range of each tensor over several seeds agree with those of a plain construction."""
    if task.role not in VARIANTS.get(variant).roles:
        pytest.skip("the role is not supported")
    config = config_of(variant, position="relative", model__dim=48, model__pool="class")
    if VARIANTS.get(variant).hooks == {"embed"} or not VARIANTS.get(variant).has_heads:
        config = config_of(variant, position="learned", model__dim=48, model__pool="class")
    ours, plain = {}, {}
    for seed in range(6):
        for name, z in build(config.replace({"seed": seed}), task).state_dict().items():
            ours.setdefault(name, []).append(z)
        torch.manual_seed(100 + seed)
        for name, z in MODELS.get(task.kind)(config, task).state_dict().items():
            plain.setdefault(name, []).append(z)
    assert ours.keys() == plain.keys()
    for name in ours:
        a, b = torch.stack(ours[name]).flatten(), torch.stack(plain[name]).flatten()
        error = b.std() / b.numel() ** 0.5
        assert (a.mean() - b.mean()).abs() <= 6 * error + 1e-6, name
        assert torch.isclose(a.std(), b.std(), rtol=max(0.02, 5 / b.numel() ** 0.5), atol=1e-6), name
        assert a.abs().max() <= 1.6 * b.abs().max() + 1e-6, name
