"""Comparison of whole models with an oracle, in output and every gradient: absolute positions, memory over several blocks."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from attnlab.models.build import build
from attnlab.models.language_model import LanguageModel
from tests.oracles import model as oracle
from tests.support.small_runs import tiny


@dataclass
class Bytes:
    kind: str = "language_model"
    role: str = "causal"
    length: int = 24
    vocabulary: int = 17
    classes: int = 0


def ours(variant: str, position: str, norm: str, *, memory: int, depth: int) -> LanguageModel:
    config = tiny(variant=variant, position=position, model__depth=depth, model__mem_len=memory, model__norm=norm)
    torch.set_default_dtype(torch.float64)  # sinusoids are rounded to it
    try:
        made = build(config, Bytes())
    finally:
        torch.set_default_dtype(torch.float32)
    assert isinstance(made, LanguageModel)
    torch.manual_seed(2)
    for parameter in made.parameters():  # gains of one and biases of zero would hide mistakes
        nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.3)
    return made


def assert_same(model: LanguageModel, position: str, norm: str, *, memory: int, depth: int, segment: int) -> None:
    """Compare the logits of every segment, and the gradient of a loss over all segments for every parameter."""
    tokens = torch.randint(0, 17, (2, 13), generator=torch.Generator().manual_seed(4))
    named: dict[str, Tensor] = dict(model.named_parameters())
    weighing = torch.randn(2, 13, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(5))

    kept: list[Tensor] | None = None
    segments = []
    for part in tokens.split(segment, dim=1):
        logits, kept = model(part, kept or None)
        segments.append(logits)
    y = torch.cat(segments, dim=1)

    rows = []
    for row in tokens:
        before: list[Tensor] | None = None
        parts = []
        for part in row.split(segment):
            options = {"depth": depth, "heads": 3, "position": position, "norm": norm, "mem_len": memory}
            logits, before = oracle.language_model(part, before if memory else None, named, **options)
            parts.append(logits)
        rows.append(torch.cat(parts))
    y_too = torch.stack(rows)

    torch.testing.assert_close(y, y_too, rtol=1e-9, atol=1e-10)
    gradients = torch.autograd.grad((y * weighing).sum(), list(named.values()))
    oracle_gradients = torch.autograd.grad((y_too * weighing).sum(), list(named.values()))
    for name, a, b in zip(named, gradients, oracle_gradients, strict=True):
        assert a.abs().max() > 0, f"{name} gets no gradient"
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("position", ["none", "learned", "sinusoidal", "rotary", "alibi", "relative"])
def test_a_model_of_two_blocks_follows_vaswani(position: str, norm: str) -> None:
    model = ours("dense", position, norm, memory=0, depth=2)
    assert_same(model, position, norm, memory=0, depth=2, segment=13)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("variant", "position"), [("transformer_xl", "relative"), ("dense", "rotary"), ("einsum", "alibi")])
def test_memory_of_several_blocks_follows_dai(variant: str, position: str, norm: str) -> None:
    """Segments of 5, 5 and 3, memory of 7: the gradient stops where a segment begins, the hidden states are carried over."""
    model = ours(variant, position, norm, memory=7, depth=3)
    assert_same(model, position, norm, memory=7, depth=3, segment=5)
