"""The contract of components: every built-in one alone and in random sets, and mutants that it catches."""

import itertools
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.components import Component, ComponentConfig
from attnlab.errors import UserError
from attnlab.registry import COMPONENTS, VARIANTS
from attnlab.testing import check, check_component
from attnlab.testing.composition import ComponentSpec, conflict
from tests.testing.test_contract import check_fewer_sizes

OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"size": 5},
    "moba": {"size": 3, "count": 2},
    "kv_heads": {"count": 1},
    "softcap": {"cap": 1.5},
}
QUICK = ("shapes", "components take effect", "causality by value", "padding", "memory", "backends", "key-value cache")


def spec(name: str) -> dict[str, Any]:
    return {"name": name, **OPTIONS.get(name, {})}


def random_sets(count: int) -> list[tuple[str, ...]]:
    """Return sets of components that ``dense`` supports together, of sizes 2 to 6, drawn from a seed."""
    draw, sets = random.Random(18), list[tuple[str, ...]]()
    dense, known = VARIANTS.get("dense"), COMPONENTS.names()
    while len(sets) < count:
        names = tuple(draw.sample(known, draw.randint(2, 6)))
        if conflict(dense, [ComponentSpec.of(spec(name)) for name in names]) is None and names not in sets:
            sets.append(names)
    return sets


SETS = random_sets(200)


def failures(results: list[Any]) -> list[str]:
    return [f"{result.check}: {result.detail}" for result in results if result.status == "failed"]


@pytest.mark.parametrize("name", COMPONENTS.names())
def test_builtin_component_keeps_the_contract(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fewer_sizes(monkeypatch, slice(1))
    results = check_component(name, options=OPTIONS.get(name), only=QUICK)
    assert not failures(results)
    assert "components take effect" in {result.check for result in results if result.status == "passed"}


class Sparsemax(Component):
    """Weights that are piecewise linear in the logits (Martins and Astudillo 2016): correct, with kinks."""

    def weights(self, logits: Tensor, visible: Tensor) -> Tensor:
        logits = logits.masked_fill(~visible, torch.finfo(logits.dtype).min / 4)
        largest = logits.sort(-1, descending=True).values
        sums, number = largest.cumsum(-1), torch.arange(1, logits.shape[-1] + 1, device=logits.device)
        kept = (1 + number * largest > sums) & (largest > torch.finfo(logits.dtype).min / 8)
        threshold = (largest.masked_fill(~kept, 0.0).sum(-1, keepdim=True) - 1) / kept.sum(-1, keepdim=True).clamp(min=1)
        return (logits - threshold).clamp(min=0.0) * visible


class HalfGradient(Sparsemax):
    """The backward pass of the threshold is missing."""

    def weights(self, logits: Tensor, visible: Tensor) -> Tensor:
        weights = super().weights(logits, visible)
        return weights.detach() + (logits * (weights > 0)).masked_fill(~visible, 0.0) - logits.detach() * (weights > 0)


@pytest.mark.parametrize(("component", "status"), [(Sparsemax, "passed"), (HalfGradient, "failed")])
def test_a_kink_is_no_wrong_gradient(component: type[Component], status: str) -> None:
    (result,) = check_component(component, only=["gradcheck"])
    assert result.status == status, result.detail


class MixesHeads(Component):
    """Correct, and without effect at its initial value."""

    def __init__(self, config: ComponentConfig) -> None:
        super().__init__(config)
        self.mix = nn.Parameter(torch.eye(config.heads))

    def head_outputs(self, y: Tensor, *, x: Tensor, v: Tensor) -> Tensor:
        return torch.einsum("gh,bhtd->bgtd", self.mix.to(y.dtype), y)


class RectifiedWeights(Component):
    """Correct: about half of the weights are zero, without dropout."""

    def weights(self, logits: Tensor, visible: Tensor) -> Tensor:
        return logits.relu() * visible / visible.sum(-1, keepdim=True).clamp(min=1)


@pytest.mark.parametrize(("component", "name"), [(MixesHeads, "components take effect"), (RectifiedWeights, "dropout share")])
def test_correct_components_are_not_accused(component: type[Component], name: str) -> None:
    [result] = check_component(component, only=[name])
    assert result.status == "passed", result.detail


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COMPONENTS.names())
def test_builtin_component_keeps_the_whole_contract(name: str) -> None:
    assert not failures(check_component(name, options=OPTIONS.get(name)))


