"""Functions in the signatures of FlexAttention are components, by a path, by a name and in Python."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.cli import main
from attnlab.components import Component, ComponentConfig, function_component
from attnlab.errors import UserError
from attnlab.registry import COMPONENTS, VARIANTS, Registry, check_options, options_of, source
from attnlab.testing import check_component
from attnlab.variants import AttentionConfig, Variant
from tests.components import attention_gym

FILE = Path(attention_gym.__file__)
B, T, HEADS, DIM = 2, 7, 3, 12


def build(name: str, *, role: str = "bidirectional", backend: str = "reference", **options: Any) -> Variant:
    component = COMPONENTS.get(f"{FILE}:{name}")(ComponentConfig(DIM, HEADS, DIM // HEADS, role, T), **options)
    torch.manual_seed(1)
    return VARIANTS.get("dense")(AttentionConfig(DIM, HEADS, role, backend, components={name: component})).double()


def expected(variant: Variant, x: Tensor, name: str) -> Tensor:
    """Compute attention with one place of the formula changed, written out for whole matrices."""
    q, k, v = variant.project(x, None)  # type: ignore[operator]
    logits = q @ k.mT / (DIM // HEADS) ** 0.5
    i, j = torch.arange(T)[:, None], torch.arange(T)
    visible = torch.ones(T, T, dtype=torch.bool)
    if "soft_cap" in name:
        logits = 2 * (logits / 2).tanh()
    elif "alibi" in name:
        slopes = torch.tensor([2 ** (-8 / 3), 2 ** (-16 / 3), 2 ** (-24 / 3)], dtype=torch.float64)
        logits = logits - slopes.view(3, 1, 1) * (i - j)
    elif name == "same_document":
        visible = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3), torch.ones(2, 2)).bool()
    elif "prefix" in name:
        visible = visible.tril()
        visible[:, :3] = True
    else:
        visible = visible.tril().triu(-2)
    if variant.causal:
        visible = visible.tril()
    y = logits.masked_fill(~visible, -1e300).softmax(-1) @ v
    return variant.out(y.transpose(1, 2).flatten(2))  # type: ignore[operator]


CASES: list[tuple[str, dict[str, Any]]] = [
    ("soft_cap", {}),
    ("same_document", {}),
    ("generate_soft_cap", {}),
    ("generate_alibi", {"heads": 3}),
    ("generate_prefix_lm", {"prefix_length": 3}),
    ("generate_sliding_window", {"window_size": 2}),
]


@pytest.mark.parametrize("backend", ["reference", "blocked"])
@pytest.mark.parametrize("role", ["causal", "bidirectional"])
@pytest.mark.parametrize(("name", "options"), CASES, ids=[name for name, _ in CASES])
def test_equals_the_formula_with_its_gradients(name: str, options: dict[str, Any], role: str, backend: str) -> None:
    variant = build(name, role=role, backend=backend, **options)
    x = torch.randn(B, T, DIM, dtype=torch.float64, requires_grad=True)
    results = []
    for y in (variant(x), expected(variant, x, name)):
        results.append([y, *torch.autograd.grad(y.cos().sum(), [x, *variant.parameters()])])
    for actual, exact in zip(*results, strict=True):
        torch.testing.assert_close(actual, exact, rtol=1e-6, atol=1e-7)  # alibi: float32 slopes


def test_queries_are_numbered_among_the_keys() -> None:
    variant = build("generate_sliding_window", role="causal", window_size=1)
    x, memory = torch.randn(B, 3, DIM, dtype=torch.float64), torch.randn(B, 4, DIM, dtype=torch.float64)
    context = torch.cat([memory, x], dim=1)
    torch.testing.assert_close(variant(x, context=context), variant(context)[:, 4:])


@pytest.mark.parametrize(
    ("name", "places", "options"),
    [
        ("soft_cap", ("score",), []),
        ("same_document", ("visible",), []),
        ("generate_prefix_lm", ("visible",), ["prefix_length"]),
    ],
)
def test_a_path_leads_to_one_class(name: str, places: tuple[str, ...], options: list[str]) -> None:
    cls = COMPONENTS.get(f"{FILE}:{name}")
    assert issubclass(cls, Component) and cls is COMPONENTS.get(f"{FILE}:{name}")
    assert cls.places() == places and list(options_of(cls)) == options
    place, _, line = source(cls).rpartition(":")
    assert Path(place) == FILE and f"def {name}(" in FILE.read_text(encoding="utf-8").splitlines()[int(line) - 1]


def test_a_module_and_a_name_lead_to_a_function() -> None:
    assert COMPONENTS.get("tests.components.attention_gym:soft_cap").places() == ("score",)
    registry = Registry("component", group="none", base=COMPONENTS._base, builtin={}, functions=COMPONENTS._functions)
    assert registry.register("cap")(attention_gym.soft_cap) is attention_gym.soft_cap
    assert registry.get("cap") is function_component(attention_gym.soft_cap)


def test_a_function_is_no_variant() -> None:
    with pytest.raises(UserError, match="defines no class 'soft_cap'"):
        VARIANTS.get(f"{FILE}:soft_cap")


def test_options_are_checked_by_the_signature_of_the_function() -> None:
    cls = COMPONENTS.get(f"{FILE}:generate_prefix_lm")
    with pytest.raises(UserError, match="requires the option 'prefix_length'"):
        check_options(cls, {}, what="component")
    with pytest.raises(UserError, match="no option 'prefix'.*prefix_length"):
        check_options(cls, {"prefix": 3}, what="component")


def test_a_function_of_another_kind_is_refused() -> None:
    with pytest.raises(UserError, match="generate_untold") as refused:
        COMPONENTS.get(f"{FILE}:generate_untold")
    assert refused.value.where is not None and FILE.name in refused.value.where
    assert "Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]" in refused.value.message


@pytest.mark.parametrize(("name", "option"), [("generate_soft_cap", "cap=3.0"), ("generate_sliding_window", "window_size=2")])
def test_is_checked_on_the_command_line(name: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    checks = ["--only", "shapes", "--only", "causality by value", "--only", "copies"]
    assert main.main(["check", f"{FILE}:{name}", "--options", option, *checks]) == 0
    assert name in capsys.readouterr().out


def near(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return (q_idx - kv_idx).abs() < 3


def test_a_function_of_positions_declares_its_roles() -> None:
    """In cross-attention, positions of queries and of keys have no common origin."""
    checks = ["shapes", "padding", "key-value cache"]
    results = check_component(function_component(near), only=checks)
    (padding,) = [result for result in results if result.check == "padding"]
    assert padding.status == "failed" and padding.detail.startswith("cross")
    try:
        near.roles = {"causal", "bidirectional"}  # type: ignore[attr-defined]
        results = check_component(function_component(near), only=checks)
        assert {result.status for result in results} == {"passed"}
    finally:
        del near.roles  # type: ignore[attr-defined]


@pytest.mark.parametrize("roles", ["causal", {"casual"}])
def test_roles_of_a_function_are_a_set_of_names(roles: object) -> None:
    def nearest(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return (q_idx - kv_idx).abs() < 3

    nearest.roles = roles  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="nearest.roles: expected a set of the roles causal, .*got .*ca"):
        check_component(function_component(nearest))


@pytest.mark.parametrize("name", ["soft_cap", "generate_soft_cap"])
def test_is_copied_and_pickled(name: str) -> None:
    component = function_component(getattr(attention_gym, name))(ComponentConfig(DIM, HEADS, 4, "causal", T))
    s, index = torch.randn(3, 4), torch.zeros(())
    for again in (copy.deepcopy(component), pickle.loads(pickle.dumps(component))):
        assert type(again) is type(component)
        assert torch.equal(again.score(s, index, index, index, index), component.score(s, index, index, index, index))
