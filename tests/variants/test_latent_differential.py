"""Differential and latent attention against their papers, in output and in every gradient."""

from collections.abc import Callable
from dataclasses import replace
from math import exp, log
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.models.decoding import key_value_cache
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.positions import PositionConfig
from attnlab.positions.rotary import Rotary
from attnlab.registry import VARIANTS
from attnlab.variants import AttentionConfig, Setting, Variant
from attnlab.variants.differential import Differential
from tests.models.test_decoding import Pairs, configuration
from tests.oracles import positions
from tests.oracles.attention import Logit, Visible, attention, behind, concatenated, heads_of, scaled_product
from tests.oracles.linear_attention import rms_norm
from tests.support.small_runs import tiny
from tests.variants.test_variants import DIM, HEADS, M, T, assert_same, scheme, whole_matrix, with_ones

D = DIM // HEADS  # the width of a head's values
ROTARY_WIDTH = 2


def make(
    name: str, *, role: str = "causal", position: Any = None, bias: bool = False, layer: int = 0, **options: Any
) -> Variant:
    """Return a variant whose gains are random."""
    torch.manual_seed(7)
    config = AttentionConfig(DIM, HEADS, role=role, position=position, bias=bias, layer=layer)
    variant = VARIANTS.get(name)(config, **options).double()
    for parameter_name, parameter in variant.named_parameters():
        if parameter_name in ("norm.weight", "query.1.weight"):
            nn.init.normal_(parameter)
    return variant


def linear(variant: Variant, name: str, x: Tensor) -> Tensor:
    weight = whole_matrix(variant, name)
    return with_ones(x, weight) @ weight.T


def sees(variant: Variant, t: int, s: int) -> Visible:
    return lambda h, i, j: not variant.causal or behind(t, s, i, j) >= 0


def rotate_all(x: Tensor, first: int) -> Tensor:
    """x (h, n, d), the first of which is at position ``first``."""
    return torch.stack([torch.stack([positions.rotated(row, first + i) for i, row in enumerate(head)]) for head in x])


def differential(variant: Variant, lambda_init: float, *, rotary: bool = False) -> Callable[[Tensor, Tensor], Tensor]:
    parameters = dict(variant.named_parameters())

    def oracle(x: Tensor, context: Tensor) -> Tensor:
        t, s = len(x), len(context)
        w_q, w_k, w_v = whole_matrix(variant, "project").chunk(3)
        q = heads_of(with_ones(x, w_q), w_q, 2 * HEADS)
        k, v = heads_of(with_ones(context, w_k), w_k, 2 * HEADS), heads_of(with_ones(context, w_v), w_v, HEADS)
        if rotary:
            q, k = rotate_all(q, s - t), rotate_all(k, 0)
        products = parameters["lambda_q"] * parameters["lambda_k"]
        difference = products[0].sum().exp() - products[1].sum().exp() + lambda_init
        heads = []
        for h in range(HEADS):
            maps = [
                attention(q[n, None], k[n, None], v[h, None], visible=sees(variant, t, s), logit=scaled_product)[0]
                for n in (2 * h, 2 * h + 1)
            ]
            heads.append((1 - lambda_init) * rms_norm(maps[0] - difference * maps[1], parameters["norm.weight"]))
        return linear(variant, "out", concatenated(torch.stack(heads)))

    return oracle


@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize("role", ["causal", "bidirectional"])
@pytest.mark.parametrize(("layer", "bias"), [(0, False), (5, True)])
def test_differential_attention_follows_ye(layer: int, bias: bool, role: str, memory: int) -> None:
    variant = make("differential", role=role, layer=layer, bias=bias)
    assert_same(variant, differential(variant, 0.8 - 0.6 * exp(-0.3 * layer)), memory=memory)


