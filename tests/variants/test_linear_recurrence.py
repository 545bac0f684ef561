"""Linear attention and its relatives against the recurrences of their papers, written out step by step."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.errors import UserError
from attnlab.models.decoding import key_value_cache
from attnlab.registry import VARIANTS
from attnlab.testing import check
from attnlab.variants import AttentionConfig, Variant
from attnlab.variants.mamba3 import _two_points
from tests.mutants.recurrences import RECURRENCE_MUTANTS
from tests.oracles import linear_attention as paper
from tests.oracles import positions
from tests.oracles.attention import concatenated, heads_of
from tests.oracles.recurrent import sigmoid
from tests.variants.test_variants import DIM, HEADS, M, T, assert_same, inputs, scheme, whole_matrix, with_ones

D = DIM // HEADS
Weights = Callable[[str], Tensor]
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("linear", {}),
    ("linear", {"feature_map": "taylor"}),
    ("retention", {}),
    ("retention", {"expand": 1}),
    ("gated_linear", {"short_conv": 0}),
    ("gated_linear", {"temperature": 2.0, "rank": 3, "short_conv": 0}),
    ("ssd", {"state_dim": 5, "short_conv": 0}),
    ("ssd", {"expand": 1, "state_dim": 64, "short_conv": 0}),
    ("delta", {"short_conv": 0}),
    ("delta", {"negative_eigenvalues": True, "short_conv": 0}),
    ("gated_delta", {"short_conv": 0}),
    ("gated_delta", {"negative_eigenvalues": True, "short_conv": 0}),
    ("kda", {"short_conv": 0}),
    ("kda", {"negative_eigenvalues": True, "short_conv": 0}),
    ("gated_delta2", {"negative_eigenvalues": True, "short_conv": 0}),
    ("delta_product", {"short_conv": 0}),
    ("delta_product", {"reflections": 3, "negative_eigenvalues": False, "gated": True, "short_conv": 0}),
]
CONVOLVED: list[tuple[str, dict[str, Any]]] = [
    ("gated_linear", {}),
    ("ssd", {"state_dim": 5}),
    ("delta", {}),
    ("delta", {"short_conv": 1}),
    ("gated_delta", {"short_conv": 3}),
    ("kda", {}),
    ("gated_delta2", {}),
    ("delta_product", {}),
]
QUADRATIC: list[tuple[str, dict[str, Any]]] = [
    ("log_linear", {"state_dim": 5, "short_conv": 0}),
    ("log_linear", {"levels": 3, "expand": 1, "state_dim": 4}),
]
TWO_POINTS: list[tuple[str, dict[str, Any]]] = [
    ("mamba3", {"state_dim": 8}),
    ("mamba3", {"state_dim": 7, "expand": 1, "rotary_fraction": 1.0}),
    ("mamba3", {"state_dim": 6, "rotary_fraction": 0.0}),
]


def make(
    name: str | type[Variant], *, role: str = "causal", bias: bool = False, position: Any = None, **options: Any
) -> Variant:
    """Return a variant whose parameters that start as constants are random."""
    torch.manual_seed(7)
    cls = VARIANTS.get(name) if isinstance(name, str) else name
    variant = cls(AttentionConfig(DIM, HEADS, role=role, bias=bias, position=position), **options).double()
    for parameter_name, parameter in variant.named_parameters():
        if parameter_name in ("skip", "level_scale", "query_bias", "key_bias") or parameter_name.endswith("norm.weight"):
            torch.nn.init.normal_(parameter)
    return variant


class Layer:
    """The parameters of a variant, applied to one sequence."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.parameters = dict(variant.named_parameters())

    def heads(self, name: str, x: Tensor) -> Tensor:
        """Return the features of each head, (h, n, d)."""
        weight = whole_matrix(self.variant, name)
        return heads_of(with_ones(x, weight), weight, HEADS)

    def mixed(self, name: str, x: Tensor, context: Tensor) -> Tensor:
        """Return a projection at the positions of x, the last ones of the context, after its convolution."""
        z = self.linear(name, torch.cat([context[: len(context) - len(x)], x]))
        if (weight := self.parameters.get(f"convolutions.{name}.weight")) is not None:
            z = paper.convolved(z, weight, self.parameters.get(f"convolutions.{name}.bias"))
        return z[len(z) - len(x) :]

    def mixed_heads(self, name: str, x: Tensor, context: Tensor) -> Tensor:
        return self.mixed(name, x, context).unflatten(-1, (HEADS, -1)).transpose(0, 1)

    def linear(self, name: str, x: Tensor) -> Tensor:
        weight = whole_matrix(self.variant, name)
        return with_ones(x, weight) @ weight.T

    def __getitem__(self, name: str) -> Tensor:
        return self.parameters[name]


