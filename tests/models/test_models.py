"""Tests of the models around a variant: effects of the configuration's fields, memory, and padding."""

from dataclasses import dataclass

import pytest
import torch

from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.models.classifier import Classifier
from attnlab.models.language_model import LanguageModel
from tests.support.small_runs import tiny, tokens


@dataclass
class Bytes:
    kind: str = "language_model"
    role: str = "causal"
    length: int = 24
    vocabulary: int = 31
    classes: int = 0


@dataclass
class Reviews:
    kind: str = "classifier"
    role: str = "bidirectional"
    length: int = 24
    vocabulary: int = 31
    classes: int = 3


def language_model(config: RunConfig) -> LanguageModel:
    model = build(config, Bytes())
    assert isinstance(model, LanguageModel)
    return model.eval()


def classifier(config: RunConfig) -> Classifier:
    model = build(config, Reviews())
    assert isinstance(model, Classifier)
    return model.eval()


def test_cells_with_one_seed_start_shared_modules_from_the_same_values() -> None:
    first = language_model(tiny()).state_dict()
    others = [
        tiny(variant="no_wo"),
        tiny(variant="wide"),
        tiny(variant="basic", model__heads=1, position="none"),
        tiny(position="relative"),
        tiny(variant={"name": "strided_sparse", "stride": 4}),
    ]
    for config in others:
        second = language_model(config).state_dict()
        shared = [name for name in first if name in second and "attention." not in name]
        assert len(shared) > 10
        for name in shared:
            assert torch.equal(first[name], second[name]), name
    no_wo = language_model(others[0]).state_dict()
    name = "backbone.blocks.1.attention.project.weight"
    assert torch.equal(first[name], no_wo[name]), "dense and no_wo differ in W_O only"
    assert not torch.equal(first[name], language_model(tiny(seed=1)).state_dict()[name])


def test_building_a_model_moves_no_random_stream() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    language_model(tiny())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("position", ["none", "rotary", "relative", "alibi"])
@pytest.mark.parametrize("variant", ["dense", "transformer_xl", "einsum"])
def test_memory_of_one_block_equals_the_whole_sequence(variant: str, position: str) -> None:
    """With one block, the memory holds the same as the whole sequence; segments need not divide its length."""
    config = tiny(variant=variant, position=position, model__depth=1, model__mem_len=40)
    model = language_model(config).double()
    whole, _ = language_model(tiny(variant=variant, position=position, model__depth=1)).double()(tokens(2, 23))
    memory, segments = None, []
    for segment in tokens(2, 23).split(5, dim=1):
        logits, memory = model(segment, memory)
        segments.append(logits)
    torch.testing.assert_close(torch.cat(segments, dim=1), whole, rtol=1e-9, atol=1e-10)


def test_memory_keeps_so_many_positions_and_no_gradient() -> None:
    model = language_model(tiny(model__mem_len=7))
    _, memory = model(tokens(2, 5))
    assert [m.shape for m in memory] == [(2, 5, 12)] * 2
    _, memory = model(tokens(2, 5), memory)
    assert [m.shape for m in memory] == [(2, 7, 12)] * 2
    assert not any(m.requires_grad for m in memory)


def test_memory_changes_the_output_of_a_deeper_model() -> None:
    model = language_model(tiny(model__mem_len=7))
    _, memory = model(tokens(2, 5))
    assert not torch.allclose(model(tokens(2, 5), memory)[0], model(tokens(2, 5))[0])


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("pool", ["mean", "max", "class"])
def test_padding_changes_no_class(pool: str, norm: str) -> None:
    model = classifier(tiny(model__pool=pool, model__norm=norm, position="learned"))
    short = tokens(2, 7)
    filled = torch.cat([short, torch.full((2, 4), 9)], dim=1)
    mask = torch.ones(2, 11, dtype=torch.bool)
    mask[:, 7:] = False
    torch.testing.assert_close(model(filled, mask), model(short), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(model(filled), model(short), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pool", ["mean", "max", "class"])
def test_a_row_of_nothing_but_padding_is_finite(pool: str) -> None:
    model = classifier(tiny(model__pool=pool, position="learned"))
    mask = torch.ones(2, 11, dtype=torch.bool)
    mask[1] = False
    logits = model(tokens(), mask)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("norm", "post"),
        ("feed_forward", "relu"),
        ("ff_mult", 2.5),
        ("tie_embeddings", True),
        ("heads", 2),
        ("depth", 3),
        ("mem_len", 3),
    ],
)
def test_every_field_of_the_language_model_changes_it(field: str, value: object) -> None:
    """A field without effect would put wrong rows into a table."""
    outcomes = []
    for config in (tiny(), tiny(**{f"model__{field}": value})):
        model = language_model(config)
        _, memory = model(tokens())
        outcomes.append(model(tokens(), memory or None)[0])
    assert not torch.allclose(*outcomes)


@pytest.mark.parametrize("field", ["dropout", "attention_dropout", "embedding_dropout", "word_dropout"])
def test_every_dropout_acts_in_training_only(field: str) -> None:
    model = language_model(tiny(**{f"model__{field}": 0.5}))
    assert torch.equal(model(tokens())[0], model(tokens())[0])
    model.train()
    assert not torch.equal(model(tokens())[0], model(tokens())[0])
    without = language_model(tiny()).train()
    assert torch.equal(without(tokens())[0], without(tokens())[0])


def test_tied_embeddings_are_one_tensor() -> None:
    model = language_model(tiny(model__tie_embeddings=True))
    assert model.head.weight is model.backbone.embedding.weight
    logits = model(tokens(5, 24))[0]
    assert 0.1 < logits.std() < 3, "tied logits start at a sensible size"


def test_checkpointed_activations_give_the_same_gradients() -> None:
    gradients = []
    for enabled in (False, True):
        torch.manual_seed(2)
        model = language_model(tiny(train__activation_checkpointing=enabled, model__dropout=0.3)).train()
        model(tokens())[0].square().mean().backward()
        gradients.append([p.grad for p in model.parameters()])
    for expected, actual in zip(*gradients, strict=True):
        torch.testing.assert_close(expected, actual)
