"""Tests of the axes of the block: norms, feed-forward networks, biases, the scale of embeddings, and their combinations."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnlab import plan
from attnlab.config.run import ModelConfig, RunConfig
from attnlab.errors import UserError
from attnlab.models import residual
from attnlab.models.block import Block
from attnlab.models.build import build
from attnlab.models.decoding import key_value_cache
from attnlab.models.residual import AttentionResidual, HyperConnection, Residual
from attnlab.training.costs import count_flops, plan_figures
from tests.models.test_initialization import Bytes, Reviews, config_of
from tests.support.small_runs import tokens

NORMS = list(product(["pre", "post"], ["layer", "rms"]))
FEED_FORWARDS = ["gelu", "gelu_tanh", "relu", "relu2", "swiglu"]
AXES = [
    {"model__norm": norm, "model__norm_type": norm_type, "model__feed_forward": feed_forward, "model__bias": bias}
    for (norm, norm_type), feed_forward, bias in product(NORMS, FEED_FORWARDS, [True, False])
]
# The remaining options alternate over the product above, so that each occurs with each norm and feed-forward.
OPTIONS = [
    {},
    {"model__attention_bias": True, "model__head_bias": False},
    {"model__initialization": "gpt2", "model__scale_embeddings": False},
]
CASES = [{**axes, **OPTIONS[i % len(OPTIONS)]} for i, axes in enumerate(AXES)]


def label(changes: dict[str, Any]) -> str:
    return " ".join(f"{name.removeprefix('model__')}={value}" for name, value in changes.items())


def logits(config: RunConfig) -> Tensor:
    return build(config, Bytes()).eval()(tokens())[0]


@pytest.mark.parametrize("changes", CASES, ids=label)
def test_a_language_model_of_any_block_is_causal_and_finite(changes: dict[str, Any]) -> None:
    model = build(config_of("dense", model__depth=2, **changes), Bytes())
    x = tokens()
    changed = x.clone()
    changed[:, 6] = (x[:, 6] + 1) % 31
    y, z = model(x)[0], model(changed)[0]
    torch.testing.assert_close(y[:, :6], z[:, :6], rtol=0, atol=0)
    assert not torch.equal(y[:, 6:], z[:, 6:])
    nn.functional.cross_entropy(y.flatten(0, 1), x.flatten()).backward()
    assert y.isfinite().all()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any(), name


def test_rms_norm_follows_zhang() -> None:
    block = next(m for m in build(config_of("dense", model__norm_type="rms"), Bytes()).modules() if isinstance(m, Block))
    norm = block.norm_attention
    assert isinstance(norm, nn.RMSNorm)
    gain = nn.init.normal_(norm.weight)
    x = torch.randn(3, 5, 24, generator=torch.Generator().manual_seed(1))[..., : len(gain)]
    expected = x / ((x**2).sum(-1, keepdim=True) / len(gain) + 1e-5).sqrt() * gain
    torch.testing.assert_close(norm(x), expected)


def normalized(x: Tensor, weights: dict[str, Tensor], name: str, norm_type: str) -> Tensor:
    if norm_type == "none":
        return x
    gain = weights[f"{name}.weight"]
    if norm_type == "rms":
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain
    if norm_type == "dyt":
        return gain * torch.tanh(weights[f"{name}.alpha"] * x) + weights[f"{name}.bias"]
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain + weights[f"{name}.bias"]


def mean_of_outputs(outputs: list[Tensor], query: Tensor) -> Tensor:
    """Attention residuals: the mean of earlier outputs, for one position at a time."""
    mixed = torch.empty_like(outputs[0])
    for place in np.ndindex(*mixed.shape[:2]):
        at = [r[place] for r in outputs]
        logits = torch.stack([(query * r).sum() / ((r * r).mean() + 1e-6).sqrt() for r in at])
        mixed[place] = sum(p * r for p, r in zip(logits.softmax(0), at, strict=True))
    return mixed


def by_hyper_connection(streams: list[Tensor], w: dict[str, Tensor], f: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Hyper-connections around one sublayer: the streams (b, t, dim) after it, one coefficient at a time."""
    n = len(streams)
    normed = [(x - x.mean(-1, True)) / ((x - x.mean(-1, True)).square().mean(-1, True) + 1e-6).sqrt() for x in streams]

    def coefficient(i: int, column: int, scale: str, static: Tensor) -> Tensor:
        return w[scale] * torch.tanh((normed[i] * w["project"][column]).sum(-1, keepdim=True)) + static

    read = sum(coefficient(i, 0, "read_scale", w["read_bias"][i]) * streams[i] for i in range(n))
    y = f(read)  # type: ignore[arg-type] a sum of tensors
    after = []
    for j in range(n):
        mixed = sum(coefficient(i, 1 + j, "read_scale", w["mix_bias"][n * i + j]) * streams[i] for i in range(n))
        after.append(mixed + coefficient(j, 1 + n, "write_scale", w["write_bias"][j]) * y)
    return after


