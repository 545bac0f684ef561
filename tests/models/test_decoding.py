"""Tests of decoding: cached against uncached, beams against a search over all sequences, and rows that have ended."""

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.models.decoding import decode, key_value_cache, without_cache
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.planning import support
from attnlab.registry import POSITIONS, VARIANTS
from tests.support.small_runs import tiny

BEGIN, END = 1, 2
PARTS = ("encoder", "decoder", "cross")


@dataclass
class Pairs:
    kind: str = "encoder_decoder"
    role: str = "causal"
    length: int = 24
    vocabulary: int = 31
    classes: int = 0
    packages: tuple[str, ...] = ()

    def unsupported(self, config: RunConfig) -> None:
        return None


def configuration(**changes: Any) -> RunConfig:
    """Return an encoder-decoder of ``dense``; sinusoidal positions in encoder and decoder."""
    positions = {"encoder": "sinusoidal", "decoder": "sinusoidal", "cross": "none"}
    sections = {f"model__{name}": {"variant": "dense", "position": positions[name]} for name in PARTS}
    return tiny(**{"position": "sinusoidal", **sections, **changes})


def encoder_decoder(*, vocabulary: int = 31, seed: int = 0, end_bias: float = 0.0, **changes: Any) -> EncoderDecoder:
    """Return a model with random weights, whose predictions depend on every token of both sides.

    Args:
        end_bias: added to the logit of the end token.
    """
    model = build(configuration(**changes), Pairs(vocabulary=vocabulary))
    assert isinstance(model, EncoderDecoder)
    torch.manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.3)
    with torch.no_grad():
        model.head.bias[END] += end_bias
    return model.double().eval()


def sources(b: int = 6, s: int = 7, *, vocabulary: int = 31) -> tuple[Tensor, Tensor]:
    """Return source tokens (b, s) and their mask, with padding at the end, at the beginning and in the middle."""
    tokens = torch.randint(3, vocabulary, (b, s), generator=torch.Generator().manual_seed(4))
    mask = torch.ones(b, s, dtype=torch.bool)
    mask[0, -3:] = mask[1, 0] = mask[2, 3] = False
    return tokens, mask


BUILT_IN_VARIANTS = [name for name in VARIANTS.names() if VARIANTS.get(name).__module__.startswith("attnlab.")]
BUILT_IN_POSITIONS = [name for name in POSITIONS.names() if POSITIONS.get(name).__module__.startswith("attnlab.")]


@pytest.mark.parametrize("variant", BUILT_IN_VARIANTS)
@pytest.mark.parametrize("part", ["decoder", "cross"])
def test_cached_decoding_equals_uncached_decoding(part: str, variant: str) -> None:
    """Every variant in the decoder and in cross-attention, with every position scheme that it supports there.

    The beams, which reorder the cache of a variant and not of a scheme, are compared with the first scheme.
    """
    source, mask = sources()
    compared = 0
    for position in BUILT_IN_POSITIONS:
        changes: dict[str, Any] = {f"model__{part}": {"variant": variant, "position": position}}
        if support.unsupported(configuration(**changes), Pairs()):  # type: ignore[arg-type] a stand-in for a task
            continue
        compared += 1
        model = encoder_decoder(seed=1, end_bias=1.0, **changes)
        limits: dict[str, Any] = {"begin": BEGIN, "end": END, "max_length": 11}
        supports_cache = not without_cache(model.decoder)
        assert supports_cache == VARIANTS.get(variant).supports_cache
        if supports_cache and compared > 1:
            assert_same_features(model, source, mask)
            continue
        greedy, beam = (decode(model, source, mask, **limits, beam=k, cached=False) for k in (1, 3))
        assert decode(model, source, mask, **limits) == greedy, "without `cached`, a cache where it is supported"
        if supports_cache:
            assert decode(model, source, mask, **limits, beam=3, cached=True) == beam
            assert_same_features(model, source, mask)
        else:
            with pytest.raises(ValueError, match="does not support a cache"):
                decode(model, source, mask, **limits, cached=True)
    assert bool(compared) == (("causal" if part == "decoder" else "cross") in VARIANTS.get(variant).roles)


