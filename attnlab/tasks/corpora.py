"""Corpora of documents: texts with their sentences in order, for masked language models and WordPiece vocabularies.

- ``enwik8``: the articles of Wikipedia in enwik8, without markup (``article_text``). Articles that begin in
  the first 90 % of the dump are ``train``, in the next 5 % ``valid``, in the last 5 % ``test``.
- ``imdb``: the labelled film reviews, with the splits of the task ``imdb``, so that a model that is pre-trained on
  ``train`` has seen no review that it is tested on.

Markup of Wikipedia is removed by these rules, in order:

1. An article is the text of a ``<page>``, from ``<text ...>`` to ``</text>``. Redirects, and pages outside the main namespace
   (``Talk:``, ``Image:``, ``Template:`` and others), are left out. A page that the end of the dump cuts off is kept.
2. XML entities become characters, and so do the HTML entities inside the text: ``&amp;nbsp;`` is a space.
3. Comments, and the elements ``math``, ``gallery``, ``timeline``, ``ref``, ``table``, ``pre``, ``code`` and ``nowiki``, are
   removed with their content. Of other HTML tags the content is kept.
4. Templates ``{{...}}`` and tables ``{|...|}`` are removed, the innermost first.
5. A link ``[[page|label]]`` becomes its label, ``[[page]]`` the name of the page, ``[http://address label]`` its label. Images,
   categories and links to other languages are removed.
6. Bold and italic marks are removed. Headings, and lines that begin with the marks of a list, a table or an indent (``*``,
   ``#``, ``:``, ``;``, ``|``, ``!``) are left out.
7. White space becomes a single space. Lines shorter than ``MIN_CHARACTERS``, or without a letter, are left out.

Each remaining line is a paragraph.

The film reviews have no validation split: 10 % of their training half is held out, stratified, with a separate fixed seed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from attnlab.errors import UserError, nearest
from attnlab.tasks import datasets
from attnlab.tasks.archives import ENWIK8, IMDB, REVIEWS_PER_FOLDER
from attnlab.tasks.lines import OTHER_BREAKS, split_lines

Documents = list[list[str]]  # the sentences of each document

FORMAT = 1  # of the cleaning and of the sentences of enwik8
CUTS = 0.90, 0.95  # of the characters of enwik8
_LINE_BREAK = re.compile(r"<br\s*/?>")
REVIEWS = 2  # format of the text of reviews
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")
MIN_CHARACTERS = 20  # of a paragraph
NAMESPACES = "Talk|User|User talk|Wikipedia|Image|MediaWiki|Template|Help|Category|Portal"

_PAGE = re.compile(r"<title>(?P<title>.*?)</title>.*?<text[^>]*>(?P<text>.*?)(?:</text>|\Z)", re.DOTALL)
_OTHER_NAMESPACE = re.compile(rf"(?:{NAMESPACES})(?: talk)?:", re.IGNORECASE)
_REDIRECT = re.compile(r"\s*#\s*redirect", re.IGNORECASE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_ELEMENT = re.compile(
    r"<(math|gallery|timeline|ref|table|pre|code|nowiki)\b(?:[^>]*/>|.*?(?:</\1\s*>|\Z))", re.DOTALL | re.IGNORECASE
)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}|\{\|(?:(?!\{\||\|\}).)*\|\}", re.DOTALL)
_LINK = re.compile(r"\[\[([^\[\]]*)\]\]")
_REMOVED_LINK = re.compile(r"\s*(?:image|file|category|media|[a-z]{2,3}(?:-[a-z-]+)?|simple)\s*:", re.IGNORECASE)
_EXTERNAL = re.compile(r"\[(?:https?|ftp|mailto|news|irc):[^\s\]]*\s*([^\]]*)\]", re.IGNORECASE)
_QUOTES = re.compile(r"'{2,}")
_LEFT_OUT = re.compile(r"\s*(?:[*#:;|!=]|\{\||\|\})")
_LETTER = re.compile(r"[^\W\d_]")
HELD_OUT = REVIEWS_PER_FOLDER // 10  # reviews of each class in ``valid``
HOLD_OUT_SEED = 0
CLASSES = ("neg", "pos")  # numbers 0 and 1


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
    for offset, paragraphs in articles(dump):
        split = "train" if offset < CUTS[0] * len(dump) else "valid" if offset < CUTS[1] * len(dump) else "test"
        splits[split].append([sentence for paragraph in paragraphs for sentence in sentences(paragraph)])
    return splits


def _imdb() -> dict[str, Documents]:
    splits = read_reviews()
    return {split: [sentences(review_text(text, line_break="\n")) for text in texts] for split, (texts, _) in splits.items()}


CORPORA = {
    "enwik8": Corpus(lambda: f"enwik8 md5:{ENWIK8.contents} text {FORMAT}", _enwik8),
    "imdb": Corpus(lambda: f"{reviews_identity()} sentences {REVIEWS}", _imdb),
}


def articles(dump: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (offset, paragraphs) of each article of a dump that has any text; ``offset`` counts characters of the dump."""
    begin = dump.find("<page>")
    while begin >= 0:
        end = dump.find("<page>", begin + 1)
        page = _PAGE.search(dump[begin : end if end >= 0 else len(dump)])
        if page is not None and not _OTHER_NAMESPACE.match(page["title"]):
            paragraphs = article_text(page["text"])
            if paragraphs:
                yield begin, paragraphs
        begin = end