def retention(layer: Layer, x: Tensor, context: Tensor, rotate: Callable[[Tensor, int], Tensor] | None = None) -> Tensor:
    q, k, v = layer.heads("query", x) / D**0.5, layer.heads("key", context), layer.heads("value", context)
    m = len(context) - len(x)
    if rotate is not None:
        q = torch.stack([torch.stack([rotate(row, m + i) for i, row in enumerate(head)]) for head in q])
        k = torch.stack([torch.stack([rotate(row, j) for j, row in enumerate(head)]) for head in k])
    heads = []
    for h in range(HEADS):
        gamma = torch.full((len(context), 1), 1 - 2.0 ** (-5 - h), dtype=torch.float64)
        heads.append(paper.group_norm(paper.outputs(q[h], paper.decayed(k[h], v[h], gamma))))
    return layer.linear("out", paper.silu(layer.linear("gate", x)) * concatenated(torch.stack(heads)))


def gated_linear(layer: Layer, x: Tensor, context: Tensor) -> Tensor:
    width = (D + 1) // 2
    q = layer.mixed_heads("query", x, context)
    k, v = (layer.mixed_heads(name, context, context) for name in ("key", "value"))
    if "convolutions.query.weight" in layer.parameters:
        q, k, v = paper.silu(q), paper.silu(k), paper.silu(v)
    q = q / width**0.5
    low = context @ layer["decay.0.weight"].T
    tau = getattr(layer.variant, "temperature")  # noqa: B009 an option of this variant alone
    alpha = sigmoid(low @ layer["decay.1.weight"].T + layer["decay.1.bias"]) ** (1 / tau)
    heads = []
    for h in range(HEADS):
        after = paper.decayed(k[h], v[h], alpha[:, h * width : (h + 1) * width])
        heads.append(paper.rms_norm(paper.outputs(q[h], after), layer["norm.weight"]))
    return layer.linear("out", paper.silu(layer.linear("gate", x)) * concatenated(torch.stack(heads)))


def mamba_decay(layer: Layer, context: Tensor) -> tuple[Tensor, Tensor]:
    """Return Delta and exp(-Delta A), each (s, h)."""
    step = paper.softplus(context @ layer["step.weight"].T + layer["step_bias"])
    return step, (-step * layer["A_log"].exp()).exp()


def ssd(layer: Layer, x: Tensor, context: Tensor) -> Tensor:
    c, b = paper.silu(layer.mixed("query", x, context)), paper.silu(layer.mixed("key", context, context))
    v = paper.silu(layer.mixed_heads("value", context, context))
    step, decay = mamba_decay(layer, context)
    heads = []
    for h in range(HEADS):
        after = paper.decayed(b, step[:, h : h + 1] * v[h], decay[:, h : h + 1])
        heads.append(paper.outputs(c, after) + layer["skip"][h] * v[h][-len(x) :])
    y = concatenated(torch.stack(heads)) * paper.silu(layer.linear("gate", x))
    return layer.linear("out", paper.rms_norm(y, layer["norm.weight"]))


