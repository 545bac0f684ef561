"""Every component equals its formula, written out in float64 for one query and one head at a time."""

from collections.abc import Callable
from functools import partial
from math import exp, log, sqrt, tanh
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.components import Component, ComponentConfig
from attnlab.components.log_n import LogN
from attnlab.components.moba import Moba
from attnlab.components.value_embedding import ValueEmbedding
from attnlab.models.decoding import key_value_cache
from attnlab.registry import COMPONENTS, VARIANTS
from attnlab.testing import check_component
from attnlab.variants import AttentionConfig, Variant

B, T, DIM, HEADS = 2, 7, 24, 4
D = DIM // HEADS
TOKENS = torch.tensor([[3, 0, 4, 4, 1, -1, 2], [-1, 2, 2, 0, 3, 1, 4]])


def make_component(name: str, *, role: str = "causal", **options: Any) -> Component:
    """Return a component whose parameters differ from their initial values."""
    component = COMPONENTS.get(name)(
        ComponentConfig(dim=DIM, heads=HEADS, head_dim=D, role=role, length=T, vocabulary=5), **options
    )
    component.tokens = TOKENS if component.reads_tokens else None
    with torch.no_grad():
        for parameter in component.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return component


def make_variant(component: Component | None, *, backend: str = "reference", role: str = "causal") -> Variant:
    """Return ``dense`` with a component, in float64."""
    components = {} if component is None else {"component": component}
    config = AttentionConfig(dim=DIM, heads=HEADS, role=role, backend=backend, components=components)
    return VARIANTS.get("dense")(config).double()


