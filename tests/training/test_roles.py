"""Tests of the roles of parameters: which decay, and which optimizers of matrices update."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from attnlab import plan, register_variant
from attnlab.config.run import RunConfig
from attnlab.models.base import Model
from attnlab.models.build import build
from attnlab.nn.roles import Role, parameter_roles
from attnlab.registry import COMPONENTS, POSITIONS, VARIANTS
from attnlab.training.optim import build_optimizer
from attnlab.variants import AttentionConfig
from attnlab.variants.dense import Dense
from tests.models.test_initialization import Bytes, Reviews
from tests.support.small_runs import tiny

MATRICES = {
    "Projections.weight",
    "ShiftedProjections.weight",
    "HyperConnection.project",
    "GRU.weight_ih_l0",
    "GRU.weight_hh_l0",
}
MATRICES |= {"LSTM.weight_ih_l0", "LSTM.weight_hh_l0", "Conv1d.weight"}
EMBEDDINGS = {"Learned.table", "ValueEmbedding.table"}
OTHERS = {  # parameters of a built-in class that is no layer of PyTorch
    *("ShortConvolution.weight", "ShortConvolution.bias", "CausalShift.weight", "Conv1d.bias", "Projections.bias"),
    *("Backbone.class_token", "GRU.bias_ih_l0", "GRU.bias_hh_l0", "LSTM.bias_ih_l0", "LSTM.bias_hh_l0"),
    *("DynamicTanh.alpha", "DynamicTanh.weight", "DynamicTanh.bias"),
    *("EmbeddingResidual.stream", "EmbeddingResidual.embedding", "AttentionResidual.query"),
    *(f"HyperConnection.{name}" for name in ("read_scale", "write_scale", "read_bias", "mix_bias", "write_bias")),
    *("Relative.u", "Relative.v", "Pope.delta", "T5.table", "Cope.embedding"),
    *("Kerple.rho_1", "Kerple.rho_2", "Fire.c", "Fire.factor"),
    *("QKNorm.gain", "Sink.bias", "Temperature.log", "ValueResidual.own", "ValueResidual.first", "LogN.gain"),
    *("Differential.lambda_q", "Differential.lambda_k", "LogLinear.level_scale"),
    *(f"{name}.{leaf}" for name in ("GatedDelta", "Kda", "GatedDelta2", "DeltaProduct") for leaf in ("step_bias", "A_log")),
    *(f"{name}.{leaf}" for name in ("Ssd", "LogLinear") for leaf in ("step_bias", "A_log", "skip")),
    *(f"Mamba3.{leaf}" for leaf in ("query_bias", "key_bias", "step_bias", "skip")),
}
REQUIRED = {"kv_heads": {"count": 1}, "window": {"size": 3}, "moba": {"size": 3}}  # options without a default


def built_in(registry: Any) -> list[str]:
    return [name for name in registry.names() if registry.get(name).__module__.startswith("attnlab.")]


def built_in_configs() -> Iterator[tuple[RunConfig, Any]]:
    """Yield configurations that together contain every built-in class, each with its task."""
    for name in built_in(VARIANTS):
        cls = VARIANTS.get(name)
        options = {"gated": True} if name == "delta_product" else {}
        position = cls.default_position or "rotary"
        task = Bytes() if "causal" in cls.roles else Reviews()
        heads = 3 if cls.has_heads else 1
        yield tiny(variant={"name": name, **options}, position=position, model__heads=heads), task
    for name in built_in(COMPONENTS):
        yield tiny(variant={"name": "dense", "with": [{"name": name, **REQUIRED.get(name, {})}]}), Bytes()
    for name in built_in(POSITIONS):
        variant = "transformer_xl" if name == "relative" else "dense"
        yield tiny(variant=variant, position=name), Bytes()
    for residual in ("x0", "attention_residuals", "hyper"):
        yield tiny(model__residual=residual, model__attention_bias=True), Bytes()
    yield tiny(model__norm_type="dyt", model__embedding_norm=True), Bytes()
    yield tiny(model__pool="class"), Reviews()


def roles_of_leaves(model: Model) -> Iterator[tuple[str, Role]]:
    """Yield ``Class.parameter`` of each parameter of a module that is not PyTorch's linear layer, embedding or norm."""
    modules = dict(model.named_modules())
    for name, role in parameter_roles(model).items():
        owner, _, leaf = name.rpartition(".")
        if not isinstance(modules[owner], nn.Linear | nn.Embedding | nn.LayerNorm | nn.RMSNorm):
            yield f"{type(modules[owner]).__name__}.{leaf}", role