def log_linear(layer: Layer, x: Tensor, context: Tensor) -> Tensor:
    """The ranges of each position, by removing one set bit after the other from its number."""
    c, b = paper.silu(layer.mixed("query", x, context)), paper.silu(layer.mixed("key", context, context))
    v = paper.silu(layer.mixed_heads("value", context, context))
    step, decay = mamba_decay(layer, context)
    levels = len(layer["level.weight"]) // HEADS
    heads = []
    for h in range(HEADS):
        part = slice(h * levels, (h + 1) * levels)
        scales = paper.softplus(layer["level_scale"][h, 0] * (x @ layer["level.weight"][part].T))
        rows = []
        for t in range(len(x)):
            ranges, end = [(0, [t])], t
            while end:
                size = end & -end
                ranges.append((size.bit_length(), list(range(end - size, end))))
                end -= size
            y = layer["skip"][h] * v[h, t]
            for level, positions_of in ranges:
                for j in positions_of:
                    weight = scales[t, min(level, levels - 1)] * decay[j + 1 : t + 1, h].prod() * step[j, h]
                    y = y + weight * (c[t] @ b[j]) * v[h, j]
            rows.append(y)
        heads.append(torch.stack(rows))
    y = concatenated(torch.stack(heads)) * paper.silu(layer.linear("gate", x))
    return layer.linear("out", paper.rms_norm(y, layer["norm.weight"]))


def mamba3(layer: Layer, x: Tensor, context: Tensor) -> Tensor:
    """The step-by-step form: the state, the angles, and the input of the step before."""
    c, b = (paper.rms_norm(layer.linear(n, z), layer[f"{n}_norm.weight"]) for n, z in (("query", x), ("key", context)))
    v = layer.heads("value", context)
    step = paper.softplus(context @ layer["step.weight"].T + layer["step_bias"])  # (s, h)
    rate = paper.softplus(context @ layer["rate.weight"].T).clamp(min=1e-4)
    mix = sigmoid(context @ layer["mix.weight"].T)
    theta = torch.pi * torch.tanh(context @ layer["angle.weight"].T) if "angle.weight" in layer.parameters else context[:, :0]
    heads = []
    for h in range(HEADS):
        state, phi, rows = torch.zeros(b.shape[1], v.shape[2], dtype=torch.float64), torch.zeros_like(theta[0]), []
        before = torch.zeros_like(state)
        for t in range(len(context)):
            phi = phi + step[t, h] * theta[t]
            key = paper.turned(b[t] + layer["key_bias"][h, 0], phi)
            alpha, written = (-step[t, h] * rate[t, h]).exp(), torch.outer(key, v[h, t])
            state = alpha * state + (1 - mix[t, h]) * step[t, h] * alpha * before + mix[t, h] * step[t, h] * written
            before = written
            if (i := t - len(context) + len(x)) >= 0:
                rows.append(state.T @ paper.turned(c[i] + layer["query_bias"][h, 0], phi) + layer["skip"][h] * v[h, t])
        heads.append(torch.stack(rows))
    return layer.linear("out", concatenated(torch.stack(heads)) * paper.silu(layer.linear("gate", x)))


def delta(layer: Layer, x: Tensor, context: Tensor) -> Tensor:
    q, k = (paper.unit(paper.silu(layer.mixed_heads(name, z, context))) for name, z in (("query", x), ("key", context)))
    v = paper.silu(layer.mixed_heads("value", context, context))
    largest = getattr(layer.variant, "largest_beta")  # noqa: B009 an option of some variants
    beta = largest * sigmoid(layer.linear("beta", context))  # (s, h)
    gated = "A_log" in layer.parameters
    alpha = mamba_decay(layer, context)[1] if gated else torch.ones_like(beta)
    heads = []
    for h in range(HEADS):
        after = paper.delta(k[h], v[h], beta[:, h : h + 1], alpha[:, h : h + 1])
        heads.append(paper.rms_norm(paper.outputs(q[h], after), layer["norm.weight"]))
    y = concatenated(torch.stack(heads))
    return layer.linear("out", y * paper.silu(layer.linear("gate", x)) if gated else y)


