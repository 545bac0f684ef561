"""Greedy and beam decoding of an encoder-decoder, and sampling from it.

A beam of k hypotheses Y is extended token by token by its most probable continuations. Finished hypotheses, those that end with
the end token, are compared by (Wu et al. 2016, arXiv:1609.08144, equation 14, without the coverage penalty)

    s(Y) = log P(Y | X) / lp(Y)        lp(Y) = ((5 + |Y|) / 6)^alpha

where |Y| counts the tokens of Y, the end token included. A beam of 1 is greedy decoding. With a temperature T, each token is
drawn from softmax(logits / T): it is the largest of logits / T with independent Gumbel noise (Maddison et al. 2014,
arXiv:1411.0030, section 2), for which a beam of 1 searches.

Departures from the paper: no pruning by score. A sentence is finished when it has k finished hypotheses, or when no
continuation of the others can have a higher score.
Cost: one call of the decoder for each token of the longest row. With cached keys and values, a call processes one position of
each row; rows of finished sentences are removed.

With caches, each call of a module computes its new positions alone.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab.components import Component
from attnlab.models.backbone import Backbone
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.nn.cache import Cache
from attnlab.nn.shift import ShortConvolution
from attnlab.variants import Variant

logger = logging.getLogger(__name__)


class KeyValueCaches:
    """The caches of all attention layers of a module; ``key_value_cache`` creates them."""

    def __init__(self, caches: list[Cache]) -> None:
        self._caches = caches

    @property
    def nbytes(self) -> int:
        """The bytes that all caches hold now."""
        return sum(cache.nbytes for cache in self._caches)

    def tensors(self) -> dict[tuple[int, str], Tensor]:
        """Return the tensors that the caches hold now, by the number of the layer and the attribute of its cache."""
        return {(i, name): tensor for i, cache in enumerate(self._caches) for name, tensor in cache.tensors().items()}

    def is_bounded(self, name: tuple[int, str]) -> bool:
        """Return whether the cache of a tensor, named as in ``tensors``, declares that it is ``bounded``."""
        return self._caches[name[0]].bounded

    def select(self, rows: Tensor) -> None:
        """Keep ``rows`` (n,) of the batch in every cache, in their order; a row may occur several times."""
        for cache in self._caches:
            cache.select(rows)


@contextmanager
def key_value_cache(module: nn.Module) -> Iterator[KeyValueCaches]:
    """Give every attention layer of ``module`` and its components a cache (``Variant.new_cache``) in this context.

    A call with the inputs of new positions, and with a mask of all positions, returns the outputs that a call with all inputs
    has at the new positions. Cross-attention reads its whole context in the first call and an empty one, (b, 0, dim), in the
    further calls.

    Raises:
        ValueError: a variant or a component does not support a cache (``Variant.supports_cache``).

    Examples:
        >>> import torch
        >>> from attnlab.registry import VARIANTS
        >>> from attnlab.variants import AttentionConfig
        >>> attention = VARIANTS.get("dense")(AttentionConfig(dim=8, heads=2, role="causal"))
        >>> x = torch.randn(1, 5, 8)
        >>> with key_value_cache(attention):
        ...     y = torch.cat([attention(x[:, :4]), attention(x[:, 4:])], dim=1)
        >>> torch.allclose(y, attention(x), atol=1e-6)
        True
    """
    if names := without_cache(module):
        raise ValueError(f"{', '.join(names)} does not support a cache")
    layers = [layer for layer in module.modules() if isinstance(layer, Variant | Component | ShortConvolution)]
    for layer in layers:
        layer.cache = layer.new_cache()  # type: ignore[assignment] of the class that the layer declares
    try:
        yield KeyValueCaches([layer.cache for layer in layers if layer.cache is not None])
    finally:
        for layer in layers:
            layer.cache = None


def without_cache(module: nn.Module) -> list[str]:
    """Return the names of the variants and components in ``module`` that do not support a cache, or one in shared blocks."""
    layers = [layer for layer in module.modules() if isinstance(layer, Variant | Component)]
    stacks = (layer for layer in module.modules() if isinstance(layer, Backbone))
    shared = {"a block that is run several times" for stack in stacks if stack.loops > 1}
    return sorted(shared | {type(layer).__name__ for layer in layers if not layer.supports_cache})


def decode(
    model: EncoderDecoder,
    source: Tensor,
    source_mask: Tensor | None = None,
    *,
    begin: int,
    end: int,
    max_length: int,
    beam: int = 1,
    length_penalty: float = 0.6,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    cached: bool | None = None,
) -> list[list[int]]:
    """Return the tokens of the best hypothesis for each row of ``source``, without ``begin`` and ``end``.

    Where no hypothesis has ended after ``max_length`` tokens, the most probable one is returned as it is.

    Args:
        model: in any mode; decoding is without dropout.
        source: (b, s) integers, the tokens of the encoder.
        source_mask: (b, s), boolean, True = a real token; None: all are.
        begin: the token that the decoder starts from.
        end: the token that ends a hypothesis.
        max_length: the largest number of tokens that are generated for a row, ``end`` included.
        beam: k, the number of hypotheses; 1 takes the most probable token at each position.
        length_penalty: alpha, at least 0; 0 compares by probability alone.
        temperature: T, the divisor of the logits in sampling, with a beam of 1; 0 takes the most probable tokens.
        generator: of the samples, on the CPU.
        cached: keep keys and values of earlier positions. None: if every attention layer of the decoder supports it
            (``Variant.supports_cache``).

    Raises:
        ValueError: ``beam`` or ``max_length`` is less than 1, ``length_penalty`` or ``temperature`` is negative,
            ``temperature`` is not 0 with a larger beam, or ``cached`` is True and a variant does not support a cache.
    """
    if beam < 1 or max_length < 1 or length_penalty < 0:
        expected = "expected a beam and a max_length of at least 1 and a length_penalty of at least 0"
        raise ValueError(f"decode: {expected}, got {beam}, {max_length} and {length_penalty}")
    if temperature and (beam > 1 or temperature < 0):
        raise ValueError(f"decode: expected a temperature above 0 with a beam of 1, got {temperature} and {beam}")
    if cached is None:
        names = without_cache(model.decoder)
        cached = not names
        if names:
            logger.info("decoding without a cache of keys and values: %s has none", ", ".join(names))
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            encoded = model.encode(source, source_mask)
            search = _BeamSearch(len(source), beam=beam, length_penalty=length_penalty, max_length=max_length, end=end)
            with nullcontext() if not cached else key_value_cache(model.decoder) as caches:
                steps = _Steps(model, encoded, source_mask, beam=beam, begin=begin, caches=caches)
                steps.temperature, steps.generator = temperature, generator
                return search.run(steps)
    finally:
        model.train(training)


class _Steps:
    """The decoder, one position further with each call.

    Attributes:
        tokens: (rows, n), the inputs of the decoder so far: ``begin`` and the tokens of the hypothesis of each row.
        temperature, generator: as for ``decode``.
    """

    temperature = 0.0
    generator: torch.Generator | None = None

    def __init__(
        self,
        model: EncoderDecoder,
        encoded: Tensor,
        source_mask: Tensor | None,
        *,
        beam: int,
        begin: int,
        caches: KeyValueCaches | None = None,
    ) -> None:
        self._model, self._caches = model, caches
        self._encoded = encoded.repeat_interleave(beam, dim=0)
        self._source_mask = None if source_mask is None else source_mask.repeat_interleave(beam, dim=0)
        self.tokens = torch.full((len(self._encoded), 1), begin, dtype=torch.long, device=encoded.device)

    def log_probabilities(self) -> Tensor:
        """Return the log-probabilities (rows, vocabulary) of the token after each row, of which the largest is the next token.

        With a temperature, they come from softmax(logits / T) with Gumbel noise.
        """
        if self._caches is None:
            features = self._model.decode(self.tokens, self._encoded, self._source_mask)
        else:
            start = self.tokens.shape[1] - 1
            features = self._model.decode(self.tokens[:, start:], self._encoded, self._source_mask, start=start)
            self._encoded = self._encoded[:, :0]  # its keys and values are cached
        logits = self._model.head(features[:, -1]).float()
        if not self.temperature:
            return logits.log_softmax(-1)
        noise = torch.empty(logits.shape).exponential_(generator=self.generator).log().neg()
        return (logits / self.temperature).log_softmax(-1) + noise.to(logits.device)

    def extend(self, rows: Tensor, tokens: Tensor) -> None:
        """Keep ``rows`` (n,), in their order, and append one of ``tokens`` (n,) to each."""
        if len(rows) != len(self.tokens) or not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            self.tokens, self._encoded = self.tokens[rows], self._encoded[rows]
            self._source_mask = None if self._source_mask is None else self._source_mask[rows]
            if self._caches is not None:
                self._caches.select(rows)
        self.tokens = torch.cat([self.tokens, tokens[:, None]], dim=1)


@dataclass
class _Finished:
    """The finished hypotheses of one sentence: their number, and the best of them."""

    count: int = 0
    score: float = float("-inf")
    tokens: Tensor | None = None


class _BeamSearch:
    """The search for the best hypotheses of several sentences.

    A beam has k rows for each sentence that is not finished; rows of one sentence are neighbors.
    """

    def __init__(self, sentences: int, *, beam: int, length_penalty: float, max_length: int, end: int) -> None:
        self._beam, self._alpha, self._max_length, self._end = beam, length_penalty, max_length, end
        self._finished = [_Finished() for _ in range(sentences)]
        self._open = list(range(sentences))  # sentences that are not finished, in the order of the rows

    def run(self, steps: _Steps) -> list[list[int]]:
        """Return the tokens of the best hypothesis of each sentence."""
        k, device = self._beam, steps.tokens.device
        scores = torch.full((len(self._open), k), float("-inf"), device=device)
        scores[:, 0] = 0.0  # all rows of a sentence are equal at first, and one of them is enough
        for length in range(1, self._max_length + 1):
            if not self._open:
                break
            parents, tokens, scores = self._step(steps, scores, length)
            best = scores.amax(1).tolist()
            still_open = [i for i, sentence in enumerate(self._open) if not self._is_finished(sentence, best=best[i])]
            self._open = [self._open[i] for i in still_open]
            kept = torch.tensor(still_open, dtype=torch.long, device=device)
            rows, scores = (kept[:, None] * k + parents[kept]).flatten(), scores[kept]
            steps.extend(rows, tokens[kept].flatten())
        for i, sentence in enumerate(self._open):
            if not self._finished[sentence].count:
                self._finished[sentence].tokens = steps.tokens[i * k + int(scores[i].argmax())]
        return [finished.tokens[1:].tolist() if finished.tokens is not None else [] for finished in self._finished]

    def _step(self, steps: _Steps, scores: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Record the hypotheses that end with token number ``length``; return the best k others of each sentence.

        Args:
            scores: (sentences, k), the log-probabilities of the hypotheses.

        Returns:
            Their parents, as numbers within the beam, their last tokens, and their log-probabilities: (sentences, k) each.
        """
        k = self._beam
        log_probabilities = steps.log_probabilities()
        vocabulary = log_probabilities.shape[1]
        continued = (scores.flatten()[:, None] + log_probabilities).view(len(scores), k * vocabulary)
        top, index = continued.topk(min(2 * k, k * vocabulary))  # at most k of them end: each parent has one end token
        parents, tokens = index // vocabulary, index % vocabulary
        ended = tokens == self._end
        for i, rank in (ended[:, :k] & (top[:, :k] > float("-inf"))).nonzero().tolist():
            self._add_finished(self._open[i], float(top[i, rank]), steps.tokens[i * k + int(parents[i, rank])], length)
        top, order = top.masked_fill(ended, float("-inf")).topk(k)
        return parents.gather(1, order), tokens.gather(1, order), top

    def _add_finished(self, sentence: int, log_probability: float, tokens: Tensor, length: int) -> None:
        finished, score = self._finished[sentence], log_probability / self._penalty(length)
        finished.count += 1
        if score > finished.score:
            finished.score, finished.tokens = score, tokens

    def _is_finished(self, sentence: int, *, best: float) -> bool:
        """Return True when no continuation of a hypothesis with the log-probability ``best`` can be the result."""
        finished = self._finished[sentence]
        return finished.count >= self._beam or finished.score >= best / self._penalty(self._max_length)

    def _penalty(self, length: int) -> float:
        return ((5 + length) / 6) ** self._alpha
