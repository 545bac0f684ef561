"""Encoder-decoder: a sequence is translated to another one.

Vaswani et al. 2017, arXiv:1706.03762, "Attention Is All You Need", section 3.1. The encoder maps the source x to z, and the
decoder predicts each token y_i of the target from z and the tokens before it (teacher forcing in training). A sublayer f has a
residual connection and a norm after (post) or before it (pre, then with a norm after the last block):

    Sublayer(x; f) = Norm(x + f(x))                        post
    Sublayer(x; f) = x + f(Norm(x))                        pre; attnlab.models.block has the other values of ``norm``

    encoder block:    x = Sublayer(x; Attention(x, x))     bidirectional self-attention
                      x = Sublayer(x; FFN)
    decoder block:    y = Sublayer(y; Attention(y, y))     causal: position i attends to positions up to i
                      y = Sublayer(y; Attention(y, z))     encoder-decoder attention: queries of y, keys and values of z
                      y = Sublayer(y; FFN)
    output:           P(y_(i+1) | y_1 .. y_i, x) = softmax(W_P y_i)

With ``model.encoder_pool``, z is one vector (Cho et al. 2014, arXiv:1406.1078; Sutskever et al. 2014, arXiv:1409.3215): each
cross-attention then adds the same vector at every position of the target.

Both sides share one vocabulary and one embedding E, multiplied by sqrt(dim); with ``model.tie_embeddings``
W_P is E as well (section 3.4).

Departures from the paper: W_P has a bias. Variant and position scheme of the three kinds of attention are axes of a study
(``model.encoder``, ``model.decoder``, ``model.cross``).
Glossary: ``encoded`` z; ``encoder.embedding``, ``decoder.embedding`` E; ``head`` W_P.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from attnlab.config.run import ModelConfig, RunConfig
from attnlab.models.backbone import Backbone
from attnlab.models.base import Model, TaskShape
from attnlab.models.block import Block, apply_attention
from attnlab.models.parts import Part, build_attention, part
from attnlab.models.residual import make_residual
from attnlab.nn.layers import POOLS
from attnlab.tasks import Batch
from attnlab.variants import Variant


class DecoderBlock(Block):
    """Masked self-attention, encoder-decoder attention (``cross``) and feed-forward."""

    has_sublayers: ClassVar[bool] = True

    def __init__(self, attention: Variant, cross: Variant, *, config: ModelConfig) -> None:
        super().__init__(attention, config=config)
        self.cross = cross
        self.norm_cross = self.make_norm(config)
        self.add_output_norm(config, "cross")
        self.residuals["cross"] = make_residual(config)

    def forward(self, y: Tensor, encoded: Tensor, mask: Tensor | None, source_mask: Tensor | None) -> Tensor:
        """Apply the block.

        Args:
            y: (b, t, dim), or the streams (b, t, n, dim) of the residual connection.
            encoded: (b, s, dim), the output of the encoder.
            mask: (b, t), boolean, True = a real token of the target; None: all are.
            source_mask: (b, s), boolean, True = a real token of the source; None: all are.

        Returns:
            (b, t, dim), or the streams.
        """
        y = self.join(y, self.attend(y, None, mask), "attention")
        y = self.join(y, apply_attention(self.cross, self.read(y, "cross"), encoded, source_mask), "cross")
        return self.feed(y)


class Decoder(Backbone):
    """The decoder: embeddings of the target, and a stack of decoder blocks."""

    block: type[DecoderBlock]

    def __init__(self, config: RunConfig, task: TaskShape, *, block: type[DecoderBlock]) -> None:
        super().__init__(config, task, block=block, name="decoder")

    def make_block(self, config: RunConfig, task: TaskShape, own: Part) -> DecoderBlock:
        attention, cross = (
            build_attention(config, task, p) for p in (own, replace(part(config, task, "cross"), layer=own.layer))
        )
        return self.block(attention, cross, config=config.model)

    def forward(  # type: ignore[override] the source in place of a memory
        self,
        tokens: Tensor,
        encoded: Tensor,
        source_mask: Tensor | None,
        *,
        mask: Tensor | None = None,
        start: int = 0,
    ) -> Tensor:
        """Compute features of target tokens: (b, t, dim).

        Args:
            tokens: (b, t) integers.
            encoded: (b, s, dim), the output of the encoder.
            source_mask: (b, s), boolean, True = a real token; None: all are.
            mask: (b, t), boolean, True = a real token; None: all are.
            start: the position of the first token, with a cache of the positions before it (``attnlab.models.decoding``).
        """
        y = self.ends.enter(y0 := self._embed(tokens, start=start))
        for block in self.blocks:
            y = self._apply_block(block, self._input_of(block, y, y0), encoded, mask, source_mask)
        return self.norm(self.ends.leave(y))


class EncoderDecoder(Model):
    """Logits of each next token of the target, given the source and the target's tokens before it.

    Attributes:
        block: the class of the encoder's blocks.
        decoder_block: the class of the decoder's blocks.
    """

    kind: ClassVar[str] = "encoder_decoder"
    decoder_block: ClassVar[type[DecoderBlock]] = DecoderBlock

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__()
        self.encoder_pool = POOLS.get(config.model.encoder_pool or "")
        self.encoder = Backbone(config, task, block=self.block, name="encoder")
        self.decoder = Decoder(config, task, block=self.decoder_block)
        self.decoder.embedding = self.encoder.embedding
        self.head = nn.Linear(config.model.dim, task.vocabulary, bias=config.model.head_bias)
        if config.model.tie_embeddings:
            self.head.weight = self.encoder.embedding.weight

    @classmethod
    def roles(cls, task: TaskShape) -> dict[str, str]:
        return {"encoder": "bidirectional", "decoder": "causal", "cross": "cross"}

    @property
    def stacks(self) -> tuple[nn.ModuleList, ...]:
        return (self.encoder.blocks, self.decoder.blocks)

    def attention_layers(self, part: str) -> list[Variant]:
        """Return the attention of each block of a part: ``encoder``, ``decoder`` or ``cross``."""
        blocks = self.encoder.blocks if part == "encoder" else self.decoder.blocks
        return [block.cross if part == "cross" else block.attention for block in blocks]  # type: ignore[misc] modules

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Return the output of the encoder (b, s, dim) for ``source`` (b, s); mask (b, s), True = a real token.

        With ``model.encoder_pool``, it is (b, 1, dim).
        """
        encoded = self.encoder(source, mask=source_mask)[0]
        return encoded if self.encoder_pool is None else self.encoder_pool(encoded, source_mask)[:, None]

    def decode(
        self,
        tokens: Tensor,
        encoded: Tensor,
        source_mask: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        start: int = 0,
    ) -> Tensor:
        """Return the features (b, t, dim) of target tokens, which ``head`` maps to logits; see ``Decoder.forward``."""
        return self.decoder(tokens, encoded, source_mask if self.encoder_pool is None else None, mask=mask, start=start)

    def forward(
        self, source: Tensor, tokens: Tensor, *, source_mask: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Predict the token after each token of the target.

        Args:
            source: (b, s) integers.
            tokens: (b, t) integers: the begin token, and the target without its last token.
            source_mask: (b, s), boolean, True = a real token; None: all are.
            mask: (b, t), boolean, True = a real token; None: all are.

        Returns:
            The logits (b, t, vocabulary).
        """
        return self.head(self.decode(tokens, self.encode(source, source_mask), source_mask, mask=mask))

    def forward_batch(self, batch: Batch, memory: list[Tensor] | None = None) -> tuple[Tensor, None]:
        assert batch.source is not None, "the batch of an encoder-decoder has a source"
        return self(batch.source, batch.inputs, source_mask=batch.source_mask, mask=batch.mask), None

    @classmethod
    def example_batch(cls, task: TaskShape, rows: int, *, device: torch.device, padded: bool = False) -> Batch:
        tokens = torch.ones(rows, task.length, dtype=torch.long, device=device)
        mask = torch.ones(rows, task.length, dtype=torch.bool, device=device) if padded else None
        return Batch(tokens, tokens, mask, source=tokens, source_mask=mask)
