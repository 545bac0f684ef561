"""``imdb``: sentiment of the 50,000 film reviews of the Large Movie Review Dataset (Maas et al. 2011).

The data set has no validation split: 10 % of its training half is held out, stratified, with a separate fixed seed,
so that ``train`` has 22,500 reviews, ``valid`` 2,500 and ``test`` 25,000. The data set repeats a few reviews, and so do the
splits: 110 texts are in both ``train`` and ``test``, 16 in ``train`` and ``valid``, 13 in ``valid`` and ``test``, all with the
same label in both.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnlab._util.packages import version_of
from attnlab.errors import UserError, nearest
from attnlab.tasks import SPLITS, Batch, corpora, known_split, subwords
from attnlab.tasks.archives import IMDB
from attnlab.tasks.corpora import CLASSES, REVIEWS, review_text
from attnlab.tasks.documents import FORMAT, DocumentTask, write_split, write_words
from attnlab.tasks.reference_scores import Reference

logger = logging.getLogger(__name__)

TOKENS = ("words", "wordpiece")
ROLES = ("bidirectional", "causal")
WORDS = 50_000  # in the vocabulary of the reference scores of a task with subwords


class Imdb(DocumentTask):
    """Classify reviews of films as unfavorable (0) or favorable (1).

    Args:
        length: number of tokens read from the beginning of a review.
        vocabulary: number of token ids. ``words`` include [PAD] = 0 and [UNK] = 1; ``wordpiece`` also [CLS], [SEP] and [MASK].
        tokens: ``words``, or ``wordpiece``: subwords in rows of ``[CLS] review [SEP]``, with the segment embedding that BERT
            has. To start from the weights of a run of ``masked_text``, give the same ``vocabulary`` and ``corpus`` as there.
        corpus: ``imdb`` or ``enwik8``; the WordPiece vocabulary is learned on its ``train``. It has no effect on ``words``.
        role: ``bidirectional``, or ``causal``: each position attends to itself and earlier ones only. A causal classifier
            reads the last token (``model.pool: last``), for the first one has seen nothing.
    """

    classes, labels = len(CLASSES), CLASSES
    kept = ("tokenizer_json", "has_subwords")

    def __init__(
        self,
        *,
        length: int = 512,
        vocabulary: int = 50_000,
        tokens: str = "words",
        corpus: str = "imdb",
        role: str = "bidirectional",
    ) -> None:
        for name, value, known in (("tokens", tokens, TOKENS), ("role", role, ROLES)):
            if value not in known:
                raise UserError(f"{name}: expected {' or '.join(known)}, got {value!r}{nearest(str(value), known)}")
        super().__init__(length=length, vocabulary=vocabulary)
        self.role = "causal" if role == "causal" else "bidirectional"
        self.has_subwords, self.corpus = tokens == "wordpiece", corpus
        self.segments = 2 if self.has_subwords else 0
        if self.has_subwords and self.length < 3:
            raise UserError(f"length: expected at least 3, for [CLS], a token and [SEP], got {self.length}")
        subwords.wordpiece_identity(corpus, vocabulary)  # refuses an unknown corpus

    def identity(self) -> str:
        data = corpora.reviews_identity()
        return f"{data} text {REVIEWS} {self.vocabulary_identity()}" if self.has_subwords else data

    def vocabulary_identity(self) -> str:
        return subwords.wordpiece_identity(self.corpus, self.vocabulary) if self.has_subwords else super().vocabulary_identity()

    def count(self, split: str) -> int:
        return corpora.review_counts()[known_split(split)]

    @property
    def data_name(self) -> str:
        return "imdb"

    def data_key(self) -> dict[str, Any]:
        key: dict[str, Any] = {
            "contents": IMDB.contents,
            "vocabulary": self.vocabulary,
            "tokenizers": version_of("tokenizers"),
            "held_out": [corpora.HELD_OUT, corpora.HOLD_OUT_SEED],
            "format": FORMAT,
        }
        if self.has_subwords:
            key["wordpiece"] = self.vocabulary_identity()
        return key

    def batch(self, split: str, rows: np.ndarray) -> Batch:
        """Return these reviews: (b, length of the longest) tokens, padded with 0. A review that is cut ends with [SEP], too."""
        batch = super().batch(split, rows)
        if self.has_subwords:
            lengths = self.row_lengths(split)[rows]
            batch.inputs[torch.arange(len(rows)), torch.from_numpy(lengths - 1)] = subwords.SEP
        return batch

    def reference_scores(self) -> dict[str, Reference]:
        """Return linear classifiers of words; also with subwords, where classifiers are compared with the same scores."""
        if not self.has_subwords:
            return self.linear_scores()
        scores = Imdb(length=self.length, vocabulary=WORDS).linear_scores()
        return {name: replace(score, options=()) for name, score in scores.items()}

    def encode(self, text: str) -> list[int]:
        if not self.has_subwords:
            return super().encode(text)
        ids = self._subwords.encode(review_text(text)).ids
        return ids if len(ids) <= self.length else [*ids[: self.length - 1], subwords.SEP]

    def decode(self, ids: Sequence[int]) -> str:
        return self._subwords.decode(list(ids)) if self.has_subwords else super().decode(ids)

    @cached_property
    def tokenizer_json(self) -> str:
        return subwords.load_wordpiece(self.corpus, self.vocabulary).to_str() if self.has_subwords else super().tokenizer_json

    @cached_property
    def _subwords(self) -> Any:
        """The tokenizer of the WordPiece vocabulary; it adds [CLS] and [SEP]."""
        from tokenizers import Tokenizer
        from tokenizers.processors import TemplateProcessing

        tokenizer: Any = Tokenizer.from_str(self.tokenizer_json)
        tokenizer.encode_special_tokens = True  # "[MASK]" in a text is text
        special = [(name, subwords.SPECIAL_TOKENS.index(name)) for name in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
        return tokenizer

    def build_data(self, place: Path) -> None:
        """Write the prepared files: three arrays for each split, and ``words.json`` of words."""
        splits = corpora.read_reviews()
        if self.has_subwords:
            tokenizer = self._subwords
        else:
            logger.info("imdb: counting the words of %s training reviews", f"{len(splits['train'][0]):,}")
            tokenizer = write_words(place, splits["train"][0], self.vocabulary)
        for split in SPLITS:
            texts, labels = splits[split]
            if self.has_subwords:
                texts = [review_text(text) for text in texts]
            logger.info("imdb: encoding the %s reviews of %s", f"{len(texts):,}", split)
            write_split(place, split, texts, labels, tokenizer)
