"""Comparison of the encoder-decoder with ``torch.nn.Transformer``: outputs and every gradient, with padding on both sides."""

import math

import pytest
import torch
from torch import Tensor, nn

from attnlab.models.encoder_decoder import EncoderDecoder
from tests.models.test_decoding import encoder_decoder
from tests.oracles.positions import sinusoid

HEADS, DEPTH, DIM, VOCABULARY = 3, 2, 12, 31
NAMES = {"attention": "self_attn", "cross": "multihead_attn", "feed_forward.widen": "linear1", "feed_forward.narrow": "linear2"}
PROJECTIONS = {"project.weight": "in_proj_weight", "project.bias": "in_proj_bias", "out.": "out_proj."}


class Translator(nn.Module):
    """``torch.nn.Transformer`` between an embedding with sinusoids and an output layer (Vaswani et al. 2017, section 3.4)."""

    def __init__(self, norm: str, *, tied: bool) -> None:
        super().__init__()
        pre = norm == "pre"
        self.embedding = nn.Embedding(VOCABULARY, DIM)
        self.transformer = nn.Transformer(
            DIM, HEADS, DEPTH, DEPTH, 4 * DIM, dropout=0.0, activation="gelu", batch_first=True, norm_first=pre
        )
        if not pre:  # a post-norm block ends with a norm
            self.transformer.encoder.norm = self.transformer.decoder.norm = None
        self.head = nn.Linear(DIM, VOCABULARY)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor, mask: Tensor) -> Tensor:
        y = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=torch.ones(target.shape[1], target.shape[1]).triu(1).bool(),
            src_key_padding_mask=~source_mask,
            tgt_key_padding_mask=~mask,
            memory_key_padding_mask=~source_mask,
        )
        return self.head(y)

    def embed(self, tokens: Tensor) -> Tensor:
        waves = torch.stack([sinusoid(p, DIM) for p in range(tokens.shape[1])])
        return self.embedding(tokens) * math.sqrt(DIM) + waves


def torch_name(name: str) -> str:
    """Return the name in ``Translator`` of a parameter of the encoder-decoder."""
    if name == "encoder.embedding.weight":
        return "embedding.weight"
    side, *_ = name.split(".")
    numbers = {"norm_attention": "norm1", "norm_cross": "norm2", "norm_feed_forward": "norm2" if side == "encoder" else "norm3"}
    for ours, theirs in {"blocks": "layers", **numbers, **NAMES, **PROJECTIONS}.items():
        name = name.replace(f".{ours}", f".{theirs}")
    return name if side == "head" else f"transformer.{name}"


def pair(norm: str, *, tied: bool) -> tuple[EncoderDecoder, Translator]:
    """Return an encoder-decoder and a ``Translator`` with the same weights, all of them drawn at random."""
    torch.set_default_dtype(torch.float64)  # sinusoids are rounded to it
    try:
        model = encoder_decoder(model__norm=norm, model__tie_embeddings=tied, model__attention_bias=True)
        oracle = Translator(norm, tied=tied).double()
    finally:
        torch.set_default_dtype(torch.float32)
    weights = {torch_name(name): parameter for name, parameter in model.named_parameters()}
    assert weights.keys() == dict(oracle.named_parameters()).keys()
    oracle.load_state_dict(weights, strict=not tied)
    return model, oracle


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # a fast path of torch that needs no gradients
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_outputs_and_gradients_are_those_of_torch(norm: str, tied: bool) -> None:
    model, oracle = pair(norm, tied=tied)
    generator = torch.Generator().manual_seed(4)
    source = torch.randint(VOCABULARY, (3, 7), generator=generator)
    target = torch.randint(VOCABULARY, (3, 5), generator=generator)
    source_mask, mask = torch.ones(3, 7, dtype=torch.bool), torch.ones(3, 5, dtype=torch.bool)
    source_mask[0, -2:] = source_mask[1, :3] = False
    mask[0, -1:] = mask[2, -3:] = False
    weighing = torch.randn(3, 5, VOCABULARY, dtype=torch.float64, generator=generator) * mask[..., None]

    ours = model(source, target, source_mask=source_mask, mask=mask)
    theirs = oracle(source, target, source_mask, mask)

    torch.testing.assert_close(ours[mask], theirs[mask], rtol=1e-9, atol=1e-9)
    (ours * weighing).sum().backward()
    (theirs * weighing).sum().backward()
    parameters = dict(oracle.named_parameters())
    for name, parameter in model.named_parameters():
        gradient = parameters[torch_name(name)].grad
        assert parameter.grad is not None and gradient is not None and parameter.grad.abs().max() > 0, name
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-8, atol=1e-8, msg=lambda m, n=name: f"{n}: {m}")