def features_by_streams(model: nn.Module, config: ModelConfig) -> Tensor:
    """Attention residuals and hyper-connections around the sublayers of ``model``, with the norms pre, sandwich and after."""
    weights, backbone = model.state_dict(), model.get_submodule("backbone")
    x = weights["backbone.embedding.weight"][tokens()] * config.dim**0.5
    streams = [x] * (config.residual_streams if config.residual == "hyper" else 1)
    for i, block in enumerate(backbone.blocks):  # type: ignore[arg-type]
        for sublayer, f in (("attention", block.attention), ("feed_forward", block.feed_forward)):
            name = f"backbone.blocks.{i}"
            if sublayer == "feed_forward" and config.ff_mult == 0:
                continue

            def normed(x: Tensor, f: Any = f, place: str = f"{name}.norm_{sublayer}", output: str = sublayer) -> Tensor:
                if config.norm == "after":
                    return normalized(f(x), weights, place, config.norm_type)
                y = f(normalized(x, weights, place, config.norm_type))
                output = f"{place.rpartition('.')[0]}.output_norms.{output}"
                return y if config.norm == "pre" else normalized(y, weights, output, config.norm_type)

            prefix = f"{name}.residuals.{sublayer}."
            own = {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}
            if config.residual == "hyper":
                streams = by_hyper_connection(streams, own, normed)
            else:
                x = mean_of_outputs(streams, own["query"]) if len(streams) > 1 else streams[0]
                streams = [*streams, normed(x)]
    if config.residual == "hyper":
        x = torch.stack(streams).mean(0)
    else:
        x = mean_of_outputs(streams, weights["backbone.ends.residual.query"])
    return normalized(x, weights, "backbone.norm", config.norm_type)


def features_by_formula(model: nn.Module, config: ModelConfig) -> Tensor:
    """Gemma 2's, OLMo 2's and Vaswani's sublayers, written out, around the attention and feed-forward of ``model``."""
    if config.residual in ("attention_residuals", "hyper"):
        return features_by_streams(model, config)
    weights, backbone = model.state_dict(), model.get_submodule("backbone")
    x = x0 = weights["backbone.embedding.weight"][tokens()] * config.dim**0.5
    for i, block in enumerate(backbone.blocks):  # type: ignore[arg-type]
        name = f"backbone.blocks.{i}"
        if config.residual == "x0":
            a, b = (weights[f"{name}.embedding_residual.{scalar}"] for scalar in ("stream", "embedding"))
            x = a * x + b * x0
        for sublayer, f in (("attention", block.attention), ("feed_forward", block.feed_forward)):
            if sublayer == "feed_forward" and config.ff_mult == 0:
                continue

            def norm(x: Tensor, place: str = f"{name}.norm_{sublayer}") -> Tensor:
                return normalized(x, weights, place, config.norm_type)

            stream = x * (config.residual != "none")
            if config.norm == "pre":
                x = stream + f(norm(x))
            elif config.norm == "post":
                x = norm(stream + f(x))
            elif config.norm == "after":
                x = stream + norm(f(x))
            else:
                x = stream + norm(f(norm(x)), f"{name}.output_norms.{sublayer}")
    return x if config.norm == "post" else normalized(x, weights, "backbone.norm", config.norm_type)


