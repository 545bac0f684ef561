"""Models with one mistake each, which the contract of models must catch."""

from typing import Any

import torch
from torch import Tensor, nn

from attnlab.config.run import RunConfig
from attnlab.models.base import Model, TaskShape
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.language_model import LanguageModel
from attnlab.models.residual import AttentionResidual, HyperConnection
from attnlab.nn.cache import KeyValueCache
from attnlab.variants import Variant


class ExtraToken(EncoderDecoder):
    """Predicts one token more than the vocabulary has."""

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__(config, task)
        self.head = nn.Linear(config.model.dim, task.vocabulary + 1)


class FutureThroughCross(EncoderDecoder):
    """Adds the target, of which a decoder must not see the future, to the keys and values of cross-attention."""

    def forward(
        self, source: Tensor, tokens: Tensor, *, source_mask: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        real = torch.ones_like(tokens) if mask is None else mask.long()
        target = (self.decoder.embedding(tokens) * real[..., None]).mean(1, keepdim=True)
        encoded = self.encode(source, source_mask) + target
        return self.head(self.decode(tokens, encoded, source_mask, mask=mask))


class Bidirectional(EncoderDecoder):
    """Has no causal mask in the decoder."""

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__(config, task)
        for module in self.decoder.modules():
            if isinstance(module, Variant):
                module.causal = False


class DropsLastToken(EncoderDecoder):
    """Encodes the source without its last token."""

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Tensor:
        encoded = super().encode(source[:, :-1], None if source_mask is None else source_mask[:, :-1])
        return nn.functional.pad(encoded, (0, 0, 0, 1))


class EncodesPadding(EncoderDecoder):
    """Attends to the padding of the source in the encoder."""

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Tensor:
        return super().encode(source)


class AttendsToSourcePadding(EncoderDecoder):
    """Attends to the padding of the source in cross-attention."""

    def decode(self, tokens: Tensor, encoded: Tensor, source_mask: Tensor | None = None, **options: Any) -> Tensor:
        return super().decode(tokens, encoded, None, **options)


class AttendsToTargetPadding(EncoderDecoder):
    """Attends to the padding of the target in the decoder."""

    def decode(self, tokens: Tensor, encoded: Tensor, source_mask: Tensor | None = None, **options: Any) -> Tensor:
        return super().decode(tokens, encoded, source_mask, **{**options, "mask": None})


class CentersRows(EncoderDecoder):
    """Subtracts the mean over the batch."""

    def forward(self, source: Tensor, tokens: Tensor, **masks: Any) -> Tensor:
        logits = super().forward(source, tokens, **masks)
        return logits - logits.mean(0)


class IdleLayer(EncoderDecoder):
    """Has a layer that it does not use."""

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__(config, task)
        self.idle = nn.Linear(2, 2)


class ShiftsPositions(EncoderDecoder):
    """Places a token that is decoded with a cache one position too early."""

    def decode(self, *inputs: Any, start: int = 0, **options: Any) -> Tensor:
        return super().decode(*inputs, start=max(0, start - 1), **options)


class ForgetsStart(EncoderDecoder):
    """Places every token that is decoded with a cache at position 0."""

    def decode(self, *inputs: Any, start: int = 0, **options: Any) -> Tensor:
        return super().decode(*inputs, **options)


class ForgetsFirst(EncoderDecoder):
    """Hides the first target token from later ones."""

    def decode(self, *inputs: Any, start: int = 0, **options: Any) -> Tensor:
        features = super().decode(*inputs, start=start, **options)
        if start == 0:  # as if the first call had not been cached
            for module in self.decoder.modules():
                cache = module.cache if isinstance(module, Variant) and module.causal else None
                if isinstance(cache, KeyValueCache) and cache.values is not None:
                    cache.values = torch.zeros_like(cache.values)
        return features


class StaysAtTheStart(LanguageModel):
    """Embeds every new token at position 0."""

    def forward(self, tokens: Tensor, memory: list[Tensor] | None = None, *, start: int = 0) -> tuple[Tensor, list[Tensor]]:
        return super().forward(tokens, memory)


class NeverAdvances(LanguageModel):
    """Resets each cache to the first call's after later ones."""

    def forward(self, tokens: Tensor, memory: list[Tensor] | None = None, *, start: int = 0) -> tuple[Tensor, list[Tensor]]:
        caches = [module.cache for module in self.modules() if isinstance(module, Variant)]
        before = [dict(vars(cache)) for cache in caches if cache is not None]
        outputs = super().forward(tokens, memory, start=start)
        if start:
            for cache, kept in zip(caches, before, strict=True):
                vars(cache).update(kept)
        return outputs


class LeaksUnderAutocast(LanguageModel):
    """Adds the next token to the logits, in training under autocast alone."""

    def forward(self, tokens: Tensor, memory: list[Tensor] | None = None, *, start: int = 0) -> tuple[Tensor, list[Tensor]]:
        logits, memory = super().forward(tokens, memory, start=start)
        if self.training and torch.is_autocast_enabled("cpu"):
            logits = logits + nn.functional.one_hot(tokens.roll(-1, 1), logits.shape[-1])
        return logits, memory


class MixesRowsInFloat32(LanguageModel):
    """Subtracts the mean over the batch in float32, without gradients."""

    def forward(self, tokens: Tensor, memory: list[Tensor] | None = None, *, start: int = 0) -> tuple[Tensor, list[Tensor]]:
        logits, memory = super().forward(tokens, memory, start=start)
        return (logits - logits.mean(0) if logits.dtype == torch.float32 and not self.training else logits), memory


class FixedEmbeddingResidual(LanguageModel):
    """Mixes the embeddings into the blocks without training the scalars."""

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__(config.replace({"model.residual": "x0"}), task)
        self.backbone._input_of = self._input_of  # type: ignore[method-assign]

    def _input_of(self, block: nn.Module, x: Tensor, x0: Tensor) -> Tensor:
        mix = block.embedding_residual
        return mix.stream.detach() * x + mix.embedding.detach() * x0  # type: ignore[union-attr]


class FirstEmbeddingOfCall(FixedEmbeddingResidual):
    """Mixes the first embedding of a call into all positions."""

    def _input_of(self, block: nn.Module, x: Tensor, x0: Tensor) -> Tensor:
        return block.embedding_residual(x, x0[:, :1])  # type: ignore[operator]


class FixedQueries(LanguageModel):
    """Attends to earlier outputs without training the queries."""

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__(config.replace({"model.residual": "attention_residuals"}), task)
        for module in self.modules():
            if isinstance(module, AttentionResidual) and module.query is not None:
                module.register_parameter("fixed", nn.Parameter(module.query.detach()))
                module.query = None


class FirstStreamsOfCall(LanguageModel):
    """Writes the streams of the first position of a call to all positions."""

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__(config.replace({"model.residual": "hyper"}), task)
        for module in self.modules():
            if isinstance(module, HyperConnection):
                module.write = self._write(module.write)  # type: ignore[method-assign]

    @staticmethod
    def _write(write: Any) -> Any:
        return lambda streams, y: write(streams[:, :1].expand_as(streams), y)


MODEL_MUTANTS: dict[str, list[type[Model]]] = {
    "shapes": [ExtraToken],
    "causality": [FutureThroughCross, Bidirectional],
    "source": [DropsLastToken],
    "padding": [EncodesPadding, AttendsToSourcePadding, AttendsToTargetPadding],
    "batch independence": [CentersRows],
    "gradient coverage": [IdleLayer, FixedEmbeddingResidual, FixedQueries],
    "decoding": [
        ShiftsPositions,
        ForgetsStart,
        ForgetsFirst,
        StaysAtTheStart,
        NeverAdvances,
        FirstEmbeddingOfCall,
        FirstStreamsOfCall,
    ],
    "precisions and modes": [LeaksUnderAutocast, MixesRowsInFloat32],
}
NECESSARY: dict[type[Model], set[str]] = {  # further checks that necessarily detect the same mistake
    Bidirectional: {"decoding"},
    CentersRows: {"padding"},
    DropsLastToken: {"padding"},  # which token is the last depends on the padding
}
