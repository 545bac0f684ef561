"""Tests of the axes of the block: norms, feed-forward networks, biases, the scale of embeddings, and their combinations."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.config.run import RunConfig
from attnlab.models.block import Block
from attnlab.models.build import build
from tests.models.test_initialization import Bytes, Reviews, config_of

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


def tokens(b: int = 2, t: int = 11) -> Tensor:
    return torch.randint(0, 31, (b, t), generator=torch.Generator().manual_seed(4))


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


@pytest.mark.parametrize(("norm", "norm_type"), NORMS)
def test_every_norm_of_the_model_is_of_the_chosen_type(norm: str, norm_type: str) -> None:
    model = build(config_of("dense", model__norm=norm, model__norm_type=norm_type), Bytes())
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm)]
    assert len(norms) == (5 if norm == "pre" else 4)
    assert {type(m) for m in norms} == {nn.RMSNorm if norm_type == "rms" else nn.LayerNorm}


def test_rms_norm_follows_zhang() -> None:
    block = next(m for m in build(config_of("dense", model__norm_type="rms"), Bytes()).modules() if isinstance(m, Block))
    norm = block.norm_attention
    assert isinstance(norm, nn.RMSNorm)
    gain = nn.init.normal_(norm.weight)
    x = torch.randn(3, 5, 24, generator=torch.Generator().manual_seed(1))[..., : len(gain)]
    expected = x / ((x**2).sum(-1, keepdim=True) / len(gain) + 1e-5).sqrt() * gain
    torch.testing.assert_close(norm(x), expected)


def biases(**changes: Any) -> set[str]:
    names = [name for name, _ in build(config_of("dense", model__depth=1, **changes), Bytes()).named_parameters()]
    return {name.removeprefix("backbone.").removeprefix("blocks.0.") for name in names if name.endswith("bias")}


def test_each_bias_has_one_option() -> None:
    of_block = {"feed_forward.widen.bias", "feed_forward.narrow.bias", "norm_attention.bias", "norm_feed_forward.bias"}
    default = of_block | {"norm.bias", "head.bias"}
    assert biases() == default
    assert biases(model__bias=False) == {"head.bias"}
    assert biases(model__head_bias=False) == default - {"head.bias"}
    assert biases(model__attention_bias=True) == default | {"attention.project.bias", "attention.out.bias"}
    assert biases(model__norm_type="rms") == {name for name in default if "norm" not in name}
    assert biases(model__feed_forward="swiglu") == default | {"feed_forward.gate.bias"}


def test_a_classifier_can_lack_the_bias_of_its_head() -> None:
    state = build(config_of("dense", model__head_bias=False), Reviews()).state_dict()
    assert "head.weight" in state and "head.bias" not in state


def test_embeddings_without_a_scale_are_the_rows_of_their_table() -> None:
    """Without positions, the input of the first block is the embedding."""
    inputs: list[Tensor] = []
    for scaled in (False, True):
        model = build(config_of("dense", position="none", model__scale_embeddings=scaled), Bytes())
        block = next(m for m in model.modules() if isinstance(m, Block))
        block.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
        model(tokens())
        rows = model.state_dict()["backbone.embedding.weight"][tokens()]
        torch.testing.assert_close(inputs[-1], rows * rows.shape[-1] ** 0.5 if scaled else rows)


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
