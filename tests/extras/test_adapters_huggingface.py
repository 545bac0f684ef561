"""The adapter of transformers: its own code by a small stand-in for the library, and real classes where it is installed."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.extras.adapters import huggingface
from attnlab.testing import check
from attnlab.testing.dispatch import adapt

CHECKED = ["shapes", "causality by value", "padding", "all padding", "dropout share"]
INSTALLED = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
FILES = {
    "__init__.py": "from standin.models.tiny.configuration_tiny import TinyConfig\n",
    "models/__init__.py": "",
    "models/tiny/__init__.py": "",
    "models/tiny/configuration_tiny.py": """
class PreTrainedConfig:
    pass


class TinyConfig(PreTrainedConfig):
    def __init__(self, **fields):
        default = {"hidden_size": 8, "num_attention_heads": 2, "attention_dropout": 0.1, "hidden_dropout": 0.1, "leaks": False}
        vars(self).update({**default, **fields})
        if not isinstance(self.hidden_size, int):
            raise ValueError(f"hidden_size is {self.hidden_size}")
""",
    "models/tiny/modeling_tiny.py": """
import torch
from torch import nn
from torch.nn import functional as F
from standin.models.tiny.configuration_tiny import TinyConfig


class TinyRotaryEmbedding(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, x, position_ids):
        return torch.cos(position_ids), torch.sin(position_ids)


class TinyAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config, self.is_causal = config, True
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)

    def forward(self, hidden_states, position_embeddings, attention_mask=None):
        heads = self.config.num_attention_heads
        q, k, v = (z.unflatten(-1, (heads, -1)).transpose(1, 2) for z in self.qkv(hidden_states).chunk(3, -1))
        weights = (q @ k.mT + attention_mask).softmax(-1)
        weights = F.dropout(weights, self.config.attention_dropout, self.training)
        y = (weights @ v).transpose(1, 2).flatten(2)
        y = F.dropout(y, self.config.hidden_dropout, self.training)
        return y + hidden_states.mean(1, keepdim=True) if self.config.leaks else y, weights


class TinyTextConfig(TinyConfig):
    def __init__(self, **fields):
        super().__init__(**{"text": True, **fields})


class TinyTextAttention(TinyAttention):
    def __init__(self, config: TinyTextConfig, layer_idx):
        assert config.text
        super().__init__(config, layer_idx)


class TinyWeightedAttention(nn.Module):
    def __init__(self, width, config):
        super().__init__()

    def forward(self, hidden_states, attention_mask=None):
        return hidden_states
""",
    "masking_utils.py": """
import torch


def create_causal_mask(config, inputs_embeds, attention_mask, past_key_values):
    t = inputs_embeds.shape[1]
    visible = torch.ones(t, t, dtype=torch.bool).tril()
    visible = visible if attention_mask is None else visible & attention_mask[:, None, None, :]
    return torch.zeros(visible.shape, dtype=inputs_embeds.dtype).masked_fill(~visible, torch.finfo(inputs_embeds.dtype).min)
""",
}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package ``standin`` with the layout of transformers and one model in its style."""
    for name, code in FILES.items():
        path = tmp_path / "standin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(huggingface, "PACKAGE", "standin")


def failures(ref: str, only: list[str] = CHECKED, **options: Any) -> list[str]:
    results = check(adapt(ref, options), only=only)
    assert {result.status for result in results} & {"passed", "failed"}
    return [result.check for result in results if result.status == "failed"]


def test_a_class_is_built_with_the_configuration_of_its_model(library: None) -> None:
    variant = adapt("hf:TinyAttention", {})
    assert (variant.__name__, variant.roles) == ("TinyAttention", {"causal"})
    assert not variant.permutation_equivariant and variant.has_attention_dropout
    assert failures("hf:TinyAttention") == []  # a dropout other than that of the weights would fail "dropout share"
    assert failures("hf:TinyAttention", ["causality by value"], leaks=True) == ["causality by value"]
    assert failures("hf:TinyTextAttention", ["shapes"]) == []  # whose annotation names the configuration


@pytest.mark.parametrize(
    ("ref", "options", "words"),
    [
        ("hf:TinyAttention", {"leak": True}, ["TinyConfig", "'leak'", "leaks"]),
        ("hf:TinyAttention", {"attn_implementation": "flash"}, ["eager", "'flash'"]),
        ("hf:TinyAttention", {"hidden_size": "wide"}, ["TinyConfig", "wide"]),
        ("hf:TinyAttentoin", {}, ["did you mean 'TinyAttention'"]),
        ("hf:OtherAttention", {}, ["no model"]),
        ("hf:TinyWeightedAttention", {}, ["width", "config"]),
    ],
)
def test_a_mistake_is_one_line(library: None, ref: str, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        adapt(ref, options)
    assert error.value.where == ref and all(word in error.value.message for word in words), error.value


@INSTALLED
@pytest.mark.parametrize(
    ("name", "roles", "options"),
    [
        ("GPT2Attention", {"causal", "cross"}, {}),
        ("GPT2Attention", {"causal", "cross"}, {"attn_implementation": "sdpa"}),
        ("LlamaAttention", {"causal"}, {"num_key_value_heads": 1}),
        ("BertSelfAttention", {"causal", "bidirectional"}, {}),
    ],
)
def test_classes_of_transformers_pass(name: str, roles: set[str], options: dict[str, Any]) -> None:
    assert adapt(f"hf:{name}", options).roles == roles
    assert failures(f"hf:{name}", ["shapes", "causality by gradient", "padding", "dropout share"], **options) == []