STREAMS = [
    {"model__norm": norm, "model__residual": residual, "model__norm_type": norm_type, "model__ff_mult": ff_mult}
    for (norm, residual), (norm_type, ff_mult) in zip(
        product(["pre", "post", "sandwich", "after"], ["plain", "x0", "none"]),
        3 * [("layer", 2), ("rms", 0), ("dyt", 2), ("none", 2)],
        strict=True,
    )
]
SEVERAL_STREAMS = [
    {"model__norm": norm, "model__residual": "attention_residuals", "model__norm_type": norm_type, "model__ff_mult": ff_mult}
    for norm, norm_type, ff_mult in (("pre", "layer", 2), ("sandwich", "rms", 2), ("after", "dyt", 0))
] + [
    {"model__norm": norm, "model__residual": "hyper", "model__residual_streams": n, "model__norm_type": norm_type}
    for norm, norm_type, n in (("pre", "layer", 4), ("sandwich", "none", 3), ("after", "rms", 1))
]


def perturbed(config: RunConfig) -> nn.Module:
    """Return a model in float64 with random values in its gains and scalars."""
    model = build(config, Bytes()).double().eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


@pytest.mark.parametrize("changes", STREAMS + SEVERAL_STREAMS, ids=label)
def test_blocks_follow_their_formula_train_decode_and_reload(changes: dict[str, Any]) -> None:
    config = config_of("dense", **changes)
    model = perturbed(config)
    y = model(tokens())[0]
    expected = model.get_submodule("head")(features_by_formula(model, config.model))
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    y.square().sum().backward()
    assert all(z.grad is not None and z.grad.isfinite().all() and z.grad.any() for z in model.parameters())
    with torch.no_grad(), key_value_cache(model):
        parts = [model(tokens()[:, i : i + 1], start=i)[0] for i in range(tokens().shape[1])]
    torch.testing.assert_close(torch.cat(parts, 1), y, rtol=0, atol=1e-12)
    other = build(config.replace({"seed": 5}), Bytes()).double().eval()
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(tokens())[0], y, rtol=0, atol=0)


@pytest.mark.parametrize("changes", [{"model__residual": "x0"}, {"model__norm": "sandwich"}, *SEVERAL_STREAMS[::3]], ids=label)
def test_memory_continues_a_sequence_over_blocks(changes: dict[str, Any]) -> None:
    """With one block, the memory of a segment gives the outputs of the whole sequence."""
    model = perturbed(config_of("dense", model__depth=1, model__mem_len=11, position="alibi", **changes))
    _, memory = model(tokens()[:, :6])
    torch.testing.assert_close(model(tokens()[:, 6:], memory)[0], model(tokens())[0][:, 6:], rtol=0, atol=1e-12)


class Untransposed(HyperConnection):
    def write(self, streams: Tensor, y: Tensor) -> Tensor:
        mix = self.read_scale * self._dynamic(streams, slice(1, -1)) + self.mix_bias.view(self.streams, self.streams)
        weights = self.write_scale * self._dynamic(streams, slice(-1, None)) + self.write_bias.unsqueeze(-1)
        return mix @ streams + weights * y.unsqueeze(-2)


class OutputSideAlone(HyperConnection):
    def read(self, streams: Tensor) -> Tensor:
        return streams.mean(-2)


class WithoutNorm(AttentionResidual):
    def read(self, streams: Tensor) -> Tensor:
        return (
            streams[..., 0, :]
            if self.query is None
            else ((streams @ self.query).softmax(-1)[..., None, :] @ streams)[..., 0, :]
        )


class ForgetsEmbeddings(AttentionResidual):
    def read(self, streams: Tensor) -> Tensor:
        return super().read(streams if self.query is None else streams[..., 1:, :])