def test_every_parameter_of_a_built_in_class_has_a_known_role() -> None:
    """A class that defines a parameter of its own adds it here, and states its role if it is a matrix or an embedding."""
    found: dict[str, set[str]] = {"matrix": set(), "embedding": set(), "other": set()}
    for config, task in built_in_configs():
        for leaf, role in roles_of_leaves(build(config, task)):
            found[role].add(leaf)
    assert found["matrix"] == MATRICES
    assert found["embedding"] == EMBEDDINGS
    assert found["other"] == OTHERS


def test_linear_layers_embeddings_and_norms_have_the_roles_of_their_type() -> None:
    layers = nn.ModuleDict({"linear": nn.Linear(2, 3), "embedding": nn.Embedding(3, 2), "norm": nn.LayerNorm(2)})
    assert parameter_roles(layers) == {
        "linear.weight": "matrix",
        "linear.bias": "other",
        "embedding.weight": "embedding",
        "norm.weight": "other",
        "norm.bias": "other",
    }
    attention = parameter_roles(nn.MultiheadAttention(4, 2, kdim=3, vdim=3))
    assert {name for name, role in attention.items() if role == "matrix"} == {
        "q_proj_weight",
        "k_proj_weight",
        "v_proj_weight",
        "out_proj.weight",
    }


def groups_of(config: RunConfig, task: Any) -> dict[str, dict[str, Any]]:
    model = build(config, task)
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)]: group for group in build_optimizer(model, config.train).param_groups for p in group["params"]}


def test_no_gain_bias_kernel_or_table_decays_or_is_updated_as_a_matrix() -> None:
    for config, task in built_in_configs():
        config = config.replace({"train.optimizer": {"name": "muon"}, "train.weight_decay": 0.1})
        groups = groups_of(config, task)
        for name, role in parameter_roles(build(config, task)).items():
            if name in groups:  # trained
                assert (groups[name]["weight_decay"] > 0) == (role != "other"), name
                assert not groups[name]["hidden"] or role == "matrix", name


class Stacked(Dense):
    """A variant with a matrix of its own."""

    parameter_roles = {"mix": "matrix"}

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.mix = nn.Parameter(torch.eye(config.dim))
        self.unstated = nn.Parameter(torch.eye(config.dim))


def test_a_class_of_the_user_states_its_matrices() -> None:
    if "stacked_roles" not in VARIANTS.names():
        register_variant("stacked_roles")(Stacked)
    groups = groups_of(tiny(variant="stacked_roles", train__optimizer="muon", train__weight_decay=0.1), Bytes())
    stated, unstated = (groups[f"backbone.blocks.0.attention.{name}"] for name in ("mix", "unstated"))
    assert stated["hidden"] and stated["weight_decay"] == 0.1
    assert not unstated["hidden"] and unstated["weight_decay"] == 0.0


def test_the_plan_counts_the_parameters_of_each_use() -> None:
    base = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 16, "depth": 3, "heads": 2}, "train": {"steps": 3}}
    (cell,) = plan({"study": "roles", "base": base, "grid": {"variant": [{"name": "dense", "with": ["short_conv"]}]}}).cells
    blocks = 3 * (3 * 16 * 16 + 16 * 16 + 2 * 4 * 16 * 16)
    kernels = 3 * 3 * 3 * 16
    assert cell.parameters is not None
    assert (cell.hidden_parameters, cell.matrix_parameters, cell.embedding_parameters) == (blocks, 256 * 16, 256 * 16 + 16 * 16)
    assert kernels <= cell.parameters - blocks - 2 * 256 * 16 - 16 * 16 < blocks