@pytest.mark.parametrize(
    "names",
    [*SETS[:4], *(pytest.param(names, marks=pytest.mark.exhaustive) for names in SETS[4:])],
    ids="+".join,
)
def test_random_set_keeps_the_contract(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    check_fewer_sizes(monkeypatch, slice(1))
    assert not failures(check("dense", components=[spec(name) for name in names], only=QUICK))


@pytest.mark.parametrize("pair", itertools.combinations(["sink", "softmax1", "sigmoid"], 2), ids="+".join)
def test_two_normalisations_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(UserError, match="both replace weights"):
        check("dense", components=list(pair))


def test_place_that_the_variant_lacks_is_refused() -> None:
    with pytest.raises(UserError, match="no place .head_outputs"):
        check("gru", components=["gate"])


class Misspelt(Component):
    def query_keys(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * q, k


def test_a_component_that_changes_no_place_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UserError, match="Misspelt: changes no place.*query_keys .did you mean 'queries_keys'"):
        check_component(Misspelt)


class OtherParameters(Component):
    def head_outputs(self, y: Tensor) -> Tensor:  # type: ignore[override] the mistake
        return 2 * y


class OtherResult(Component):
    def queries_keys(self, q: Tensor, k: Tensor) -> Tensor:  # type: ignore[override] the mistake
        return 2 * q


class NamedLikeAPlace(Component):
    def __init__(self, config: ComponentConfig) -> None:
        super().__init__(config)
        self.scale = nn.Parameter(torch.ones(config.heads, 1, 1))  # type: ignore[assignment] the mistake

    def values(self, v: Tensor) -> Tensor:
        return 2 * v


@pytest.mark.parametrize("component", [OtherParameters, OtherResult, NamedLikeAPlace])
def test_an_exception_in_a_component_states_its_line_and_where_its_methods_are_documented(component: type[Component]) -> None:
    (result,) = check_component(component)
    assert result.check == "shapes" and "components/base.py" in result.advice and "forward" not in result.advice
    assert "(test_components.py:" in result.detail


class NoEffect(Component):
    def values(self, v: Tensor) -> Tensor:
        return v.clone()


class FutureValues(Component):
    def values(self, v: Tensor) -> Tensor:
        return v + 0.5 * v.roll(-1, 2)


class PaddedMean(Component):
    def input(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return x + x.cumsum(1)


class WholeRowScores(Component):
    """A score that depends on the other logits of a block: another result with another block size."""

    def score(self, s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s - s.mean((-2, -1), keepdim=True) * (j > 3)


class UncachedShift(Component):
    roles = frozenset({"causal"})

    def input(self, x: Tensor, mask: Tensor | None) -> Tensor:
        past = nn.functional.pad(x, (0, 0, 1, 0))[:, :-1]
        return x + past if mask is None else x + past * nn.functional.pad(mask, (1, 0))[:, :-1, None]


MUTANTS: dict[type[Component], str] = {
    NoEffect: "components take effect",
    FutureValues: "causality by value",
    PaddedMean: "padding",
    WholeRowScores: "backends",
    UncachedShift: "key-value cache",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutant_is_caught(mutant: type[Component]) -> None:
    results = check_component(mutant, only=["shapes", MUTANTS[mutant]])
    assert MUTANTS[mutant] in {result.check for result in results if result.status == "failed"}


def test_gradients_reach_tensors_that_a_score_reads() -> None:
    class Bias(Component):
        def __init__(self, config: ComponentConfig) -> None:
            super().__init__(config)
            self.bias = nn.Parameter(torch.zeros(config.heads))

        def score(self, s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s + self.bias[h] * (i - j)

    assert not failures(check_component(Bias, only=["shapes", "backends"]))
