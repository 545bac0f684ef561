"""Sampling with a cache draws the tokens that sampling without one draws, and reads each token of a segment once."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.models.build import build
from attnlab.models.language_model import LanguageModel
from attnlab.trained.sampling import sample
from attnlab.variants import Variant
from tests.models.test_models import Bytes
from tests.support.small_runs import tiny

CPU = torch.device("cpu")
T = 13


def make_model(**changes: Any) -> LanguageModel:
    """Return a model with distinct weights, whose samples depend on every token."""
    torch.manual_seed(0)
    model = build(tiny(**changes), Bytes(length=T)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    assert isinstance(model, LanguageModel)
    return model


def draw(
    model: LanguageModel, ids: list[int], *, temperature: float = 0.8, length: int = 20, memory: bool = False
) -> list[int]:
    task: Any = Bytes(length=T)
    return sample(model, ids, task=task, device=CPU, temperature=temperature, length=length, seed=3, has_memory=memory)


def read_lengths(model: LanguageModel) -> list[int]:
    """Return a list to which each call of the model adds the number of its tokens."""
    lengths: list[int] = []
    embedding = model.backbone.embedding
    embedding.register_forward_pre_hook(lambda module, inputs: lengths.append(inputs[0].shape[1]))
    return lengths


@pytest.mark.parametrize("prompt", [1, 5, T, 2 * T + 5])
@pytest.mark.parametrize(
    "changes",
    [
        {"position": "learned"},
        {"position": "rotary"},
        {"position": "alibi", "variant": "no_wo"},
        {"variant": "transformer_xl", "position": "relative", "model__mem_len": 7},
        {"variant": "transformer_xl", "position": "relative", "model__mem_len": 2 * T},
        {"variant": "strided_sparse", "position": "none"},
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_tokens_are_those_without_a_cache(
    changes: dict[str, Any], prompt: int, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids, memory = make_model(**changes), [7 * i % 31 for i in range(prompt)], "model__mem_len" in changes
    drawn = draw(model, ids, temperature=temperature, memory=memory)
    for variant in model.modules():
        if isinstance(variant, Variant):
            monkeypatch.setattr(type(variant), "supports_cache", False)
    lengths = read_lengths(model)
    assert draw(model, ids, temperature=temperature, memory=memory) == drawn
    assert lengths.count(1) <= 2, "every call reads its whole segment"


def test_each_token_of_a_segment_is_read_once() -> None:
    model = make_model()
    lengths = read_lengths(model)
    draw(model, [1, 2, 3, 4, 5], length=12)
    assert lengths == [5, *[1] * 8, T, T, T], "5 to 13 tokens fill the window; then it slides"
    model = make_model(variant="transformer_xl", position="relative", model__mem_len=7)
    lengths = read_lengths(model)
    draw(model, [1, 2, 3, 4, 5], length=12, memory=True)
    assert lengths == [5, *[1] * 8, T, 1, 1, 1], "a full segment is read once more, for its memory"
    assert all(module.cache is None for module in model.modules() if isinstance(module, Variant))


def test_a_model_without_start_is_read_without_a_cache() -> None:
    class Own(LanguageModel):
        def forward(self, tokens: Tensor, memory: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:  # type: ignore[override]
            return super().forward(tokens, memory)

    model = make_model()
    drawn = draw(model, [1, 2, 3])
    model.__class__ = Own
    lengths = read_lengths(model)
    assert draw(model, [1, 2, 3]) == drawn and lengths[:3] == [3, 4, 5]
