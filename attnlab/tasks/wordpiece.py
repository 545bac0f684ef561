"""WordPiece vocabularies of a corpus (Devlin et al. 2019, section 3: "We use WordPiece embeddings"), learned on its ``train``.

A vocabulary depends on its corpus and its size alone, so tasks that name the same two have the same token ids: a classifier can
start from the weights of a masked language model. Texts are lower-cased, and accents are removed, as for BERT's uncased models.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from attnlab.tasks import corpora, subwords

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP, MASK = range(len(SPECIAL_TOKENS))
ALPHABET = 200  # most frequent characters; words with another one are [UNK]
FORMAT = 1  # of the options below

logger = logging.getLogger(__name__)


def identity(corpus: str, vocabulary: int) -> str:
    """Return a string that identifies the meaning of token ids, without fetching anything."""
    return f"wordpiece {vocabulary} of {corpora.find(corpus).identity()} format {FORMAT}"


def load(corpus: str, vocabulary: int) -> Tokenizer:
    """Return the vocabulary of a corpus, which is learned once and stored with the prepared data.

    Args:
        corpus: the name of a corpus.
        vocabulary: number of token ids, including ``SPECIAL_TOKENS``.

    Raises:
        UserError: the corpus is not available, or the vocabulary is smaller than the alphabet.
    """

    def learn() -> Tokenizer:
        documents = corpora.find(corpus).read()["train"]
        logger.info("%s: learning a WordPiece vocabulary of %s tokens", corpus, f"{vocabulary:,}")
        texts = [sentence for document in documents for sentence in document]
        return subwords.learn(
            "wordpiece", texts, vocabulary=vocabulary, special_tokens=SPECIAL_TOKENS, lower=True, alphabet=ALPHABET
        )

    tokenizer = subwords.load_or_learn(f"{corpus}-wordpiece", identity(corpus, vocabulary), learn)
    tokenizer.encode_special_tokens = True  # "[MASK]" in a text is text
    return tokenizer