def qkv(variant: nn.Module, h: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Project one row x (dim,) to the query, key and value of one head."""
    w_q, w_k, w_v = variant.project.weight.unflatten(0, (3, HEADS, D))  # type: ignore[union-attr, operator]
    return w_q[h] @ x, w_k[h] @ x, w_v[h] @ x


def softmax(h: int, logits: list[float]) -> list[float]:
    powers = [exp(s) for s in logits]
    return [power / sum(powers) for power in powers]


def expected(
    variant: Variant,
    x: Tensor,
    *,
    project: Callable[[int, Tensor], tuple[Tensor, Tensor, Tensor]] | None = None,
    queries_keys: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]] = lambda h, q, k: (q, k),
    score: Callable[[int, float], float] = lambda h, s: s,
    decay: Callable[[int, Tensor], float] = lambda h, x: 0.0,
    visible: Callable[[int, Tensor, int, int], bool] = lambda h, x, i, j: True,
    weights: Callable[[int, list[float]], list[float]] = softmax,
    head_output: Callable[[int, Tensor, Tensor, Tensor], Tensor] = lambda h, y, x, v: y,
) -> Tensor:
    """Compute causal attention of x (b, t, dim) query by query, with one place of the formula changed."""
    project = project or (lambda h, x: qkv(variant, h, x))
    rows = []
    for row in x:
        for i in range(T):
            heads = []
            for h in range(HEADS):
                keys = [j for j in range(i + 1) if visible(h, row, i, j)]
                pairs = [queries_keys(h, project(h, row[i])[0], project(h, row[j])[1]) for j in keys]
                decays = [sum(decay(h, row[n]) for n in range(j + 1, i + 1)) for j in keys]
                w = weights(h, [score(h, float(q @ k) / sqrt(D)) + d for (q, k), d in zip(pairs, decays, strict=True)])
                y = torch.stack([w_j * project(h, row[j])[2] for w_j, j in zip(w, keys, strict=True)]).sum(0)
                heads.append(head_output(h, y, row[i], project(h, row[i])[2]))
            rows.append(torch.cat(heads))
    y = torch.stack(rows).unflatten(0, (B, T))
    return y if isinstance(variant.out, nn.Identity) else y @ variant.out.weight.T  # type: ignore[union-attr, operator]


def rms_norm(x: Tensor) -> Tensor:
    return x / (x.square().mean() + torch.finfo(x.dtype).eps).sqrt()


def sink(h: int, logits: list[float], *, bias: float) -> list[float]:
    return [exp(s) / (exp(bias) + sum(map(exp, logits))) for s in logits]


def grouped(variant: nn.Module, h: int, x: Tensor, *, count: int) -> tuple[Tensor, Tensor, Tensor]:
    group = h * count // HEADS
    w_q, w_k, w_v = (w.unflatten(0, (-1, D)) for w in variant.project.weight.split([DIM, count * D, count * D]))  # type: ignore[union-attr, operator]
    return w_q[h] @ x, w_k[group] @ x, w_v[group] @ x


def narrow(variant: nn.Module, h: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    piece, project = x[h * D : (h + 1) * D], variant.project
    return project.query.weight @ piece, project.key.weight @ piece, project.value.weight @ piece  # type: ignore[union-attr, operator, return-value]


def log_forget(component: Component, h: int, x: Tensor) -> float:
    forget = component.forget
    return -log(1 + exp(-float(forget.weight[h] @ x + forget.bias[h])))  # type: ignore[union-attr, index, operator]


def exclusive(h: int, y: Tensor, x: Tensor, v: Tensor) -> Tensor:
    return y - (y @ v) / (v @ v) * v


def gate(component: Component, h: int, y: Tensor, x: Tensor) -> Tensor:
    weight = component.project.weight.unflatten(0, (HEADS, -1))  # type: ignore[union-attr, operator]
    return y / (1 + (-(weight[h] @ x)).exp())


def in_best_blocks(variant: Variant, component: Any, h: int, x: Tensor, i: int, j: int) -> bool:
    """MoBA: a query sees its own block, and of those before it the ones whose mean key has the largest product with it."""
    size, (q, _, _) = component.size, qkv(variant, h, x[i])
    keys = [qkv(variant, h, row)[1] for row in x]
    means = [torch.stack(keys[n * size : (n + 1) * size]).mean(0) for n in range(i // size)]
    best = sorted(range(i // size), key=lambda n: -float(q @ means[n]))[: component.count - 1]
    return j // size in [i // size, *best]


def with_value_embedding(variant: Variant, component: Any, x: Tensor, h: int, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gated vector of the token at the position of ``row`` in x (b, t, dim); none of the token -1."""
    q, k, v = qkv(variant, h, row)
    token = int(TOKENS[tuple((x == row).all(-1).nonzero()[0])])
    gate = 3 / (1 + (-(component.gate.weight[h] @ row)).exp())
    return q, k, v if token < 0 else v + gate * component.table[token, h]


Changes = Callable[[Variant, Any], dict[str, Any]]
CASES: dict[str, tuple[dict[str, Any], Changes]] = {
    "qk_norm": ({}, lambda m, c: {"queries_keys": lambda h, q, k: (c.gain[h, 0, 0] * rms_norm(q), rms_norm(k))}),
    "temperature": ({"value": 3.0}, lambda m, c: {"score": lambda h, s: s / exp(c.log[h])}),
    "temperature unscaled": ({"scaled": False}, lambda m, c: {"score": lambda h, s: sqrt(D) * s / exp(c.log[h])}),
    "log_n": ({}, lambda m, c: {"weights": lambda h, s: softmax(h, [float(c.gain[h]) * log(len(s)) * s_j for s_j in s])}),
    "forget_gate": ({}, lambda m, c: {"decay": lambda h, x: log_forget(c, h, x)}),
    "softcap": ({"cap": 0.5}, lambda m, c: {"score": lambda h, s: 0.5 * tanh(s / 0.5)}),
    "window": ({"size": 3}, lambda m, c: {"visible": lambda h, x, i, j: i - j < 3}),
    "moba": ({"size": 2, "count": 2}, lambda m, c: {"visible": partial(in_best_blocks, m, c)}),
    "sink": ({}, lambda m, c: {"weights": lambda h, s: sink(h, s, bias=float(c.bias[h]))}),
    "softmax1": ({}, lambda m, c: {"weights": lambda h, s: sink(h, s, bias=0.0)}),
    "sigmoid": ({}, lambda m, c: {"weights": lambda h, s: [1 / (1 + exp(log(len(s)) - s_j)) for s_j in s]}),
    "gate": ({}, lambda m, c: {"head_output": lambda h, y, x, v: gate(c, h, y, x)}),
    "gate per head": ({"per": "head"}, lambda m, c: {"head_output": lambda h, y, x, v: gate(c, h, y, x)}),
    "exclusive": ({}, lambda m, c: {"head_output": exclusive}),
    "kv_heads": ({"count": 2}, lambda m, c: {"project": lambda h, x: grouped(m, h, x, count=2)}),
    "kv_heads one": ({"count": 1}, lambda m, c: {"project": lambda h, x: grouped(m, h, x, count=1)}),
    "narrow": ({}, lambda m, c: {"project": lambda h, x: narrow(m, h, x)}),
    "no_wo": ({}, lambda m, c: {}),
}


@pytest.mark.parametrize("backend", ["reference", "blocked"])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_formula(case: str, backend: str) -> None:
    torch.manual_seed(3)
    options, changes = CASES[case]
    component = make_component(case.split()[0], **options)
    variant, x = make_variant(component, backend=backend), torch.randn(B, T, DIM, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(variant(x), expected(variant, x, **changes(variant, component)))


@pytest.mark.parametrize("backend", ["reference", "blocked"])
def test_value_embeddings_equal_their_formula(backend: str) -> None:
    torch.manual_seed(3)
    component = make_component("value_embedding")
    variant, x = make_variant(component, backend=backend), torch.randn(B, T, DIM, dtype=torch.float64)
    project = partial(with_value_embedding, variant, component, x)
    with torch.no_grad():
        torch.testing.assert_close(variant(x), expected(variant, x, project=project))


class UngatedEmbedding(ValueEmbedding):
    """Adds the vectors of tokens as they are."""

    def value_function(self, context: Tensor) -> Callable[[Tensor], Tensor]:
        assert self.tokens is not None
        return lambda v: v + self.table[self.tokens.clamp(min=0)].transpose(1, 2)  # type: ignore[union-attr]


class EmbedsTheTokenBefore(ValueEmbedding):
    """Reads the token of the position before."""

    def value_function(self, context: Tensor) -> Callable[[Tensor], Tensor]:
        tokens, self.tokens = self.tokens, self.tokens.roll(1, 1)  # type: ignore[union-attr]
        values = super().value_function(context)
        self.tokens = tokens
        return values


class NaturalLengths(LogN):
    """Multiplies by n, not by its logarithm."""

    def score_function(self, context: Tensor, mask: Tensor | None) -> Callable[..., Tensor]:
        return lambda s, b, h, i, j: s * self.gain[h] * (i + 1)


@pytest.mark.parametrize("mutant", [UngatedEmbedding, EmbedsTheTokenBefore, NaturalLengths])
def test_the_formulas_of_values_and_lengths_catch_their_mutants(mutant: type[Component]) -> None:
    torch.manual_seed(3)
    wrong = mutant(ComponentConfig(dim=DIM, heads=HEADS, head_dim=D, role="causal", length=T, vocabulary=5))
    wrong.tokens = TOKENS
    variant, x = make_variant(wrong), torch.randn(B, T, DIM, dtype=torch.float64)
    if isinstance(wrong, ValueEmbedding):
        changes: dict[str, Any] = {"project": partial(with_value_embedding, variant, wrong, x)}
    else:
        changes = CASES["log_n"][1](variant, wrong)
    with torch.no_grad(), pytest.raises(AssertionError):
        torch.testing.assert_close(variant(x), expected(variant, x, **changes))


@pytest.mark.parametrize("role", ["causal", "bidirectional"])
def test_log_n_counts_the_keys_that_are_no_padding(role: str) -> None:
    component: Any = make_component("log_n", role=role).double()
    mask = torch.tensor([[False, True, True, False, True, True, True], [True] * 7])
    score = component.score_function(torch.zeros(2, T, DIM), mask)
    b, h, i, j = (
        torch.arange(2)[:, None, None, None],
        torch.arange(HEADS)[:, None, None],
        torch.arange(T)[:, None],
        torch.arange(T),
    )
    s = score(torch.ones(2, HEADS, T, T, dtype=torch.float64), b, h, i, j)
    n = torch.tensor([[1, 1, 2, 2, 3, 4, 5], range(1, 8)]) if role == "causal" else torch.tensor([[5] * 7, [7] * 7])
    torch.testing.assert_close(s, (component.gain[:, None, None] * n[:, None, :, None].double().log()).expand_as(s))


class ChoosesByTheFirstKey(Moba):
    """Describes a block by its first key."""

    def mean_keys(self, k: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        first = k[:, :, :: self.size]
        return first, torch.ones_like(first[..., :1])


class CountsTheOwnBlockTwice(Moba):
    """Chooses one block more than it should, in addition to its own."""

    def __init__(self, config: ComponentConfig, *, size: int, count: int) -> None:
        super().__init__(config, size=size, count=count + 1)


@pytest.mark.parametrize("mutant", [ChoosesByTheFirstKey, CountsTheOwnBlockTwice])
def test_the_formula_of_moba_catches_its_mutants(mutant: type[Moba]) -> None:
    torch.manual_seed(3)
    options, changes = CASES["moba"]
    wrong = mutant(ComponentConfig(dim=DIM, heads=HEADS, head_dim=D, role="causal", length=T), **options)
    variant, x = make_variant(wrong), torch.randn(B, T, DIM, dtype=torch.float64)
    with torch.no_grad(), pytest.raises(AssertionError):
        torch.testing.assert_close(variant(x), expected(variant, x, **changes(variant, make_component("moba", **options))))


def test_moba_leaves_padding_out_of_its_means() -> None:
    torch.manual_seed(3)
    moba = COMPONENTS.get("moba")(ComponentConfig(dim=DIM, heads=HEADS, head_dim=D, role="causal", length=T), size=2)
    mask = torch.tensor([[True, False, True, True, False, False, True]])
    k = torch.randn(1, HEADS, T, D, dtype=torch.float64)
    means, counts = moba.mean_keys(k, mask)
    assert torch.equal(means[:, :, 0], k[:, :, 0]) and not means[:, :, 2].any()
    assert counts.flatten().tolist() == [1, 2, 0, 1]


def test_moba_chooses_no_block_of_padding() -> None:
    """Its mean is 0, more than all scores here."""
    moba = COMPONENTS.get("moba")(ComponentConfig(dim=4, heads=1, head_dim=4, role="causal", length=8), size=2, count=2)
    q, k = torch.ones(1, 1, 8, 4), -torch.arange(8.0)[None, None, :, None].expand(1, 1, 8, 4)
    visible = moba.visible_function(q, k, torch.arange(8)[None] >= 2)
    b, h, i, j = torch.tensor(0), torch.tensor(0), torch.tensor(7), torch.arange(8)
    assert visible(b, h, i, j).tolist() == [False, False, True, True, False, False, True, True]


@pytest.mark.parametrize("options", [{"size": 0}, {"size": 2, "count": 0}])
def test_moba_without_blocks_is_refused(options: dict[str, int]) -> None:
    refused = check_component("moba", options=options, only=["shapes"])
    assert {result.status for result in refused} == {"refused"} and "at least 1" in refused[-1].detail


def test_window_of_a_bidirectional_role_reaches_both_ways() -> None:
    torch.manual_seed(3)
    variant = make_variant(make_component("window", role="bidirectional", size=2), role="bidirectional")
    x = torch.randn(1, T, DIM, dtype=torch.float64, requires_grad=True)
    (dx,) = torch.autograd.grad(variant(x)[0, 3].sum(), x)
    assert dx[0].abs().sum(-1).nonzero().flatten().tolist() == [2, 3, 4]


def shifted(x: Tensor, weight: Tensor) -> Tensor:
    """Compute x_t + sum_k w_k x_{t-k} of x (b, t, dim), one position at a time."""
    return torch.stack([x[:, t] + sum(weight[k] * x[:, t - k] for k in range(len(weight)) if k <= t) for t in range(T)], dim=1)


def test_token_shift_mixes_the_last_inputs() -> None:
    torch.manual_seed(3)
    component = make_component("token_shift", width=3)
    variant, x = make_variant(component), torch.randn(B, T, DIM, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(variant(x), expected(variant, shifted(x, component.shift.weight)))  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("name", ["token_shift_qkv", "short_conv"])
def test_queries_keys_and_values_are_mixed_with_the_last_ones(name: str) -> None:
    torch.manual_seed(3)
    variant, x = make_variant(make_component(name)), torch.randn(B, T, DIM, dtype=torch.float64)
    project = variant.project
    with torch.no_grad():
        shifts: list[Tensor] = [project.shift_q.weight, project.shift_k.weight, project.shift_v.weight]  # type: ignore[union-attr]
        weights = project.weight.split(DIM)  # type: ignore[union-attr, operator]
        tensors = []
        for shift, weight in zip(shifts, weights, strict=True):
            shift += 0.3 * torch.randn_like(shift)
            z = x @ weight.T
            mixed = shifted(z, shift) - (z if name == "short_conv" else 0)
            tensors.append(mixed.unflatten(-1, (HEADS, D)))
        q, k, v = tensors  # (b, t, h, d)

        def select(h: int, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            b, i = next((b, i) for b in range(B) for i in range(T) if torch.equal(x[b, i], row))
            return q[b, i, h], k[b, i, h], v[b, i, h]

        torch.testing.assert_close(variant(x), expected(variant, x, project=select))


@pytest.mark.parametrize("name", ["no_wo", "narrow"])
def test_component_equals_the_variant_of_its_name(name: str) -> None:
    torch.manual_seed(3)
    composed = make_variant(make_component(name))
    variant = VARIANTS.get(name)(AttentionConfig(dim=DIM, heads=HEADS, role="causal")).double()
    variant.load_state_dict(composed.state_dict())
    x = torch.randn(B, T, DIM, dtype=torch.float64)
    assert torch.equal(variant(x), composed(x))


def test_value_residual_mixes_the_values_of_the_first_block() -> None:
    torch.manual_seed(3)
    first, second = make_component("value_residual"), make_component("value_residual")
    second.connect(first)
    blocks, x, x_2 = [make_variant(first), make_variant(second)], *torch.randn(2, B, T, DIM, dtype=torch.float64)

    def project(h: int, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b, i = next((b, i) for b in range(B) for i in range(T) if torch.equal(x_2[b, i], row))
        q, k, v = qkv(blocks[1], h, row)
        return q, k, second.own * v + second.first * qkv(blocks[0], h, x[b, i])[2]  # type: ignore[operator]

    with torch.no_grad():
        blocks[0](x)
        torch.testing.assert_close(blocks[1](x_2), expected(blocks[1], x_2, project=project))


@pytest.mark.parametrize("name", [name for name in COMPONENTS.names() if COMPONENTS.get(name).supports_cache])
def test_decoding_with_a_cache_equals_the_full_forward_pass(name: str) -> None:
    torch.manual_seed(3)
    options = {case.split()[0]: options for case, (options, _) in CASES.items()}.get(name, {})
    variant, x = make_variant(make_component(name, **options)), torch.randn(B, T, DIM, dtype=torch.float64)
    with torch.no_grad():
        for parameter in variant.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        component, parts = variant.components["component"], []
        with key_value_cache(variant):
            for part, component.tokens in zip(*(z.split([3, 1, 2, 1], dim=1) for z in (x, TOKENS)), strict=True):  # type: ignore[misc]
                parts.append(variant(part))
        component.tokens = TOKENS  # type: ignore[assignment]
        torch.testing.assert_close(torch.cat(parts, dim=1), variant(x))
