"""Tests of models whose blocks have several variants (`model.layers`)."""

import re
from typing import Any

import pytest
import torch

from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.models.decoding import key_value_cache
from attnlab.training.optim import layer_numbers
from tests.models.test_initialization import Bytes, Reviews, config_of
from tests.support.small_runs import tokens


def hybrid(*entries: str, position: str = "none", **changes: Any) -> RunConfig:
    """Return the resolved configuration of a pattern; the entries have the same position scheme."""
    config = config_of("dense", position="none", model__depth=5, **changes)
    layers = [{"name": name, "position": position if name == "dense" else "none"} for name in entries]
    fields: dict[str, Any] = config.model_dump() | {"variant": None, "position": None}
    return RunConfig.model_validate(fields | {"model": fields["model"] | {"layers": layers}})


def test_block_i_has_the_entry_i_of_the_repeated_pattern() -> None:
    model: Any = build(hybrid("gru", "gru", "dense"), Bytes())
    assert [type(block.attention).__name__ for block in model.stacks[0]] == ["Gru", "Gru", "Dense", "Gru", "Gru"]
    assert model(tokens())[0].shape == (2, 11, 31)


def test_blocks_start_from_the_values_that_they_have_in_a_model_of_one_variant() -> None:
    """Cells with one seed are paired: a block of a pattern has the values of the same block of the pure models."""
    mixed = build(hybrid("gru", "dense"), Bytes()).state_dict()
    pure = [build(config_of(name, position="none", model__depth=5), Bytes()).state_dict() for name in ("gru", "dense")]
    assert set(mixed) <= set(pure[0]) | set(pure[1])
    for name, value in mixed.items():
        assert any(name in state and torch.equal(value, state[name]) for state in pure), name


def test_a_pattern_of_one_variant_is_the_model_of_that_variant() -> None:
    pattern, variant = hybrid("dense", position="rotary"), config_of("dense", position="rotary", model__depth=5)
    assert torch.equal(build(pattern, Bytes())(tokens())[0], build(variant, Bytes())(tokens())[0])


def test_a_scheme_of_an_entry_acts_in_its_blocks_alone() -> None:
    model: Any = build(hybrid("gru", "dense", position="rotary"), Bytes())
    schemes = [type(block.attention.position).__name__ for block in model.stacks[0]]
    assert schemes == ["NoneType", "Rotary", "NoneType", "Rotary", "NoneType"]
    assert model.backbone.position is None


def test_blocks_that_run_three_times_are_three_copies_of_them_with_the_same_weights() -> None:
    once = config_of("dense", position="rotary", model__depth=2)
    shared: Any = build(once.model_copy(update={"model": once.model.model_copy(update={"loops": 3})}), Bytes()).double()
    copies: Any = build(config_of("dense", position="rotary", model__depth=6), Bytes()).double()
    state = shared.state_dict()
    copies.load_state_dict({name: state[re.sub(r"blocks\.(\d)", _of_first_two, name)] for name in copies.state_dict()})
    x = tokens()
    torch.testing.assert_close(shared(x)[0], copies(x)[0])
    for model in (shared, copies):
        model(x)[0].logsumexp(-1).sum().backward()
    sums: dict[str, Any] = dict.fromkeys(state, 0)
    for name, p in copies.named_parameters():
        sums[re.sub(r"blocks\.(\d)", _of_first_two, name)] += p.grad
    for name, p in shared.named_parameters():
        torch.testing.assert_close(p.grad, sums[name])
    with pytest.raises(ValueError, match="several times"), key_value_cache(shared):
        pass


def _of_first_two(match: re.Match[str]) -> str:
    return f"blocks.{int(match[1]) % 2}"


def test_layers_with_different_caches_decode_together() -> None:
    """Each layer keeps what it needs: states, angles, keys of an indexer, transformed keys and attention to chosen blocks."""
    for entries in (("kda", "mamba3", "path", "log_linear", "dense"), ("dsa", "gated_delta2", "delta_product", "delta", "dsa")):
        model: Any = build(hybrid(*entries), Bytes()).double().eval()
        x = tokens()
        with torch.no_grad(), key_value_cache(model):
            parts = [model(part)[0] for part in x.split([5, 1, 5], dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), model(x)[0])


def test_a_pattern_is_causal_and_every_block_gets_a_gradient() -> None:
    model: Any = build(hybrid("gru", "convolution", "dense"), Bytes()).eval()
    x = tokens()
    changed = x.clone()
    changed[:, 6] = (x[:, 6] + 1) % 31
    y, z = model(x)[0], model(changed)[0]
    torch.testing.assert_close(y[:, :6], z[:, :6], rtol=0, atol=1e-6)
    assert not torch.equal(y[:, 6:], z[:, 6:])
    y.square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any(), name


def test_memory_continues_a_segment_in_every_block() -> None:
    """With a memory that holds all earlier positions, two segments give the features of one."""
    model: Any = build(hybrid("dense", "none", model__mem_len=11), Bytes()).eval()
    x = tokens(t=22)
    first, memory = model(x[:, :11])
    second, memory = model(x[:, 11:], memory)
    dim = model.backbone.embedding.embedding_dim
    assert len(memory) == 5 and all(m.shape == (2, 11, dim) for m in memory)
    torch.testing.assert_close(torch.cat([first, second], dim=1), model(x)[0], rtol=1e-5, atol=1e-5)


def test_decoding_with_caches_equals_the_whole_forward_pass() -> None:
    model: Any = build(hybrid("dense", "none"), Bytes()).eval()
    x = tokens()
    blocks = model.stacks[0]
    h = model.backbone._embed(x)
    with key_value_cache(blocks):
        steps = []
        for part in (h[:, :4], h[:, 4:5], h[:, 5:]):
            for block in blocks:
                part = block(part, None, None)
            steps.append(part)
    for block in blocks:
        h = block(h, None, None)
    torch.testing.assert_close(torch.cat(steps, dim=1), h, rtol=1e-5, atol=1e-5)


def test_a_classifier_of_a_pattern_ignores_padding() -> None:
    model: Any = build(hybrid("gru", "dense"), Reviews()).eval()
    x = tokens(t=9)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 6:] = False
    changed = x.clone()
    changed[1, 6:] = 3
    torch.testing.assert_close(model(x, mask), model(changed, mask), rtol=0, atol=1e-6)


def test_layers_are_numbered_through_the_pattern() -> None:
    numbers = layer_numbers(build(hybrid("gru", "dense"), Bytes()))
    assert {number for name, number in numbers.items() if ".blocks." in name} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("entries", [("gru", "dense"), ("dense", "no_wo")])
def test_gpt2_initial_values_scale_the_projections_that_there_are(entries: tuple[str, ...]) -> None:
    model: Any = build(hybrid(*entries, model__initialization="gpt2"), Bytes())
    dense = [block.attention for block in model.stacks[0] if type(block.attention).__name__ == "Dense"]
    assert dense and all(attention.out.weight.std() < 0.02 / 2 for attention in dense)
