"""Every backend computes the same with components: each alone, and random sets.

``tests/testing/test_components.py`` compares layers as users build them. Here, small blocks make ``blocked`` split the queries
and skip keys, and the forward pass of ``flex`` runs without compilation; its kernels need a GPU.
"""

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.components import Component, ComponentConfig
from attnlab.components.base import token_readers
from attnlab.nn import blocked
from attnlab.nn.attention import FUNCTION_BACKENDS
from attnlab.registry import COMPONENTS, VARIANTS
from attnlab.testing.composition import ComponentSpec, conflict
from attnlab.variants import AttentionConfig, Variant

B, T, MEMORY, DIM, HEADS = 2, 13, 4, 24, 3
OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"size": 5},
    "moba": {"size": 3, "count": 2},
    "kv_heads": {"count": 1},
    "softcap": {"cap": 1.5},
}
SETS = 20


def classes(names: tuple[str, ...]) -> list[type[Component]]:
    return [COMPONENTS.get(name) for name in names]


def random_sets() -> list[tuple[str, ...]]:
    draw, sets = random.Random(7), list[tuple[str, ...]]()
    while len(sets) < SETS:
        names = tuple(draw.sample(COMPONENTS.names(), draw.randint(2, 5)))
        specs = [ComponentSpec.of({"name": name, **OPTIONS.get(name, {})}) for name in names]
        if conflict(VARIANTS.get("dense"), specs) is None:
            sets.append(names)
    return sets


def build(names: tuple[str, ...], backend: str) -> Variant:
    """Return ``dense`` with components in float64, the parameters away from their initial values."""
    torch.manual_seed(3)
    config = ComponentConfig(DIM, HEADS, DIM // HEADS, "causal", T + MEMORY, vocabulary=6)
    components = {name: cls(config, **OPTIONS.get(name, {})) for name, cls in zip(names, classes(names), strict=True)}
    variant = VARIANTS.get("dense")(AttentionConfig(DIM, HEADS, "causal", backend, components=components)).double().eval()
    with torch.no_grad():
        for parameter in variant.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return variant


def output(names: tuple[str, ...], backend: str, *, gradients: bool = True) -> list[Tensor]:
    """Return the output and the gradients of a layer with memory and a mask that hides all keys of some queries."""
    variant = build(names, backend)
    generator = torch.Generator().manual_seed(5)
    context = torch.randn(B, T + MEMORY, DIM, dtype=torch.float64, generator=generator)
    has_memory = all(cls.supports_memory for cls in classes(names))
    mask = torch.arange(T + MEMORY) >= torch.tensor([[0], [MEMORY + 2]])
    if not has_memory:
        context, mask = context[:, MEMORY:], mask[:, MEMORY:]
    x = context[:, context.shape[1] - T :]
    for component in token_readers(variant):
        component.tokens = torch.arange(B * T).view(B, T) % 7 - 1
    if not gradients:
        variant.requires_grad_(False)  # FlexAttention refuses tensors that require gradients on a CPU
        return [variant(x, context=context if has_memory else None, mask=mask)]
    y = variant(x, context=context if has_memory else None, mask=mask)
    return [y, *torch.autograd.grad(y.cos().sum(), list(variant.parameters()), allow_unused=True)]


def supported(names: tuple[str, ...], backend: str) -> bool:
    places = [place for cls in classes(names) for place in cls.places()]
    return all(backend in FUNCTION_BACKENDS.get(place, (backend,)) for place in places)


ALL = [*[(name,) for name in COMPONENTS.names()], ("kv_heads", "value_embedding"), *random_sets()]


@pytest.mark.parametrize("names", ALL, ids="+".join)
def test_blocks_and_sdpa_equal_reference_with_their_gradients(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "CAUSAL_BLOCK", 3)
    monkeypatch.setattr(blocked, "MAX_SAVED_ROW", 4)
    exact = output(names, "reference")
    for backend in ("blocked", "sdpa"):
        if supported(names, backend):
            for expected, actual in zip(exact, output(names, backend), strict=True):
                assert (expected is None) == (actual is None)
                if expected is not None:
                    torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "names",
    [("softcap", "window"), ("moba", "softcap"), ("forget_gate", "qk_norm"), ("exclusive", "value_residual")],
    ids="+".join,
)
def test_flex_equals_reference(names: tuple[str, ...]) -> None:
    assert supported(names, "flex")
    (expected,), (actual,) = output(names, "reference", gradients=False), output(names, "flex", gradients=False)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", [n for n in COMPONENTS.names() if "visible" in COMPONENTS.get(n).places()])
def test_the_window_of_a_component_is_what_it_shows(name: str) -> None:
    component = COMPONENTS.get(name)(ComponentConfig(DIM, HEADS, 8, "bidirectional", T), **OPTIONS.get(name, {}))
    i, j = torch.arange(T)[:, None], torch.arange(T)
    if component.window is not None:
        assert torch.equal(component.visible(i * 0, i * 0, i, j), (i - j).abs() < component.window)


@pytest.mark.parametrize("backend", ["reference", "blocked", "sdpa"])
def test_the_smallest_window_applies(backend: str) -> None:
    windowed, plain = build(("window",), backend), VARIANTS.get("dense")(AttentionConfig(DIM, HEADS, "causal", backend))
    q, k, v = torch.randn(3, B, HEADS, T, DIM // HEADS, dtype=torch.float64)
    for own, smallest in ((3, 3), (9, 5), (None, 5)):
        expected = plain.attend(q, k, v, None, window=smallest)
        torch.testing.assert_close(windowed.attend(q, k, v, None, window=own), expected)
