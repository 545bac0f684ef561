"""Tests of GPT-2: the network against transformers, and the initial values against the paper and against transformers."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.planning.plan import plan
from attnlab.registry import VARIANTS
from tests.models.test_initialization import BUILT_IN, Bytes, assert_shared, config_of
from tests.oracles import gpt2 as oracle

GPT2: dict[str, Any] = {
    "position": "learned",
    "model__feed_forward": "gelu_tanh",
    "model__attention_bias": True,
    "model__head_bias": False,
    "model__tie_embeddings": True,
    "model__scale_embeddings": False,
    "model__initialization": "gpt2",
}
DEPTH, HEADS = 3, 3


def gpt2_config(variant: str = "dense", **changes: Any) -> RunConfig:
    return config_of(variant, **{**GPT2, "model__depth": DEPTH, **changes})


def randomized(config: RunConfig) -> nn.Module:
    """Return the model in float64 with every parameter moved: gains of one and biases of zero would hide mistakes."""
    model = build(config, Bytes()).double().eval()
    torch.manual_seed(2)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.3)
    return model


@pytest.mark.parametrize("variant", ["dense", "einsum"])
@pytest.mark.parametrize("ff_mult", [4.0, 2.5])
def test_logits_and_gradients_are_those_of_transformers(variant: str, ff_mult: float) -> None:
    pytest.importorskip("transformers", reason="requires transformers: pip install attnlab[oracles]")
    model = randomized(gpt2_config(variant, model__ff_mult=ff_mult))
    weights: dict[str, Tensor] = dict(model.named_parameters())
    tokens = torch.randint(0, 31, (2, 13), generator=torch.Generator().manual_seed(4))
    weighing = torch.randn(2, 13, 31, dtype=torch.float64, generator=torch.Generator().manual_seed(5))

    logits = model(tokens)[0]
    grads = dict(zip(weights, torch.autograd.grad((logits * weighing).sum(), list(weights.values())), strict=True))
    peer = oracle.gpt2({name: z.detach() for name, z in weights.items()}, depth=DEPTH, heads=HEADS, length=Bytes.length)
    logits_too, grads_too = oracle.gradients(peer, tokens, weighing)

    torch.testing.assert_close(logits, logits_too, rtol=1e-10, atol=1e-10)
    named = oracle.named_as_gpt2(grads, depth=DEPTH)
    assert named.keys() == grads_too.keys() | {"lm_head.weight"}
    for name, expected in grads_too.items():
        assert expected.abs().max() > 0, f"{name} gets no gradient"
        torch.testing.assert_close(named[name], expected, rtol=1e-9, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("option", [name for name in GPT2 if name not in ("position", "model__initialization")])
def test_every_option_of_gpt2_is_required(option: str) -> None:
    """Without one of the options the weights do not fit transformers' model, or the logits differ."""
    pytest.importorskip("transformers", reason="requires transformers: pip install attnlab[oracles]")
    changes = {name: value for name, value in GPT2.items() if name != option}
    model = randomized(config_of("dense", model__depth=DEPTH, **changes))
    weights = {name: z.detach() for name, z in model.named_parameters()}
    tokens = torch.randint(0, 31, (2, 13), generator=torch.Generator().manual_seed(4))
    if option == "model__attention_bias":
        assert "backbone.blocks.0.attention.out.bias" not in weights
        return
    with torch.no_grad():
        peer = oracle.gpt2(weights, depth=DEPTH, heads=HEADS, length=Bytes.length)
        assert not torch.allclose(model(tokens)[0], peer(tokens).logits, rtol=1e-6, atol=1e-6)


def initial(variant: str = "dense", **changes: Any) -> dict[str, Tensor]:
    return build(gpt2_config(variant, **changes), Bytes()).state_dict()


def test_initial_values_have_the_distribution_of_the_paper() -> None:
    state = initial(model__dim=96, model__tie_embeddings=False)
    residual = [name for name in state if name.endswith(("attention.out.weight", "feed_forward.narrow.weight"))]
    assert len(residual) == 2 * DEPTH
    for name, z in state.items():
        if "norm" in name or name.endswith("bias"):
            assert torch.equal(z, torch.full_like(z, float(name.endswith("weight")))), name
            continue
        std = 0.02 / sqrt(2 * DEPTH) if name in residual else 0.02
        error = std / sqrt(2 * z.numel())  # of the standard deviation of a normal sample
        assert abs(z.std().item() - std) < 5 * error and abs(z.mean().item()) < 5 * std / sqrt(z.numel()), name


