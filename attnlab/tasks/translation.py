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
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, SPLITS, Batch, known_split, whole_number
from attnlab.tasks.bucketing import BucketedTask
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


class TranslationTask(BucketedTask):
    """Translate sentences. A subclass defines ``contents``, ``count``, ``lines`` and ``data_name``.

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
    item = "sentence"
    valid_sample = None  # the BLEU of a few sentences is not an estimate of that of all

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
        self._pairs: dict[str, tuple[Sentences, Sentences]] = {}

    @property
    def data_name(self) -> str:
        return "translation"

    # ------------------------------------------------------------ defined by a subclass

    def contents(self) -> str:
        """Return a checksum of the files and of everything that decides which of their lines belong to a split."""
        raise NotImplementedError

    def lines(self) -> dict[tuple[str, str], list[str]]:
        """Return the sentences of each (split, side)."""
        raise NotImplementedError

    def available(self) -> bool:
        """Return True if ``lines`` needs no download."""
        return True

    # ------------------------------------------------------------ data

    def identity(self) -> str:
        return f"{self.data_name} sha256:{self._digest()}"

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

    def data_key(self) -> dict[str, Any]:
        return {"digest": self._digest()}

    def build_data(self, place: Path) -> None:
        lines = self.lines()
        train = [sentence for side in SIDES for sentence in lines["train", side]]
        logger.info("%s: learning the subwords of %s sentences", self.data_name, f"{len(train):,}")
        vocabulary = learn("bpe", train, vocabulary=self.vocabulary, special_tokens=SPECIAL_TOKENS, lower=self.lower)
        vocabulary.save(str(place / "vocabulary.json"))
        vocabulary.encode_special_tokens = True  # "[EOS]" in a sentence is text
        for (split, side), sentences in lines.items():
            write_side(place, f"{split}-{side}", sentences, vocabulary)

    def pairs(self, split: str) -> tuple[Sentences, Sentences]:
        """Return the source and target sentences of one split, memory-mapped."""
        if known_split(split) not in self._pairs:
            source, target = (load_side(self.prepared_folder, f"{split}-{side}") for side in SIDES)
            self._pairs[split] = source, target
        return self._pairs[split]

    def text(self, split: str, side: str) -> list[str]:
        """Return the sentences of one side of a split as text."""
        return load_text(self.prepared_folder, f"{known_split(split)}-{side}")

    def has_data(self) -> bool:
        return self.available() or super().has_data()

    def row_lengths(self, split: str) -> np.ndarray:
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
        if config.evaluate.lengths:
            return "evaluate.lengths is for language models and classifiers: sentences have lengths of their own"
        return super().unsupported(config)

    # ------------------------------------------------------------ batches

    def evaluated_rows(self, split: str, limit: int | None) -> np.ndarray:
        """Return the numbers of the pairs that an evaluation reads, at random."""
        return np.random.default_rng(ORDER_SEED).permutation(self.count(split))[:limit]

    def batch(self, split: str, rows: np.ndarray) -> Batch:
        """Return these pairs of a split, each side padded to the longest of the batch."""
        source, target = self.pairs(split)
        tokens, real = source.padded(rows, length=self.length, fill=PADDING)
        targets, predicted = target.padded(rows, length=self.length, fill=IGNORED)
        first = np.full((len(rows), 1), BEGIN)
        inputs = np.where(predicted, np.concatenate([first, targets[:, :-1]], axis=1), PADDING)
        return Batch(
            torch.from_numpy(inputs),
            torch.from_numpy(targets),
            _mask(predicted),
            source=torch.from_numpy(tokens),
            source_mask=_mask(real),
            items=torch.from_numpy(rows.astype(np.int64)),
        )

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

        return translation_references(cased, self.evaluated_rows, score)

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

        vocabulary = Tokenizer.from_file(str(self.prepared_folder / "vocabulary.json"))
        vocabulary.encode_special_tokens = True
        return vocabulary


def _mask(real: np.ndarray) -> Tensor | None:
    return None if real.all() else torch.from_numpy(real)