def article_text(source: str) -> list[str]:
    """Return the paragraphs of an article, without markup; [] of a redirect.

    Args:
        source: the wiki text as it stands in the XML of a dump.
    """
    text = html.unescape(html.unescape(source))  # the entities of the XML, then those of HTML that they spell
    if _REDIRECT.match(text):
        return []
    text = _COMMENT.sub("", text)
    text = _ELEMENT.sub(" ", text)
    text = _TAG.sub(" ", text)
    text = _replace_innermost(_TEMPLATE, lambda match: "", text)
    text = _replace_innermost(_LINK, _link_label, text)
    text = _EXTERNAL.sub(r"\1", text)
    text = _QUOTES.sub("", text)
    lines = [" ".join(line.split()) for line in text.split("\n") if not _LEFT_OUT.match(line)]
    return [line for line in lines if len(line) >= MIN_CHARACTERS and _LETTER.search(line)]


def _link_label(match: re.Match[str]) -> str:
    """Return the text that a link shows; "" of an image, a category or a link to another language."""
    target, bar, label = match[1].partition("|")
    if _REMOVED_LINK.match(target):
        return ""
    return label.rpartition("|")[2] if bar else target.lstrip(":")


def _replace_innermost(pattern: re.Pattern[str], replacement, text: str) -> str:  # noqa: ANN001
    """Replace matches until none is left: the pattern matches only what contains no match itself."""
    count = 1
    while count:
        text, count = pattern.subn(replacement, text)
    return text


def reviews_identity() -> str:
    """Return a string that identifies the reviews."""
    return f"imdb sha256:{IMDB.contents}"


def review_counts() -> dict[str, int]:
    """Return the number of reviews of each split."""
    per_class = {"train": REVIEWS_PER_FOLDER - HELD_OUT, "valid": HELD_OUT, "test": REVIEWS_PER_FOLDER}
    return {split: len(CLASSES) * count for split, count in per_class.items()}


def read_reviews() -> dict[str, tuple[list[str], list[int]]]:
    """Return the texts and the labels of each split, after fetching and verifying the archive."""
    reviews = datasets.load(IMDB)
    return {
        split: ([reviews[name].decode() for name in names], [CLASSES.index(name.split("/")[1]) for name in names])
        for split, names in hold_out(list(reviews)).items()
    }


def hold_out(names: list[str]) -> dict[str, list[str]]:
    """Return the names of each split's reviews; ``names`` must be in order."""
    rng = np.random.default_rng(HOLD_OUT_SEED)
    held: set[str] = set()
    for label in CLASSES:
        of_class = [name for name in names if name.startswith(f"train/{label}/")]
        held.update(of_class[i] for i in rng.permutation(len(of_class))[:HELD_OUT])
    train = [name for name in names if name.startswith("train/")]
    return {
        "train": [name for name in train if name not in held],
        "valid": [name for name in train if name in held],
        "test": [name for name in names if name.startswith("test/")],
    }