@pytest.mark.parametrize("wrong", [Untransposed, OutputSideAlone, WithoutNorm, ForgetsEmbeddings])
def test_a_mutant_of_a_residual_connection_does_not_follow_the_formula(
    wrong: type[Residual], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = wrong.__mro__[1].__name__
    monkeypatch.setattr(residual, name, wrong)
    config = config_of("dense", model__residual="hyper" if name == "HyperConnection" else "attention_residuals")
    model = perturbed(config)
    expected = model.get_submodule("head")(features_by_formula(model, config.model))
    assert (model(tokens())[0] - expected).abs().max() > 1e-3


def test_several_streams_start_as_plain_residual_connections_or_as_a_mean() -> None:
    plain = logits(config_of("dense", model__norm_type="none"))
    hyper = config_of("dense", model__norm_type="none", model__residual="hyper", model__residual_streams=3)
    torch.testing.assert_close(logits(hyper), plain)
    state = build(hyper, Bytes()).state_dict()
    read = [value.argmax().item() for name, value in state.items() if name.endswith("read_bias")]
    assert read == [0, 1, 2, 0]  # each sublayer another stream than the one before it
    model = build(config_of("dense", model__residual="attention_residuals", model__depth=1, model__ff_mult=0), Bytes()).eval()
    backbone = model.get_submodule("backbone")
    x = model.state_dict()["backbone.embedding.weight"][tokens()] * 12**0.5
    y = x + backbone.blocks[0].attention(backbone.blocks[0].norm_attention(x))  # type: ignore[index, union-attr]
    torch.testing.assert_close(backbone(tokens())[0], backbone.norm(y / 2))  # type: ignore[operator]


def test_streams_stay_in_float32_under_autocast() -> None:
    for name in ("attention_residuals", "hyper"):
        blocks: Any = build(config_of("dense", model__residual=name), Bytes()).get_submodule("backbone.blocks")
        streams = torch.randn(2, 5, 4, 12)
        with torch.autocast("cpu", torch.bfloat16):
            outputs = blocks[1].feed(streams), blocks[1].residuals["attention"].read(streams)
        assert [z.dtype for z in outputs] == [torch.float32] * 2


@pytest.mark.parametrize("name", ["attention_residuals", "hyper"])
def test_post_norm_does_not_combine_with_several_streams(name: str) -> None:
    reason = Block.unsupported(ModelConfig.model_validate({"norm": "post", "residual": name}))
    assert reason and "post" in reason and name in reason


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
@pytest.mark.parametrize("name", ["attention_residuals", "hyper"])
def test_costs_of_a_deep_model_are_those_of_its_blocks(name: str, depth: int) -> None:
    """Attention residuals read more outputs in later blocks: costs do not grow linearly with the depth."""
    config = config_of("dense", model__residual=name, model__depth=depth)
    model = build(config, Bytes()).eval()
    figures = plan_figures(config, Bytes())
    assert figures["parameters"] == sum(p.numel() for p in model.parameters())
    flops = count_flops(lambda: model(torch.ones(1, 24, dtype=torch.long)))
    assert figures["flops_per_token"] == flops // 24


def test_a_bias_of_the_output_projection_alone() -> None:
    assert "attention.out.bias" in biases(model__attention_bias="out")
    assert "attention.project.bias" not in biases(model__attention_bias="out")
    out, all_biases = (build(config_of("dense", model__attention_bias=b), Bytes()).state_dict() for b in ("out", True))
    assert all(torch.equal(value, all_biases[name]) for name, value in out.items())
    reviews = build(config_of("dense", model__attention_bias="out"), Reviews()).state_dict()
    assert reviews["backbone.blocks.1.attention.out.bias"].any()
    with pytest.raises(UserError, match="'out'"):
        config_of("dense", model__attention_bias="outer")


def planned(levels: dict[str, dict[str, Any]], **model: Any) -> Any:
    base = {
        "task": {"name": "pydocs", "length": 17},
        "model": {"dim": 12, "depth": 2, "heads": 3, **model},
        "train": {"steps": 2},
        "machine": {"device": "cpu"},
    }
    base_level = {"variant": "dense"}
    study = {"study": "s", "base": base, "grid": {"block": {"base": base_level, **levels}}, "baseline": {"block": "base"}}
    return plan(study)


def test_the_plan_counts_the_parameters_of_the_block_and_matches_them() -> None:
    dim, inner = 12, 48
    cells = planned(
        {
            "sandwich": {"variant": "dense", "model.norm": "sandwich"},
            "x0": {"variant": "dense", "model.residual": "x0"},
            "attention_residuals": {"variant": "dense", "model.residual": "attention_residuals"},
            "hyper": {"variant": "dense", "model.residual": "hyper", "model.residual_streams": 3},
            "dyt": {"variant": "dense", "model.norm_type": "dyt"},
            "matched": {"variant": {"name": "dense", "match": "params"}, "model.norm": "sandwich"},
            "matched-hyper": {"variant": {"name": "dense", "match": "params"}, "model.residual": "hyper"},
        }
    ).cells
    base, *more, matched, matched_hyper = (cell.parameters for cell in cells)
    blocks, norms = 2, 4
    hyper = 4 * (5 * dim + 9 + 2 * 3 + 2)
    assert [count - base for count in more] == [norms * 2 * dim, 2 * blocks, 4 * dim, hyper, norms + 1]
    assert cells[-1].matched and abs(matched / base - 1) <= 0.01 and abs(matched_hyper / base - 1) <= 0.01
    base, without = (cell.parameters for cell in planned({"without": {"variant": "dense", "model.ff_mult": 0}}).cells)
    assert base - without == blocks * (2 * dim * inner + inner + dim + 2 * dim)


def test_what_has_no_effect_is_run_once_and_what_is_not_supported_is_refused() -> None:
    levels: dict[str, Any] = {
        "none": {"model.norm_type": "none"},
        "none-post": {"model.norm_type": "none", "model.norm": "post"},
    }
    levels["streams"] = {"model.residual_streams": 2}  # of hyper alone
    keys = [run.key for run in planned({name: {"variant": "dense", **level} for name, level in levels.items()}).runs]
    assert len(keys) == 2
    variants = {"no_wo": "no_wo", "gru": "gru", "component": {"name": "dense", "with": ["no_wo"]}}
    levels = {name: {"variant": variant, "model.attention_bias": "out"} for name, variant in variants.items()}
    result = planned(levels)
    assert [cell.name for cell, _ in result.refused] == list(levels)
    with pytest.raises(UserError, match="ff_mult is 0"):
        planned({"x0": {"variant": {"name": "dense", "match": "params"}, "model.residual": "x0"}}, ff_mult=0)


def test_a_block_with_another_forward_refuses_what_it_does_not_read() -> None:
    class Other(Block):
        def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
            return x + self.attend(x, memory, mask)

    for changes in ({"norm": "after"}, {"residual": "none"}, {"residual": "hyper"}, {"ff_mult": 0}):
        reason = Other.unsupported(ModelConfig.model_validate(changes))
        assert reason and f"model.{next(iter(changes))}" in reason
        assert Block.unsupported(ModelConfig.model_validate(changes)) is None
    assert Other.unsupported(ModelConfig(norm="post", norm_type="dyt", residual="x0")) is None


def biases(**changes: Any) -> set[str]:
    names = [name for name, _ in build(config_of("dense", model__depth=1, **changes), Bytes()).named_parameters()]
    return {name.removeprefix("backbone.").removeprefix("blocks.0.") for name in names if name.endswith("bias")}


@pytest.mark.parametrize(
    "changes",
    [
        {"model__norm_type": "rms"},
        *({"model__feed_forward": kind} for kind in FEED_FORWARDS[1:]),
        {"model__bias": False},
        {"model__attention_bias": True},
        {"model__head_bias": False},
        {"model__scale_embeddings": False},
        {"model__initialization": "gpt2"},
    ],
    ids=label,
)
def test_every_option_of_the_block_changes_the_model(changes: dict[str, Any]) -> None:
    assert not torch.allclose(logits(config_of("dense")), logits(config_of("dense", **changes)), rtol=1e-4, atol=1e-6)