def channel_delta(layer: Layer, x: Tensor, context: Tensor) -> Tensor:
    """Kimi delta attention, equation 1, and Gated DeltaNet 2, which has a gate for what is written."""
    q, k = (paper.unit(paper.silu(layer.mixed_heads(name, z, context))) for name, z in (("query", x), ("key", context)))
    v = paper.silu(layer.mixed_heads("value", context, context))
    beta = getattr(layer.variant, "largest_beta") * sigmoid(layer.linear("beta", context))  # noqa: B009 an option of some variants
    low = context @ layer["decay.0.weight"].T
    step = paper.softplus(low @ layer["decay.1.weight"].T + layer["step_bias"]).unflatten(-1, (HEADS, D))
    alpha = (-layer["A_log"].exp()[:, None] * step).exp()  # (s, h, d)
    heads = []
    for h in range(HEADS):
        if "write.weight" in layer.parameters:
            write = sigmoid(layer.linear("write", context))[:, h * D : (h + 1) * D]
            after = paper.delta(k[h], v[h], beta[:, h * D : (h + 1) * D], alpha[:, h], write=write)
        else:
            after = paper.delta(k[h], v[h], beta[:, h : h + 1], alpha[:, h])
        heads.append(paper.rms_norm(paper.outputs(q[h], after), layer["norm.weight"]))
    gate = sigmoid(x @ layer["gate.0.weight"].T @ layer["gate.1.weight"].T + layer["gate.1.bias"])
    return layer.linear("out", gate * concatenated(torch.stack(heads)))


def delta_product(layer: Layer, x: Tensor, context: Tensor) -> Tensor:
    """n steps of the delta rule at each position, the first of which follows the decay."""
    q = paper.unit(paper.silu(layer.mixed_heads("query", x, context)))
    keys, values = (paper.silu(layer.mixed(name, context, context)) for name in ("key", "value"))
    largest, n = (getattr(layer.variant, name) for name in ("largest_beta", "reflections"))
    beta = largest * sigmoid(layer.linear("beta", context))  # (s, n h)
    gated = "A_log" in layer.parameters
    alpha = mamba_decay(layer, context)[1] if gated else torch.ones_like(beta)
    heads = []
    for h in range(HEADS):
        state, after = torch.zeros(D, D, dtype=torch.float64), []
        for t in range(len(context)):
            state = alpha[t, h] * state
            for j in range(n):
                part = slice((j * HEADS + h) * D, (j * HEADS + h + 1) * D)
                k, b = paper.unit(keys[t, part]), beta[t, j * HEADS + h]
                state = state - b * torch.outer(k, k @ state) + b * torch.outer(k, values[t, part])
            after.append(state)
        heads.append(paper.rms_norm(paper.outputs(q[h], after), layer["norm.weight"]))
    y = concatenated(torch.stack(heads))
    return layer.linear("out", y * paper.silu(layer.linear("gate", x)) if gated else y)


def linear(layer: Layer, x: Tensor, context: Tensor) -> Tensor:
    """The quotient of equations 5 and 9; for Taylor's features, from the weights themselves."""
    w_q, w_k, w_v = whole_matrix(layer.variant, "project").chunk(3)
    q = heads_of(with_ones(x, w_q), w_q, HEADS)
    k, v = (heads_of(with_ones(context, w), w, HEADS) for w in (w_k, w_v))
    taylor = getattr(layer.variant, "feature_map") == "taylor"  # noqa: B009 an option of this variant alone
    heads = []
    for h in range(HEADS):
        rows = []
        for i in range(len(x)):
            seen = range(len(context) - len(x) + i + 1 if layer.variant.causal else len(context))
            phi = paper.elu_features
            weights = [paper.taylor_weight(q[h, i], k[h, j]) if taylor else phi(q[h, i]) @ phi(k[h, j]) for j in seen]
            rows.append(sum(w * v[h, j] for w, j in zip(weights, seen, strict=True)) / sum(weights))  # type: ignore[arg-type]
        heads.append(torch.stack(rows))  # type: ignore[arg-type] not 0: there is a key
    return layer.linear("out", concatenated(torch.stack(heads)))


