"""Every built-in variant against its paper, in output and in every gradient."""

from collections.abc import Callable
from math import log
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.nn import blocked
from attnlab.nn.layers import relative_shift
from attnlab.positions import Position, PositionConfig
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.training.costs import saved_bytes
from attnlab.variants import AttentionConfig, Variant
from attnlab.variants.dense import Dense
from attnlab.variants.einsum import Einsum
from tests.oracles import child, positions
from tests.oracles.attention import attention, behind, concatenated, heads_of, scaled_product

B, T, M, DIM, HEADS = 2, 11, 5, 12, 3  # M: memory in front of the segment


def make(name: str, *, role: str = "causal", position: Position | None = None, bias: bool = False, **options: int) -> Variant:
    torch.manual_seed(7)
    config = AttentionConfig(DIM, HEADS, role=role, position=position, bias=bias)
    return VARIANTS.get(name)(config, **options).double()


def scheme(name: str, *, head_dim: int = DIM // HEADS, role: str = "causal") -> Position:
    torch.manual_seed(3)
    config = PositionConfig(dim=DIM, heads=HEADS, head_dim=head_dim, length=T + M, role=role)
    position = POSITIONS.get(name)(config).double()
    for parameter in position.parameters():
        nn.init.normal_(parameter)  # u and v start at zero, where mistakes hide
    return position


def inputs(memory: int = 0) -> tuple[Tensor, Tensor | None]:
    torch.manual_seed(11)
    whole = torch.randn(B, memory + T, DIM, dtype=torch.float64)
    return whole[:, memory:].clone().requires_grad_(), whole if memory else None


def assert_same(variant: Variant, oracle: Callable[[Tensor, Tensor], Tensor], *, memory: int = 0) -> None:
    """Compare the output and every gradient with ``oracle(x, context)`` of each sequence."""
    x, context = inputs(memory)
    x_too = x.detach().clone().requires_grad_()
    y = variant(x, context=context)
    y_too = torch.stack([oracle(x_too[b], x_too[b] if context is None else context[b]) for b in range(B)])
    torch.testing.assert_close(y, y_too, rtol=1e-9, atol=1e-11)
    parameters = dict(variant.named_parameters())
    weights = torch.randn_like(y)
    ours = torch.autograd.grad((y * weights).sum(), [x, *parameters.values()])
    theirs = torch.autograd.grad((y_too * weights).sum(), [x_too, *parameters.values()])
    for name, one, other in zip(["x", *parameters], ours, theirs, strict=True):
        assert one.abs().max() > 0, f"{name} gets no gradient"
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


def multi_head(variant: Variant, *, visible: Callable = None, logit: Callable = scaled_product, out: bool = True):  # type: ignore[assignment]
    """Return the oracle of a variant with one projection matrix for queries, keys and values, with or without W_O.

    A bias is a further column of its matrix, which multiplies a constant feature of one.
    """
    weight = whole_matrix(variant, "project")
    n = len(weight) // 3

    def oracle(x: Tensor, context: Tensor) -> Tensor:
        t, s = len(x), len(context)
        w_q, w_k, w_v = weight[:n], weight[n : 2 * n], weight[2 * n :]
        x, context = with_ones(x, weight), with_ones(context, weight)
        q, k, v = heads_of(x, w_q, HEADS), heads_of(context, w_k, HEADS), heads_of(context, w_v, HEADS)
        sees = visible or (lambda h, i, j: not variant.causal or behind(t, s, i, j) >= 0)
        y = concatenated(attention(q, k, v, visible=sees, logit=logit))
        if not out:
            return y
        w_o = whole_matrix(variant, "out")
        return with_ones(y, w_o) @ w_o.T

    return oracle


def whole_matrix(variant: Variant, name: str) -> Tensor:
    """Return the weight (n, m) of a layer, or (n, m + 1) with its bias."""
    layer = dict(variant.named_parameters())
    parts = [layer[f"{name}.weight"], *([layer[f"{name}.bias"][:, None]] if f"{name}.bias" in layer else [])]
    return torch.cat(parts, dim=1)


def with_ones(x: Tensor, weight: Tensor) -> Tensor:
    """Return x (t, m) with a column of ones if ``weight`` has m + 1 columns."""
    return x if weight.shape[1] == x.shape[1] else torch.cat([x, torch.ones_like(x[:, :1])], dim=1)


@pytest.mark.parametrize("role", ["causal", "bidirectional"])
@pytest.mark.parametrize("name", ["dense", "einsum", "transformer_xl", "no_wo", "wide"])
@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_variants_follow_vaswani(name: str, role: str, memory: int, bias: bool) -> None:
    variant = make(name, role=role, bias=bias)
    assert_same(variant, multi_head(variant, out=name != "no_wo"), memory=memory)


@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize("role", ["causal", "bidirectional"])
@pytest.mark.parametrize("name", ["dense", "einsum", "no_wo", "wide", "transformer_xl"])
def test_relative_positions_follow_dai(name: str, role: str, memory: int) -> None:
    head_dim = DIM if name == "wide" else DIM // HEADS
    variant = make(name, role=role, position=scheme("relative", head_dim=head_dim, role=role))
    relative = variant.position
    assert relative is not None

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        w_r = relative.distance.weight[h * head_dim : (h + 1) * head_dim]  # type: ignore[union-attr, index]
        return positions.relative_logit(q, k, relative.u[h], relative.v[h], w_r, behind(T, T + memory, i, j))  # type: ignore[index]

    assert_same(variant, multi_head(variant, logit=logit, out=name != "no_wo"), memory=memory)


@pytest.mark.parametrize("off", [-1, 1])
def test_the_oracle_sees_a_shift_off_by_one(off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distances that are all off by one keep every invariance, so only the comparison with the paper detects them."""
    monkeypatch.setattr("attnlab.positions.relative.relative_shift", lambda x, s: relative_shift(x.roll(off, -1), s))
    with pytest.raises(AssertionError, match="not close"):
        test_relative_positions_follow_dai("dense", "causal", M)


@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize("name", ["dense", "einsum", "no_wo"])
def test_rotary_positions_follow_su(name: str, memory: int) -> None:
    variant = make(name, position=scheme("rotary"))

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        return positions.rotated(q, memory + i) @ positions.rotated(k, j) / len(q) ** 0.5

    assert_same(variant, multi_head(variant, logit=logit, out=name != "no_wo"), memory=memory)


@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize("role", ["causal", "bidirectional"])
@pytest.mark.parametrize("name", ["dense", "einsum"])
def test_alibi_follows_press(name: str, role: str, memory: int) -> None:
    variant = make(name, role=role, position=scheme("alibi", role=role))

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        slope = positions.ALIBI_SLOPES[HEADS][h]
        return scaled_product(h, q, k, i, j) - slope * abs(behind(T, T + memory, i, j))

    assert_same(variant, multi_head(variant, logit=logit), memory=memory)


def pair_logit(position: Position | None, *, memory: int) -> Callable[..., Tensor]:
    """Return the function for the whole logit of a pair under a scheme, from its paper."""

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        name, distance = type(position).__name__, behind(T, T + memory, i, j)
        if name == "Rotary":
            return positions.rotated(q, memory + i) @ positions.rotated(k, j) / len(q) ** 0.5
        if name == "Alibi":
            return scaled_product(h, q, k, i, j) - positions.ALIBI_SLOPES[HEADS][h] * abs(distance)
        if name == "Relative":
            w_r = position.distance.weight.chunk(HEADS)[h]  # type: ignore[union-attr, operator]
            return positions.relative_logit(q, k, position.u[h], position.v[h], w_r, distance)  # type: ignore[union-attr, index]
        return scaled_product(h, q, k, i, j)

    return logit


@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize("position", ["rotary", "alibi"])
@pytest.mark.parametrize("name", ["no_wo", "transformer_xl", "wide"])
def test_other_multi_head_variants_honour_schemes(name: str, position: str, memory: int) -> None:
    variant = make(name, position=scheme(position, head_dim=DIM if name == "wide" else DIM // HEADS))
    logit = pair_logit(variant.position, memory=memory)
    assert_same(variant, multi_head(variant, logit=logit, out=name != "no_wo"), memory=memory)


# Logits at a time, and whether their weights are kept for the backward pass.
BLOCKS = pytest.mark.parametrize(
    ("backend", "most", "kept"),
    [("reference", 0, False), ("blocked", 40, False), ("blocked", 2**20, False), ("blocked", 40, True), ("xformers", 0, False)],
)


@BLOCKS
@pytest.mark.parametrize("stride", [1, 3, 4, T, T + 2])
def test_strided_sparse_follows_child(
    stride: int, backend: str, most: int, kept: bool, monkeypatch: pytest.MonkeyPatch, xformers_on_cpu: list[str]
) -> None:
    monkeypatch.setattr(blocked, "MAX_BLOCK_BYTES", most * 8)
    monkeypatch.setattr(blocked, "saves_weights", lambda *_: kept)
    variant = make("strided_sparse", stride=stride)
    variant.backend = backend
    half = HEADS // 2
    assert_same(variant, multi_head(variant, visible=lambda h, i, j: j in child.strided(i, stride)[h >= half]))


@BLOCKS
@pytest.mark.parametrize(("stride", "summary"), [(1, 1), (3, 1), (4, 2), (5, 5), (T + 2, 3)])
def test_fixed_sparse_follows_child(
    stride: int, summary: int, backend: str, most: int, kept: bool, monkeypatch: pytest.MonkeyPatch, xformers_on_cpu: list[str]
) -> None:
    monkeypatch.setattr(blocked, "MAX_BLOCK_BYTES", most * 8)
    monkeypatch.setattr(blocked, "saves_weights", lambda *_: kept)
    variant = make("fixed_sparse", stride=stride, summary=summary)
    variant.backend = backend
    half = HEADS // 2
    if stride - summary > T:
        pytest.skip("no summary within the sequence: those heads are zero and have no gradient")
    assert_same(variant, multi_head(variant, visible=lambda h, i, j: j in child.fixed(i, stride, summary)[h >= half]))


@pytest.mark.parametrize(
    ("name", "padded", "kinds"),
    [
        ("strided_sparse", False, ["BlockDiagonalCausalLocalAttentionMask", "LowerTriangularFromBottomRightMask"]),
        ("strided_sparse", True, ["Tensor"] * 3),
        ("fixed_sparse", False, ["LowerTriangularFromBottomRightMask", "Tensor"]),
    ],
)
def test_xformers_uses_its_kernels_for_sparse_patterns(
    name: str, padded: bool, kinds: list[str], xformers_on_cpu: list[str]
) -> None:
    variant = make(name, stride=4)
    variant.backend = "xformers"
    variant(inputs()[0], mask=torch.ones(B, T, dtype=torch.bool) if padded else None)
    assert xformers_on_cpu == kinds


@pytest.mark.parametrize("name", ["dense", "strided_sparse", "fixed_sparse"])
def test_xformers_gets_one_dtype_under_autocast(name: str, xformers_on_cpu: list[str]) -> None:
    variant = make(name, position=scheme("rotary")).float()
    variant.backend = "xformers"
    x = inputs()[0].float()
    with torch.autocast("cpu", torch.bfloat16):
        rough = variant(x)
    assert xformers_on_cpu and (rough - variant(x)).abs().max() < 0.05


@pytest.mark.parametrize("name", ["strided_sparse", "fixed_sparse"])
def test_sparse_variants_honour_rotary_positions(name: str) -> None:
    variant = make(name, position=scheme("rotary"), stride=4)
    sets = {"strided_sparse": lambda i: child.strided(i, 4), "fixed_sparse": lambda i: child.fixed(i, 4, 4)}[name]

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        return positions.rotated(q, i) @ positions.rotated(k, j) / len(q) ** 0.5

    assert_same(variant, multi_head(variant, visible=lambda h, i, j: j in sets(i)[h >= HEADS // 2], logit=logit))


@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize("position", ["none", "rotary", "alibi", "relative"])
def test_narrow_shares_one_small_projection(position: str, memory: int) -> None:
    variant = make("narrow", position=scheme(position) if position != "none" else None)
    d = DIM // HEADS
    logit = pair_logit(variant.position, memory=memory)

    def oracle(x: Tensor, context: Tensor) -> Tensor:
        def heads_through(z: Tensor, layer: nn.Linear) -> Tensor:
            return torch.stack([z[:, h * d : (h + 1) * d] @ layer.weight.T for h in range(HEADS)])

        project: Any = variant.project
        q, k, v = heads_through(x, project.query), heads_through(context, project.key), heads_through(context, project.value)
        sees = lambda h, i, j: behind(len(x), len(context), i, j) >= 0  # noqa: E731
        return concatenated(attention(q, k, v, visible=sees, logit=logit)) @ variant.out.weight.T  # type: ignore[union-attr]

    assert_same(variant, oracle, memory=memory)


@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize("role", ["causal", "bidirectional"])
def test_basic_is_softmax_of_x_xt_times_x(role: str, memory: int) -> None:
    variant = make("basic", role=role)
    sees = lambda h, i, j: role != "causal" or behind(T, T + memory, i, j) >= 0  # noqa: E731

    def oracle(x: Tensor, context: Tensor) -> Tensor:
        return attention(x[None], context[None], context[None], visible=sees, logit=lambda h, q, k, i, j: q @ k)[0]

    assert_same(variant, oracle, memory=memory)
    assert not list(variant.parameters())


def test_basic_honours_relative_positions_without_a_scale() -> None:
    torch.manual_seed(3)
    relative = POSITIONS.get("relative")(PositionConfig(dim=DIM, heads=1, head_dim=DIM, length=T, role="causal")).double()
    for parameter in relative.parameters():
        nn.init.normal_(parameter, std=0.3)
    variant = VARIANTS.get("basic")(AttentionConfig(DIM, 1, role="causal", position=relative))

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        scaled = positions.relative_logit(q, k, relative.u[0], relative.v[0], relative.distance.weight, i - j)
        return scaled * DIM**0.5

    def oracle(x: Tensor, context: Tensor) -> Tensor:
        return attention(x[None], context[None], context[None], visible=lambda h, i, j: j <= i, logit=logit)[0]

    assert_same(variant, oracle)


@pytest.mark.parametrize("bias", [False, True])
def test_dense_agrees_with_pytorch_multihead_attention(bias: bool) -> None:
    variant = make("dense", bias=bias)
    theirs = nn.MultiheadAttention(DIM, HEADS, bias=bias, batch_first=True).double()
    with torch.no_grad():
        if bias:
            theirs.in_proj_bias.copy_(variant.project.bias)  # type: ignore[arg-type]
            theirs.out_proj.bias.copy_(variant.out.bias)  # type: ignore[arg-type]
        theirs.in_proj_weight.copy_(variant.project.weight)  # type: ignore[arg-type]
        theirs.out_proj.weight.copy_(variant.out.weight)  # type: ignore[arg-type]
    x, _ = inputs()
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)  # True = hidden, their convention
    torch.testing.assert_close(variant(x), theirs(x, x, x, attn_mask=hidden, need_weights=False)[0])


@pytest.mark.parametrize("name", ["narrow", "none"])
def test_biases_of_single_layers_shift_their_outputs(name: str) -> None:
    """Each bias is added to the output of its layer, which a hook on the variant without biases does, too."""
    biased, plain = make(name, bias=True), make(name)
    plain.load_state_dict(biased.state_dict(), strict=False)
    layers = {path: layer for path, layer in biased.named_modules() if isinstance(layer, nn.Linear)}
    assert len(layers) == (4 if name == "narrow" else 2)
    for path, layer in layers.items():
        assert layer.bias is not None
        plain.get_submodule(path).register_forward_hook(lambda _, __, y, b=layer.bias: y + b)
    x, context = inputs(M)
    torch.testing.assert_close(biased(x, context=context), plain(x, context=context))
    assert not torch.allclose(biased(x), make(name)(x))


def test_dense_and_einsum_exchange_weights() -> None:
    dense, einsum = make("dense"), Einsum(AttentionConfig(DIM, HEADS, role="causal")).double()
    assert isinstance(dense, Dense)
    einsum.load_state_dict(dense.state_dict())
    x, context = inputs(M)
    torch.testing.assert_close(dense(x, context=context), einsum(x, context=context))


def test_no_wo_is_dense_with_the_identity_as_output_projection() -> None:
    dense, no_wo = make("dense"), make("no_wo")
    with torch.no_grad():
        dense.out.weight.copy_(torch.eye(DIM))  # type: ignore[union-attr]
    x, _ = inputs()
    torch.testing.assert_close(dense(x), no_wo(x))  # the same seed gave both the same projections
    assert sum(p.numel() for p in dense.parameters()) - sum(p.numel() for p in no_wo.parameters()) == DIM**2


@pytest.mark.parametrize("name", ["dense", "einsum", "no_wo", "wide", "narrow", "basic", "strided_sparse", "fixed_sparse"])
def test_padding_is_never_attended_to(name: str) -> None:
    role = "causal" if "sparse" in name else "bidirectional"
    variant = make(name, role=role)
    x, _ = inputs()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 3] = mask[0, 8:] = False
    mask[1] = False  # a row of nothing but padding
    other = torch.where(mask[..., None], x.detach(), torch.randn_like(x) * 9)
    y, y_other = variant(x, mask=mask), variant(other, mask=mask)
    torch.testing.assert_close(y[mask], y_other[mask])
    assert y.isfinite().all()
    y.sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    assert not torch.allclose(variant(x)[0], y[0]), "the mask changes nothing"


@pytest.mark.parametrize(
    ("backend", "lengths", "most"),
    [("reference", (256, 1024), 1.55), ("blocked", (1024, 16384), 1.1)],  # by the pattern; with P recomputed
)
@pytest.mark.parametrize("name", ["strided_sparse", "fixed_sparse"])
def test_sparse_variants_save_less_than_a_square(name: str, backend: str, lengths: tuple[int, int], most: float) -> None:
    saved = []
    for t in lengths:
        cls = VARIANTS.get(name)
        variant = cls(AttentionConfig(16, 2, role="causal", backend=backend), **cls.recommended_options(t))
        saved.append(saved_bytes(lambda variant=variant, t=t: variant(torch.randn(1, t, 16)), variant)[1])
    assert log(saved[1] / saved[0]) < most * log(lengths[1] / lengths[0]), saved