def test_differential_attention_with_another_lambda_and_rotary_positions() -> None:
    variant = make("differential", position=scheme("rotary", head_dim=D // 2), lambda_init=0.3)
    assert_same(variant, differential(variant, 0.3, rotary=True), memory=M)


def test_lambda_of_differential_attention_grows_from_block_to_block() -> None:
    """In every stack of a model, cross-attention included, blocks know their number."""
    expected = [0.8 - 0.6 * exp(-0.3 * i) for i in range(3)]
    sections = {f"model__{part}": {"variant": "differential", "position": "none"} for part in ("encoder", "decoder", "cross")}
    model = build(configuration(**sections, model__depth=3, model__dim=8, model__heads=2), Pairs())
    assert isinstance(model, EncoderDecoder)
    for part in ("encoder", "decoder", "cross"):
        layers = [layer for layer in model.attention_layers(part) if isinstance(layer, Differential)]
        assert [layer.lambda_init for layer in layers] == pytest.approx(expected)
    entries = [{"name": name, "position": "none"} for name in ("dense", "differential")]
    config = tiny(variant=None, position=None, model__layers=entries, model__depth=4, model__dim=8, model__heads=2)
    blocks = [m.lambda_init for m in build(config, _Tokens()).modules() if isinstance(m, Differential)]
    assert blocks == pytest.approx([0.8 - 0.6 * exp(-0.3 * i) for i in (1, 3)])


class _Tokens:
    kind, role, length, vocabulary, classes = "language_model", "causal", 5, 10, 0


def latent(variant: Variant, *, rotary: bool = False, logit: Logit = scaled_product) -> Callable[[Tensor, Tensor], Tensor]:
    parameters = dict(variant.named_parameters())
    d_q = D + ROTARY_WIDTH

    def oracle(x: Tensor, context: Tensor) -> Tensor:
        t, s = len(x), len(context)
        if "query.weight" in parameters:
            queries = linear(variant, "query", x)
        else:
            queries = linear(variant, "query.2", latent_norm(linear(variant, "query.0", x), parameters["query.1.weight"]))
        q = torch.stack([queries[:, h * d_q : (h + 1) * d_q] for h in range(HEADS)])
        c = latent_norm(linear(variant, "compress", context), parameters["norm.weight"])
        expanded = linear(variant, "expand", c)
        k, v = (torch.stack([expanded[:, 2 * h * D + n * D : 2 * h * D + (n + 1) * D] for h in range(HEADS)]) for n in (0, 1))
        shared = linear(variant, "shared_key", context)[None]
        q_c, q_r = q[..., :D], q[..., D:]
        if rotary:
            q_r, shared = rotate_all(q_r, s - t), rotate_all(shared, 0)
        q, k = torch.cat([q_c, q_r], dim=-1), torch.cat([k, shared.expand(HEADS, -1, -1)], dim=-1)
        y = concatenated(attention(q, k, v, visible=sees(variant, t, s), logit=logit))
        return linear(variant, "out", y)

    return oracle


@pytest.mark.parametrize("query_latent_dim", [None, 7])
@pytest.mark.parametrize("length", [T + M, 9])
def test_latent_attention_scales_whole_logits_by_the_factor_of_yarn(length: int, query_latent_dim: int | None) -> None:
    """DeepSeek-V2 multiplies the softmax scale of the whole logit by the square of YaRN's factor, the content part included."""
    config = PositionConfig(dim=DIM, heads=HEADS, head_dim=ROTARY_WIDTH, length=length, role="causal")
    variant = make("latent", position=Rotary(config, scaling="yarn").double(), query_latent_dim=query_latent_dim)

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        rotary = positions.scaled_logit(q[D:], k[D:], M + i - j, scaling="yarn", length=length, s=T + M) * ROTARY_WIDTH**0.5
        content = (0.1 * log((T + M) / length) + 1) ** 2 * (q[:D] @ k[:D])
        return (content + rotary) / (D + ROTARY_WIDTH) ** 0.5

    assert_same(variant, latent(variant, logit=logit), memory=M)


def latent_norm(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain


@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("options", [{}, {"latent_dim": 5}, {"query_latent_dim": 7}])
def test_latent_attention_follows_deepseek(options: dict[str, Any], rotary: bool, memory: int) -> None:
    position = scheme("rotary", head_dim=ROTARY_WIDTH) if rotary else None
    variant = make("latent", position=position, bias="latent_dim" in options, **options)
    assert_same(variant, latent(variant, rotary=rotary), memory=memory)


@pytest.mark.parametrize("role", ["bidirectional", "cross"])
def test_latent_attention_to_all_keys(role: str) -> None:
    variant = make("latent", role=role)
    assert_same(variant, latent(variant, rotary=False), memory=M if role == "cross" else 0)


@pytest.mark.parametrize(
    ("name", "options", "numbers"),
    [
        ("latent", {"latent_dim": 5}, 5 + ROTARY_WIDTH),
        ("latent", {}, DIM // 4 + ROTARY_WIDTH),
        ("differential", {}, 2 * DIM),
        ("dense", {}, 2 * DIM),
    ],
)
@pytest.mark.parametrize("position", [None, "rotary"])
def test_the_cache_of_a_position(name: str, options: dict[str, Any], numbers: int, position: str | None) -> None:
    """Latent attention caches the latent vector and the shared key; decoding equals the whole sequence."""
    head_dim = VARIANTS.get(name).head_dim(DIM, HEADS)
    variant = make(name, position=position and scheme(position, head_dim=head_dim), **options)
    x = torch.randn(3, 9, DIM, dtype=torch.float64)
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[0, :2] = mask[1, 4] = False
    with torch.no_grad():
        y = variant(x, mask=mask)
        with key_value_cache(variant) as caches:
            rows = torch.tensor([2, 0, 0])
            parts = [variant(x[:, :4], mask=mask[:, :4])]
            assert caches.nbytes == 3 * 4 * 8 * numbers
            parts.append(variant(x[:, 4:7], mask=mask[:, :7]))
            caches.select(rows)
            last = variant(x[rows, 7:], mask=mask[rows])
    torch.testing.assert_close(torch.cat(parts, dim=1), y[:, :7])
    torch.testing.assert_close(last, y[rows, 7:])


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("differential", {"lambda_init": 1.0}, "between 0 and 1, got 1"),
        ("latent", {"latent_dim": 0}, "got 0 and None"),
        ("latent", {"query_latent_dim": 0}, "got 3 and 0"),
    ],
)
def test_unsupported_options_yield_a_one_line_error(name: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        make(name, **options)


def test_an_odd_head_width_is_refused_for_two_queries_in_a_head() -> None:
    setting = Setting("causal", hook="none", memory=False, backend="reference", dim=10, heads=2)
    assert "even" in (Differential.unsupported(setting) or "")
    assert Differential.unsupported(replace(setting, dim=12)) is None