PAPERS: dict[str, Callable[[Layer, Tensor, Tensor], Tensor]] = {
    "linear": linear,
    "retention": retention,
    "gated_linear": gated_linear,
    "ssd": ssd,
    "mamba3": mamba3,
    "log_linear": log_linear,
    "delta": delta,
    "gated_delta": delta,
    "kda": channel_delta,
    "gated_delta2": channel_delta,
    "delta_product": delta_product,
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize(("name", "options"), [*OPTIONS, *CONVOLVED, *TWO_POINTS])
def test_each_variant_is_the_recurrence_of_its_paper(name: str, options: dict[str, Any], memory: int, bias: bool) -> None:
    variant = make(name, bias=bias, **options)
    layer = Layer(variant)
    assert_same(variant, lambda x, context: PAPERS[name](layer, x, context), memory=memory)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("name", "options"), QUADRATIC)
def test_levels_are_the_ranges_of_a_fenwick_tree(name: str, options: dict[str, Any], bias: bool) -> None:
    variant = make(name, bias=bias, **options)
    layer = Layer(variant)
    assert_same(variant, lambda x, context: PAPERS[name](layer, x, context))


def test_decoding_of_log_linear_keeps_a_state_for_each_bit() -> None:
    variant = make("log_linear", state_dim=5, short_conv=0)
    x, mask = torch.randn(3, 89, DIM, dtype=torch.float64), torch.rand(3, 89) < 0.8
    with torch.no_grad():
        for seen in (None, mask):
            y, start = variant(x, mask=seen), 0
            with key_value_cache(variant) as caches:
                for length in (7, 1, 1, 70, 2, 1, 7):
                    end = start + length
                    part = variant(x[:, start:end], mask=None if seen is None else seen[:, :end])
                    torch.testing.assert_close(part, y[:, start:end])
                    assert caches.nbytes == 3 * 2 * DIM * 5 * end.bit_length() * 8
                    start = end


@pytest.mark.parametrize(("name", "mutant"), RECURRENCE_MUTANTS)
def test_the_recurrences_catch_their_mutants(name: str, mutant: type[Variant]) -> None:
    layer = Layer(make(mutant))
    with pytest.raises(AssertionError):
        assert_same(layer.variant, lambda x, context: PAPERS[name](layer, x, context), memory=0)


def test_one_reflection_is_the_delta_rule() -> None:
    product, delta = make("delta_product", reflections=1), make("delta", negative_eigenvalues=True)
    delta.load_state_dict(product.state_dict())
    x, _ = inputs()
    torch.testing.assert_close(product(x), delta(x))


@pytest.mark.parametrize("feature_map", ["elu", "taylor"])
@pytest.mark.parametrize("role", ["bidirectional", "cross"])
def test_linear_attention_to_all_keys(role: str, feature_map: str) -> None:
    variant = make("linear", role=role, feature_map=feature_map)
    layer = Layer(variant)
    assert_same(variant, lambda x, context: linear(layer, x, context), memory=M if role == "cross" else 0)


@pytest.mark.parametrize("memory", [0, M])
def test_retention_rotates_queries_and_keys(memory: int) -> None:
    variant = make("retention", position=scheme("rotary"))
    layer = Layer(variant)
    assert_same(variant, lambda x, context: retention(layer, x, context, positions.rotated), memory=memory)


