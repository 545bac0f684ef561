"""Corpora of documents: texts with their sentences in order, for masked language models and WordPiece vocabularies.

- ``enwik8``: the articles of Wikipedia in enwik8, without markup (``attnlab.tasks.wikipedia``). Articles that begin in
  the first 90 % of the dump are ``train``, in the next 5 % ``valid``, in the last 5 % ``test``.
- ``imdb``: the labelled film reviews, with the splits of the task ``imdb``, so that a model that is pre-trained on
  ``train`` has seen no review that it is tested on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from attnlab.errors import UserError, nearest
from attnlab.tasks import datasets, imdb_splits, wikipedia
from attnlab.tasks.archives import ENWIK8
from attnlab.tasks.lines import OTHER_BREAKS, split_lines

Documents = list[list[str]]  # the sentences of each document

FORMAT = 1  # of the cleaning and of the sentences of enwik8
CUTS = 0.90, 0.95  # of the characters of enwik8
_LINE_BREAK = re.compile(r"<br\s*/?>")
REVIEWS = 2  # format of the text of reviews
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")


@dataclass(frozen=True)
class Corpus:
    """A corpus.

    Args:
        identity: returns a string that identifies its content, without fetching anything.
        read: fetches the data and returns the documents of each split.
    """

    identity: Callable[[], str]
    read: Callable[[], dict[str, Documents]]


def sentences(text: str) -> list[str]:
    """Split a text into sentences: after ``.``, ``!`` or ``?`` before a capital letter or a digit, and at line ends.

    Abbreviations ("Dr. Smith") are split, too: next-sentence prediction needs passages that follow each other, not linguistic
    sentences.

    Examples:
        >>> sentences('It is "new." See p. 4. and more!\\nThe end')
        ['It is "new."', 'See p.', '4. and more!', 'The end']
    """
    parts: list[str] = []
    for line in split_lines(text):
        begin = 0
        for match in SENTENCE_END.finditer(line):
            end = match.start() + len(match.group().rstrip())  # closing quotes belong to the sentence before
            parts.append(line[begin:end])
            begin = match.end()
        parts.append(line[begin:])
    return [part.strip() for part in parts if part.strip()]


def review_text(review: str, *, line_break: str = " ") -> str:
    """Return the text of a film review: its HTML line breaks replaced, and characters that other programs take for line ends.

    The reviews have U+0085 where their authors wrote an ellipsis. Pre-training and classification read it as a space.
    """
    return _LINE_BREAK.sub(line_break, OTHER_BREAKS.sub(" ", review))


def find(name: object) -> Corpus:
    """Return the corpus of a name; raise ``UserError`` if there is none."""
    if not isinstance(name, str) or name not in CORPORA:
        raise UserError(f"corpus: expected {' or '.join(CORPORA)}, got {name!r}{nearest(str(name), CORPORA)}")
    return CORPORA[name]


def _enwik8() -> dict[str, Documents]:
    dump = datasets.load(ENWIK8).decode("utf-8", errors="replace")  # the dump ends within a character
    splits: dict[str, Documents] = {"train": [], "valid": [], "test": []}
    for offset, paragraphs in wikipedia.articles(dump):
        split = "train" if offset < CUTS[0] * len(dump) else "valid" if offset < CUTS[1] * len(dump) else "test"
        splits[split].append([sentence for paragraph in paragraphs for sentence in sentences(paragraph)])
    return splits


def _imdb() -> dict[str, Documents]:
    splits = imdb_splits.read()
    return {split: [sentences(review_text(text, line_break="\n")) for text in texts] for split, (texts, _) in splits.items()}


CORPORA = {
    "enwik8": Corpus(lambda: f"enwik8 md5:{ENWIK8.contents} text {FORMAT}", _enwik8),
    "imdb": Corpus(lambda: f"{imdb_splits.identity()} sentences {REVIEWS}", _imdb),
}