def assert_same_features(model: EncoderDecoder, source: Tensor, mask: Tensor) -> None:
    """Compare the features of given target tokens, computed at once and one position at a time over a cache."""
    target = torch.randint(0, 31, (len(source), 9), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        encoded = model.encode(source, mask)
        whole = model.decode(target, encoded, mask)
        with key_value_cache(model.decoder):
            steps = [model.decode(target[:, :1], encoded, mask)]
            steps += [model.decode(target[:, i : i + 1], encoded[:, :0], mask, start=i) for i in range(1, 9)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=1e-9, atol=1e-9)


def test_a_sentence_is_decoded_alone_as_in_a_batch() -> None:
    """Rows end at different lengths and are removed; the padding of a row does not affect its translation."""
    model, (source, mask) = encoder_decoder(seed=11), sources()
    limits: dict[str, Any] = {"begin": BEGIN, "end": END, "max_length": 12}
    for beam in (1, 4):
        rows = decode(model, source, mask, **limits, beam=beam)
        assert len({len(row) for row in rows}) > 2 and not any(END in row for row in rows)
        alone = [decode(model, source[i : i + 1, mask[i]], **limits, beam=beam)[0] for i in (0, 3, 4, 5)]
        assert [rows[i] for i in (0, 3, 4, 5)] == alone


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.5])
def test_a_wide_beam_finds_the_best_of_all_sequences(length_penalty: float) -> None:
    model, (source, mask) = encoder_decoder(vocabulary=5, seed=3, end_bias=-3.0), sources(4, 5, vocabulary=5)
    expected = []
    for row, real in zip(source, mask, strict=True):
        scores = {}
        for length in range(4):
            for tokens in itertools.product([0, 1, 3, 4], repeat=length):
                scores[tokens] = log_probability(model, row, real, (*tokens, END)) / penalty(length + 1, length_penalty)
        expected.append(list(max(scores, key=lambda tokens: scores[tokens])))
    limits: dict[str, Any] = {"begin": BEGIN, "end": END, "max_length": 4, "length_penalty": length_penalty}
    assert decode(model, source, mask, **limits, beam=4**4) == expected
    assert any(expected), "an empty translation would be found without a search"


@pytest.mark.parametrize("beam", [1, 2, 3])
def test_a_narrow_beam_follows_the_definition(beam: int) -> None:
    model, (source, mask) = encoder_decoder(vocabulary=7, seed=3), sources(5, 6, vocabulary=7)
    limits: dict[str, Any] = {"begin": BEGIN, "end": END, "max_length": 6, "beam": beam}
    expected = [search(model, row, real, beam=beam, max_length=6) for row, real in zip(source, mask, strict=True)]
    assert decode(model, source, mask, **limits) == expected


def search(model: EncoderDecoder, source: Tensor, mask: Tensor, *, beam: int, max_length: int) -> list[int]:
    """Return the translation of one sentence, from the definition: no batch, no cache, no early end."""
    live: list[tuple[int, ...]] = [()]
    finished: dict[tuple[int, ...], float] = {}
    for _ in range(max_length):
        continued = [(*tokens, token) for tokens in live for token in range(model.head.out_features)]
        scores = {tokens: log_probability(model, source, mask, tokens) for tokens in continued}
        ranked = sorted(scores, key=lambda tokens: -scores[tokens])
        finished |= {tokens: scores[tokens] / penalty(len(tokens), 0.6) for tokens in ranked[:beam] if tokens[-1] == END}
        live = [tokens for tokens in ranked if tokens[-1] != END][:beam]
        if len(finished) >= beam:
            break
    best = max(finished, key=lambda tokens: finished[tokens]) if finished else (*live[0], END)
    return list(best[:-1])


def log_probability(model: EncoderDecoder, source: Tensor, mask: Tensor, tokens: tuple[int, ...]) -> float:
    """Return log P(tokens | source) of one sentence."""
    with torch.no_grad():
        logits = model(source[None], torch.tensor([[BEGIN, *tokens[:-1]]]), source_mask=mask[None])[0]
    return sum(logits[i].log_softmax(-1)[token].item() for i, token in enumerate(tokens))


def penalty(length: int, alpha: float) -> float:
    """Wu et al. 2016, equation 14."""
    return (5 + length) ** alpha / (5 + 1) ** alpha


def test_decoding_keeps_the_mode_of_the_model_and_leaves_no_cache() -> None:
    model, (source, mask) = encoder_decoder(model__dropout=0.5).train(), sources()
    limits: dict[str, Any] = {"begin": BEGIN, "end": END, "max_length": 5}
    assert decode(model, source, mask, **limits) == decode(model, source, mask, **limits), "without dropout"
    assert model.training and all(getattr(module, "cache", None) is None for module in model.modules())


@pytest.mark.parametrize("wrong", [{"beam": 0}, {"max_length": 0}, {"length_penalty": -0.1}])
def test_arguments_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    source, mask = sources()
    with pytest.raises(ValueError, match="expected a beam"):
        decode(encoder_decoder(), source, mask, **{"begin": BEGIN, "end": END, "max_length": 5, **wrong})