def test_features_of_taylor_multiply_to_its_weight() -> None:
    variant = make("linear", feature_map="taylor")
    q, k = torch.randn(2, 3, 5, D, dtype=torch.float64).unbind()
    phi_q, phi_k = (variant.features(z) for z in (q, k))  # type: ignore[operator] a method of this variant
    assert phi_q.shape[-1] == (D + 1) * (D + 2) // 2
    expected = [[[paper.taylor_weight(a, b) for b in keys] for a in rows] for rows, keys in zip(q, k, strict=True)]
    torch.testing.assert_close(phi_q @ phi_k.mT, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(("name", "options"), [*CONVOLVED, *TWO_POINTS])
def test_padding_in_front_counts_as_nothing(name: str, options: dict[str, Any]) -> None:
    variant = make(name, **options)
    x, _ = inputs()
    mask = torch.ones(2, T, dtype=torch.bool)
    mask[0, :3] = mask[0, T - 2 :] = False
    torch.testing.assert_close(variant(x, mask=mask)[0, 3 : T - 2], variant(x[:1, 3 : T - 2])[0])


def test_a_negative_number_of_positions_is_refused() -> None:
    with pytest.raises(UserError, match="short_conv.*got -1"):
        make("delta", short_conv=-1)


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_padding_anywhere_leaves_the_state_as_it_is(name: str, options: dict[str, Any]) -> None:
    """A row without its padded positions gives the same outputs and gradients."""
    variant = make(name, **options)
    parameters = list(variant.parameters())
    x, _ = inputs()
    mask = torch.ones(2, T, dtype=torch.bool)
    mask[0, [0, 3, 4, T - 1]] = False
    mask[1] = False
    padded, alone = variant(x, mask=mask), variant(x[:1, mask[0]])
    torch.testing.assert_close(padded[0][mask[0]], alone[0])
    assert padded.isfinite().all(), "the second row consists of padding"
    ours, theirs = (torch.autograd.grad(y.square().sum(), parameters) for y in (padded[0][mask[0]], alone[0]))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
    everything = torch.autograd.grad(variant(x, mask=mask).square().sum(), [x, *parameters])
    assert all(gradient.isfinite().all() for gradient in everything)


@pytest.mark.parametrize(
    ("name", "options", "position"),
    [*((*case, None) for case in [*OPTIONS, *CONVOLVED, *TWO_POINTS]), ("retention", {}, "rotary")],
)
def test_a_state_of_constant_size_continues_a_sequence(name: str, options: dict[str, Any], position: str | None) -> None:
    """Parts of any length, one of them longer than a chunk, give the outputs of the whole sequence, with padding as well."""
    variant = make(name, position=position and scheme(position), **options)
    n = 89
    x = torch.randn(3, n, DIM, dtype=torch.float64)
    mask = torch.rand(3, n) < 0.8
    sizes = []
    with torch.no_grad():
        for visible in (None, mask):
            y = variant(x, mask=visible)
            with key_value_cache(variant) as caches:
                start = 0
                for length in (7, 1, 1, 71, 2, 7):
                    end = start + length
                    part = variant(x[:, start:end], mask=None if visible is None else visible[:, :end])
                    torch.testing.assert_close(part, y[:, start:end])
                    sizes.append(caches.nbytes)
                    start = end
    assert len(set(sizes)) == 1 and sizes[0] > 0


def test_rows_of_a_state_are_selected() -> None:
    variant = make("gated_delta")
    x = torch.randn(3, 9, DIM, dtype=torch.float64)
    rows = torch.tensor([2, 0, 2])
    with torch.no_grad():
        whole = variant(x)
        with key_value_cache(variant) as caches:
            variant(x[:, :5])
            caches.select(rows)
            torch.testing.assert_close(variant(x[rows, 5:]), whole[rows, 5:])


@pytest.mark.parametrize("name", ["delta", "gated_delta", "kda"])
def test_negative_eigenvalues_let_a_state_alternate(name: str) -> None:
    """With beta near 2 along one key and no decay, the state changes its sign at each position: parity of a running length."""
    variant = make(name, negative_eigenvalues=True, short_conv=0)
    with torch.no_grad():
        if name != "delta":
            variant.A_log.fill_(-40.0)  # type: ignore[operator] a parameter
        variant.beta.weight.zero_()  # type: ignore[union-attr]
        variant.beta.weight[:, 0] = 40.0  # type: ignore[index, union-attr]
        variant.value.weight.zero_()  # type: ignore[union-attr]
        variant.value.weight[:, 1] = 1.0  # type: ignore[index, union-attr]
        x = torch.zeros(1, 7, DIM, dtype=torch.float64)
        x[:, :, 0], x[:, 0, 1] = 1.0, 1.0  # the same key everywhere, a value at the first position alone
        with key_value_cache(variant):
            signs = []
            for i in range(7):
                variant(x[:, i : i + 1])
                state = variant.cache.state  # type: ignore[union-attr] of a State
                signs.append(state.sum().sign().item())
    # The key of the first position differs, because its value is a feature of its input as well.
    assert signs[1:] == [-signs[0] * (-1) ** i for i in range(6)]


def test_the_two_points_of_a_step_are_rounded_once() -> None:
    """In bf16, the sum of both inputs of a step is rounded, and not each of them."""
    generator = torch.Generator().manual_seed(0)
    q, k, before = (torch.randn(1, 2, 9, 4, generator=generator) for _ in range(3))
    v, previous = (torch.randn(1, 2, 9, 3, generator=generator).bfloat16() for _ in range(2))
    decay = -torch.rand(1, 2, 9, 1, generator=generator)
    exact, _ = _two_points(q, k, v.float(), before, previous.float(), decay, state=None)
    rounded, _ = _two_points(q, k, v, before, previous, decay, state=None)
    assert rounded.dtype == torch.bfloat16 and torch.equal(rounded, exact.bfloat16())


@pytest.mark.parametrize("bits", [[1, 1, 1, 1, 1], [0, 1, 0, 0, 1, 1], [1, 0, 1, 1, 0, 0, 1]])
def test_rotations_keep_parity_with_a_positive_decay(bits: list[int]) -> None:
    """With an angle of pi at each one, the output has the sign (-1)^(number of ones)."""
    variant: Any = make("mamba3", state_dim=8, rotary_fraction=1.0)
    with torch.no_grad():
        for layer in (variant.query, variant.key, variant.value, variant.step, variant.rate, variant.mix, variant.angle):
            layer.weight.zero_()
        variant.query_bias.fill_(1.0)
        variant.key_bias.fill_(1.0)
        variant.skip.zero_()
        variant.step_bias.fill_(math.log(math.e - 1))  # Delta = 1
        variant.rate.weight[:, 2] = -40.0  # the slowest decay
        variant.mix.weight[:, 2] = 40.0  # lambda = 1
        variant.angle.weight[:, 0] = 40.0  # theta = pi at a one
        variant.value.weight[:, 1] = 1.0
        variant.gate.weight.zero_()
        variant.gate.weight[:, 2] = 1.0
        variant.out.weight.fill_(1.0)
        x = torch.zeros(1, 1 + len(bits), DIM, dtype=torch.float64)
        x[0, 1:, 0], x[:, 0, 1], x[:, :, 2] = torch.tensor(bits, dtype=torch.float64), 1.0, 1.0
        signs = variant(x)[0, 1:, 0].sign()
    ones = torch.tensor(bits).cumsum(0)
    assert torch.equal(signs, (-1.0) ** ones.double())


@pytest.mark.parametrize(
    ("name", "options"), [("linear", {"feature_map": "taylor"}), ("delta", {"negative_eigenvalues": True})]
)
def test_options_pass_the_contract(name: str, options: dict[str, Any]) -> None:
    only = ["shapes", "causality by gradient", "padding", "key-value cache", "gradcheck", "training mode", "extreme inputs"]
    results = check(name, options=options, only=only)
    assert results and not results.failed


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("retention", {"expand": 0}, "expand of at least 1, got 0"),
        ("gated_linear", {"temperature": 0.0}, "got 0 and 16"),
        ("gated_linear", {"rank": 0}, "got 16 and 0"),
        ("ssd", {"state_dim": 0}, "got 2 and 0"),
        ("log_linear", {"levels": 0}, "levels, got 0"),
        ("mamba3", {"expand": 0}, "got 0 and 64"),
        ("mamba3", {"rotary_fraction": 1.5}, "between 0 and 1, got 1.5"),
        ("delta_product", {"reflections": 0}, "reflections, got 0"),
    ],
)
def test_unsupported_options_yield_a_one_line_error(name: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        make(name, **options)
