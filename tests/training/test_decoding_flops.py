"""Tests of the FLOPs of decoding, compared with those of real decoding and with a count by hand."""

from typing import Any

import pytest
import torch

from attnlab.models.decoding import decode
from attnlab.training.costs import count_flops, decoding_flops
from tests.models.test_decoding import BEGIN, END, Pairs, configuration, encoder_decoder

DIM, DEPTH, VOCABULARY = 12, 2, 31


@pytest.mark.parametrize("tokens", [1, 2, 3, 11])
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("decoder", ["dense", "strided_sparse", "convolution"])
def test_the_count_is_that_of_real_decoding(decoder: str, beam: int, tokens: int) -> None:
    changes: dict[str, Any] = {"model__decoder": {"variant": decoder, "position": "none"}, "backend": "reference"}
    model = encoder_decoder(end_bias=-1e9, **changes)  # every hypothesis has the largest length
    source = torch.full((1, tokens), 5)
    real = count_flops(lambda: decode(model, source, begin=BEGIN, end=END, max_length=tokens, beam=beam))
    expected = decoding_flops(configuration(**changes), Pairs(), tokens=tokens, beam=beam)
    assert expected == pytest.approx(real, rel=0.02 if decoder == "strided_sparse" else 1e-9)


def test_a_cached_step_is_counted_by_hand() -> None:
    n, d = 9, DIM
    feed_forward = 8 * d * d
    encoder = n * (4 * d * d + 2 * n * d + feed_forward)
    source = 2 * n * d * d  # keys and values of the source, once
    steps = sum(4 * d * d + 2 * t * d + 2 * d * d + 2 * n * d + feed_forward for t in range(1, n + 1))
    expected = 2 * (DEPTH * (encoder + source + steps) + n * d * VOCABULARY)
    counted = decoding_flops(configuration(backend="reference"), Pairs(), tokens=n)
    assert counted == pytest.approx(expected, rel=5e-4), "products of a single weight are no matrix products"
