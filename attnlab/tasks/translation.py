"""Translation of sentences: the common base of ``multi30k`` and ``translation``.

Both languages share one vocabulary of subwords, which is learned on ``train`` alone. A sentence ends with an end token; the
decoder reads a begin token and the target without its last token, and predicts the target (teacher forcing). A sentence of more
than ``length`` tokens is cut at its end and then has no end token; ``data_notes`` counts these. Training batches have pairs of
similar lengths, measured by the longer side, and each pair once per epoch.

The metrics are BLEU and chrF of decoded translations, computed by sacrebleu on text: subwords are joined, and the references
are the lines of the file, of which nothing is cut. ``loss`` is in nats per target token, without label smoothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab._util.rng import derive_seed
from attnlab.errors import UserError
from attnlab.tasks import IGNORED, SPLITS, Batch, Task, datasets, known_split, whole_number
from attnlab.tasks.bucketing import by_length, padding_share, shuffled_by_length
from attnlab.tasks.parallel_text import (
    BEGIN,
    END,
    PADDING,
    SIDES,
    SPECIAL_TOKENS,
    Sentences,
    cut_note,
    load_side,
    load_text,
    shared_note,
    write_side,
)
from attnlab.tasks.reference_scores.base import Reference
from attnlab.tasks.reference_scores.translation import translation_references
from attnlab.tasks.subwords import learn
from attnlab.tasks.translation_scores import score_translations, signatures

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from attnlab._util.metrics import Score
    from attnlab.config.run import RunConfig

logger = logging.getLogger(__name__)

FORMAT = 1  # of the prepared files
ORDER_SEED = 0  # of the order in which a limit selects pairs


class TranslationTask(Task):
    """Translate sentences. A subclass defines ``contents``, ``count`` and ``lines``.

    Args:
        vocabulary: the most subwords, including [PAD] = 0, [BOS] = 1, [EOS] = 2 and [UNK] = 3.
        length: tokens of a sentence that are read, with its end token.
        lower: learn, translate and score lower-cased text.
        label_smoothing: share of the targets' probability that the training loss spreads over the vocabulary.
        beam: hypotheses that decoding keeps; 1 is greedy.
        length_penalty: exponent of the length in the score of a hypothesis; for beams only.
    """

    kind: Literal["encoder_decoder"] = "encoder_decoder"  # type: ignore[assignment]
    role: Literal["causal", "bidirectional"] = "causal"
    metric = "bleu"
    direction: Literal["min", "max"] = "max"
    other_metrics = {"chrf": "max", "loss": "min"}
    item_metric = "loss"

    def __init__(
        self,
        *,
        vocabulary: int,
        length: int,
        lower: bool,
        label_smoothing: float,
        beam: int,
        length_penalty: float,
    ) -> None:
        self.length = whole_number(length, name="length", least=2)
        self.vocabulary = whole_number(vocabulary, name="vocabulary", least=len(SPECIAL_TOKENS) + 1)
        self.lower = lower
        if not 0 <= label_smoothing < 1:
            raise UserError(f"label_smoothing: expected a number of at least 0 and less than 1, got {label_smoothing!r}")
        self.label_smoothing = label_smoothing
        self.beam = whole_number(beam, name="beam")
        if not 0 <= length_penalty < float("inf"):
            raise UserError(f"length_penalty: expected a number of at least 0, got {length_penalty!r}")
        self.length_penalty = length_penalty
        self._place: Path | None = None
        self._pairs: dict[str, tuple[Sentences, Sentences]] = {}
        self._epoch: tuple[tuple[int, int, int], list[np.ndarray]] | None = None

    @property
    def name(self) -> str:
        """Prefix of the folder of the prepared data."""
        return "translation"

    # ------------------------------------------------------------ defined by a subclass

    def contents(self) -> str:
        """Return a checksum of the files and of everything that decides which of their lines belong to a split."""
        raise NotImplementedError

    def count(self, split: str) -> int:
        """Return the number of pairs of a split; callable before ``prepare``."""
        raise NotImplementedError

    def lines(self) -> dict[tuple[str, str], list[str]]:
        """Return the sentences of each (split, side)."""
        raise NotImplementedError

    def available(self) -> bool:
        """Return True if ``lines`` needs no download."""
        return True

    # ------------------------------------------------------------ data

    def identity(self) -> str:
        return f"{self.name} sha256:{self._digest()}"

    def _digest(self) -> str:
        """Return a checksum of everything that determines the prepared files, the vocabulary among them."""
        key = {
            "contents": self.contents(),
            "vocabulary": self.vocabulary,
            "lower": self.lower,
            "tokenizers": version("tokenizers"),
            "format": FORMAT,
        }
        return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()

    def prepare(self) -> None:
        if self._place is None:
            self._place = datasets.prepared(self.name, {"digest": self._digest()}, self._build)

    def _build(self, place: Path) -> None:
        lines = self.lines()
        train = [sentence for side in SIDES for sentence in lines["train", side]]
        logger.info("%s: learning the subwords of %s sentences", self.name, f"{len(train):,}")
        vocabulary = learn("bpe", train, vocabulary=self.vocabulary, special_tokens=SPECIAL_TOKENS, lower=self.lower)
        vocabulary.save(str(place / "vocabulary.json"))
        vocabulary.encode_special_tokens = True  # "[EOS]" in a sentence is text
        for (split, side), sentences in lines.items():
            write_side(place, f"{split}-{side}", sentences, vocabulary)

    def pairs(self, split: str) -> tuple[Sentences, Sentences]:
        """Return the source and target sentences of one split, memory-mapped."""
        if known_split(split) not in self._pairs:
            source, target = (load_side(self._prepared, f"{split}-{side}") for side in SIDES)
            self._pairs[split] = source, target
        return self._pairs[split]

    def text(self, split: str, side: str) -> list[str]:
        """Return the sentences of one side of a split as text."""
        return load_text(self._prepared, f"{known_split(split)}-{side}")

    @property
    def _prepared(self) -> Path:
        self.prepare()
        assert self._place is not None
        return self._place

    def _lengths(self, split: str) -> np.ndarray:
        """Return the tokens of each pair of a split that are read, (n, 2)."""
        return np.minimum(np.stack([side.lengths for side in self.pairs(split)], axis=1), self.length)

    def data_notes(self) -> list[str]:
        """Return the signatures of the scores; and if the data are here, the numbers of cut sentences and of shared sources."""
        notes = [f"scores of translations by sacrebleu: {signatures(lower=self.lower)}"]
        if self.available():
            notes += [note for split in SPLITS if (note := cut_note(self.pairs(split), self.length, split=split))]
            texts = [self.text(split, "source") for split in SPLITS]
            notes += [note for note in map(shared_note, SPLITS[1:], texts[1:], [texts[0]] * 2) if note]
        return notes

    def unsupported(self, config: RunConfig) -> str | None:
        if config.model.mem_len:
            return "memory is for language models: the sentences of a batch are not consecutive"
        if config.evaluate.protocol != "segment":
            return f"the {config.evaluate.protocol} protocol is for language models: sentences are read whole"
        if config.evaluate.lengths:
            return "evaluate.lengths is for language models and classifiers: sentences have lengths of their own"
        return None

    # ------------------------------------------------------------ batches

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-self.count("train") // batch_size)

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        """Return pairs of similar lengths: each pair once per epoch, in batches whose sizes differ by at most one."""
        epoch, number = divmod(step, self.steps_per_epoch(batch_size))
        return self.batch("train", self._order(epoch, seed, batch_size)[number])

    def _order(self, epoch: int, seed: int, batch_size: int) -> list[np.ndarray]:
        key = (epoch, seed, batch_size)  # with the task's own options, everything that determines the batches
        if self._epoch is None or self._epoch[0] != key:
            rng = np.random.default_rng(derive_seed(seed, "order", epoch))
            longest = self._lengths("train").max(axis=1)
            self._epoch = key, shuffled_by_length(longest, rng, batch_size=batch_size)
        return self._epoch[1]

    def eval_batches(
        self,
        split: str,
        *,
        batch_size: int,
        limit: int | None = None,
        protocol: str = "segment",
        stride: int | None = None,
    ) -> Iterator[Batch]:
        """Yield pairs from the longest to the shortest; a batch has at most ``batch_size * length`` tokens on each side.

        ``limit`` selects that many of the pairs, always the same ones, at random.
        """
        if protocol != "segment":
            raise UserError(f"sentences are read whole: there is no protocol {protocol!r}")
        chosen = self._chosen(split, limit)
        for batch in by_length(self._lengths(split)[chosen].max(axis=1), tokens=batch_size * self.length):
            yield self.batch(split, chosen[batch])

    def _chosen(self, split: str, limit: int | None) -> np.ndarray:
        """Return the numbers of the pairs that an evaluation reads."""
        return np.random.default_rng(ORDER_SEED).permutation(self.count(split))[:limit]

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int:
        count = self.count(split)
        return min(count, limit or count) * self.length

    def batch(self, split: str, numbers: np.ndarray) -> Batch:
        """Return these pairs of a split, each side padded to the longest of the batch."""
        source, target = self.pairs(split)
        tokens, real = source.padded(numbers, length=self.length, fill=PADDING)
        targets, predicted = target.padded(numbers, length=self.length, fill=IGNORED)
        first = np.full((len(numbers), 1), BEGIN)
        inputs = np.where(predicted, np.concatenate([first, targets[:, :-1]], axis=1), PADDING)
        return Batch(
            torch.from_numpy(inputs),
            torch.from_numpy(targets),
            _mask(predicted),
            source=torch.from_numpy(tokens),
            source_mask=_mask(real),
            items=torch.from_numpy(numbers.astype(np.int64)),
        )

    def padding(self, *, batch_size: int, seed: int = 0, epoch: int = 0) -> tuple[float, float]:
        """Return the fractions of an epoch's source and target tokens that are padding."""
        lengths, batches = self._lengths("train"), self._order(epoch, seed, batch_size)
        return padding_share(lengths[:, 0], batches), padding_share(lengths[:, 1], batches)

    # ------------------------------------------------------------ loss and scores

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the training loss in nats per target token, with label smoothing.

        Args:
            logits: (b, t, vocabulary).
        """
        return F.cross_entropy(
            logits.float().flatten(0, 1),
            batch.targets.flatten(),
            ignore_index=IGNORED,
            label_smoothing=self.label_smoothing,
        )

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        """Return the sum and the count of the loss in nats per target token, without label smoothing."""
        sums, counts = self.item_scores(logits, batch)
        return {"loss": (sums.sum(), counts.sum())}

    def item_scores(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss of each pair as a sum (b,) and a count (b,): BLEU of a corpus is no mean over its sentences."""
        nats = F.cross_entropy(logits.float().mT, batch.targets, ignore_index=IGNORED, reduction="none")
        return nats.double().sum(1), (batch.targets != IGNORED).sum(1)

    def generated_scores(
        self, generate: Callable[..., list[list[int]]], split: str, *, batch_size: int, limit: int | None
    ) -> dict[str, float]:
        """Return BLEU and chrF of the translations of a split, in the range 0 to 100."""
        translations: dict[int, str] = {}
        for batch in self.eval_batches(split, batch_size=batch_size, limit=limit):
            assert batch.items is not None
            rows = generate(batch, **self.decoding_options())
            translations |= zip(batch.items.tolist(), map(self.decode, rows), strict=True)
        references = self.text(split, "target")
        numbers = sorted(translations)
        return score_translations(
            [translations[number] for number in numbers], [references[number] for number in numbers], lower=self.lower
        )

    def decoding_options(self) -> dict[str, int | float]:
        return {
            "begin": BEGIN,
            "end": END,
            "max_length": self.length,
            "beam": self.beam,
            "length_penalty": self.length_penalty,
        }

    def run_notes(self) -> dict[str, str]:
        return {"sacrebleu": signatures(lower=self.lower)}

    def reference_scores(self) -> dict[str, Reference]:
        """Return BLEU of three methods without a network."""

        def score(translations: Sequence[str], numbers: np.ndarray) -> float:
            references = self.text("test", "target")
            return score_translations(translations, [references[i] for i in numbers], lower=self.lower)["bleu"]

        def cased(split: str, side: str) -> list[str]:
            return [sentence.lower() if self.lower else sentence for sentence in self.text(split, side)]

        return translation_references(cased, self._chosen, score)

    # ------------------------------------------------------------ text

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a source sentence, with its end token."""
        return [*self._vocabulary.encode(text.strip(), add_special_tokens=False).ids, END]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        return self._vocabulary.decode(list(ids)).strip()

    @cached_property
    def _vocabulary(self) -> Tokenizer:
        from tokenizers import Tokenizer

        vocabulary = Tokenizer.from_file(str(self._prepared / "vocabulary.json"))
        vocabulary.encode_special_tokens = True
        return vocabulary


def _mask(real: np.ndarray) -> Tensor | None:
    return None if real.all() else torch.from_numpy(real)
