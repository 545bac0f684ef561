"""Components in whole models: connections between blocks, checkpointing, memory, cached decoding and initialization."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab import plan
from attnlab.components import Component, ComponentConfig
from attnlab.errors import UserError
from attnlab.models.base import Model
from attnlab.models.build import build
from attnlab.models.decoding import key_value_cache
from attnlab.registry import COMPONENTS
from tests.models.test_models import Bytes
from tests.support.small_runs import tiny

ALL = ["token_shift", "qk_norm", "log_n", "value_residual", "forget_gate", "softcap", "sink", "gate", "exclusive"]
READERS = [*ALL, "value_embedding"]


def model(components: list[Any], **changes: Any) -> Model:
    """Return a language model of bytes, of three blocks, whose constant parameters have other values."""
    config = tiny(variant={"name": "dense", "with": components}, backend="blocked", **{"model__depth": 3, **changes})
    built = build(config, Bytes())
    torch.manual_seed(4)
    with torch.no_grad():
        for module in built.modules():
            if isinstance(module, Component):
                for parameter in module.parameters():
                    parameter += 0.2 * torch.randn_like(parameter)
    return built


def tokens(t: int = 24) -> Tensor:
    return torch.randint(31, (2, t), generator=torch.Generator().manual_seed(5))


def test_value_residual_connects_each_block_to_the_first() -> None:
    blocks: Any = model(["value_residual"]).stacks[0]
    residuals = [block.attention.components["value_residual"] for block in blocks]
    assert [residual._source for residual in residuals] == [(), (residuals[0],), (residuals[0],)]


def test_checkpointed_activations_give_the_same_gradients() -> None:
    gradients = []
    for enabled in (False, True):
        built = model(READERS, train__activation_checkpointing=enabled).double().train()
        built(tokens())[0].square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in built.named_parameters()})
    for name, expected in gradients[0].items():
        assert expected is not None and expected.abs().max() > 0, name
        torch.testing.assert_close(gradients[1][name], expected)


def test_a_trained_model_can_be_copied() -> None:
    built = model(READERS).double()
    y = built(tokens())[0]
    y.mean().backward()
    torch.testing.assert_close(copy.deepcopy(built)(tokens())[0], y)


def test_decoding_over_a_cache_equals_the_full_forward_pass() -> None:
    built = model(READERS).double().eval()
    with torch.no_grad():
        expected = built(tokens())[0]
        with key_value_cache(built):
            parts = [built(part)[0] for part in tokens().split([5, 1, 1, 17], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), expected)


def test_memory_continues_every_component_across_segments() -> None:
    built = model(ALL, model__mem_len=12, position="relative").double().eval()
    with torch.no_grad():
        _, memory = built(tokens()[:, :12])
        first = built(tokens()[:, 12:], memory)[0]
        _, other = built(tokens()[:, :12] * 0)
        assert not torch.allclose(built(tokens()[:, 12:], other)[0], first)


def test_value_embeddings_read_the_tokens_of_the_model() -> None:
    """Another vector of one token in the table changes the outputs from its first occurrence on."""
    built: Any = model(["value_embedding"], model__depth=1, model__norm_type="none").double().eval()
    component = built.backbone.blocks[0].attention.components["value_embedding"]
    assert component.table.shape == (31, 3, 4) and not component.supports_memory
    y = built(tokens())[0]
    with torch.no_grad():
        component.table[tokens()[0, 3]] += 1
    changed = (built(tokens())[0] - y)[0].abs().amax(-1) > 0
    first = int((tokens()[0] == tokens()[0, 3]).nonzero()[0])
    assert changed.tolist() == [i >= first for i in range(24)]


def test_value_embeddings_without_a_model_or_with_memory_are_refused() -> None:
    with pytest.raises(UserError, match="vocabulary"):
        COMPONENTS.get("value_embedding")(ComponentConfig(dim=8, heads=2, head_dim=4, role="causal", length=5))
    task = {"name": "pydocs", "length": 16, "sampling": "contiguous"}
    base = {"task": task, "train": {"steps": 2}, "model": {"dim": 64, "heads": 2, "depth": 2}}
    embedded = {"name": "dense", "with": ["value_embedding"]}
    grid: dict[str, Any] = {"variant": ["dense", embedded, {**embedded, "match": "params"}]}
    study = {"study": "s", "base": base, "grid": grid, "seeds": [0], "baseline": {"variant": "dense"}}
    dense, more, matched = (cell.parameters or 0 for cell in plan(study).cells)
    assert more - dense == 2 * (256 * 64 + 64 * 2) and abs(matched / dense - 1) < 0.01
    grid = {"variant": ["dense", embedded]}
    cells = plan({**study, "base": {**base, "position": "relative", "model": {"mem_len": 4}}, "grid": grid}).cells
    assert cells[0].refusal is None and "memory" in str(cells[1].refusal)