@pytest.mark.parametrize("variant", BUILT_IN)
def test_every_built_in_variant_declares_its_residual_projections(variant: str) -> None:
    """The declared layers alone depend on the depth."""
    shallow, deep = (initial(variant, model__attention_bias=False, model__depth=depth) for depth in (2, 8))
    prefix = "backbone.blocks.0.attention."
    scaled = {f"{prefix}{name}.weight" for name in VARIANTS.get(variant).residual_projections}
    for name in (name for name in shallow if name.startswith(prefix)):
        ratio = 2.0 if name in scaled else 1.0  # sqrt(2 x 8) / sqrt(2 x 2)
        torch.testing.assert_close(shallow[name], ratio * deep[name])
    assert scaled == {name for name in shallow if name == f"{prefix}out.weight"}


@dataclass
class Pairs(Bytes):
    kind: str = "encoder_decoder"


def test_every_sublayer_of_an_encoder_decoder_is_scaled() -> None:
    part = {"variant": "dense", "position": "none"}
    changes = {f"model.{name}": part for name in ("encoder", "decoder", "cross")}
    config = gpt2_config(model__dim=96).replace(changes)
    state = build(config, Pairs()).state_dict()
    std = 0.02 / sqrt(2 * DEPTH)
    scaled = {name for name, z in state.items() if z.dim() == 2 and abs(z.std().item() / std - 1) < 0.05}
    assert scaled == {name for name in state if name.endswith((".out.weight", ".narrow.weight"))}
    assert len(scaled) == DEPTH * (2 + 3)


def test_tensors_of_one_name_start_alike() -> None:
    untied = initial(model__tie_embeddings=False)
    assert_shared(untied, {name: z for name, z in initial().items() if name != "head.weight"}, at_least=30)
    for variant in ("no_wo", "none", "einsum", "transformer_xl"):
        assert_shared(untied, initial(variant, model__tie_embeddings=False), at_least=20)
    narrower, wider = initial(model__dim=24), initial(model__dim=36)
    for name in ("backbone.embedding.weight", "backbone.blocks.0.attention.out.weight"):
        assert torch.equal(narrower[name], wider[name][: len(narrower[name]), :24])
    q, k, _ = narrower["backbone.blocks.0.attention.project.weight"].chunk(3)
    wide_q, wide_k, _ = wider["backbone.blocks.0.attention.project.weight"].chunk(3)
    assert torch.equal(q, wide_q[:24, :24]) and torch.equal(k, wide_k[:24, :24]) and not torch.equal(q, k)


LAB = """
from torch import nn

from attnlab.variants import Projections, Variant, merge_heads


class Undeclared(Variant):
    def __init__(self, config):
        super().__init__(config)
        self.project = Projections(config.dim, config.dim, heads=config.heads)
        self.output = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x, *, context=None, mask=None):
        return self.output(merge_heads(self.attend(*self.project(x, context), mask)))


class Declared(Undeclared):
    residual_projections = ("output",)


class Misspelt(Undeclared):
    residual_projections = ("outputs",)
"""


def test_a_variant_of_ones_own_declares_its_residual_projections(tmp_path: Any) -> None:
    (tmp_path / "lab.py").write_text(LAB)
    study = """\
study: s
base:
  task: {name: pydocs, length: 24}
  model: {dim: 12, depth: 1, heads: 3, initialization: gpt2}
  train: {steps: 2, batch_size: 2}
grid:
  variant: ["lab.py:Undeclared", "lab.py:Declared", "lab.py:Misspelt"]
"""
    (tmp_path / "s.yaml").write_text(study)
    undeclared, declared, misspelt = plan(tmp_path / "s.yaml").cells
    assert declared.refusal is None and declared.parameters
    assert undeclared.refusal and "residual_projections" in undeclared.refusal and "Undeclared" in undeclared.refusal
    assert misspelt.refusal and "'outputs'" in misspelt.refusal and "Misspelt" in misspelt.refusal


def test_biases_of_a_variant_without_them_are_refused(tmp_path: Any) -> None:
    (tmp_path / "lab.py").write_text(LAB)
    study = """\
study: s
base:
  task: {name: pydocs, length: 24}
  model: {dim: 12, depth: 1, heads: 3, attention_bias: true}
  train: {steps: 2, batch_size: 2}
grid:
  variant: ["lab.py:Declared", dense, gru, no_wo]
"""
    (tmp_path / "s.yaml").write_text(study)
    own, dense, gru, no_wo = plan(tmp_path / "s.yaml").cells
    assert dense.refusal is None and no_wo.refusal is None
    for cell in (own, gru):
        assert cell.refusal and "model.attention_bias" in cell.refusal
    assert (dense.parameters or 0) - (no_wo.parameters or 0) == 12 * 12 + 12
