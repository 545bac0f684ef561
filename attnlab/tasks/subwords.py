"""Vocabularies of subwords, learned on training texts by ``tokenizers``.

Three kinds:

- ``bpe``: byte-pair encoding of words (Sennrich et al. 2016, "Neural machine translation of rare words with subword units").
  A space begins a word and is part of it (``▁``), and punctuation marks are words, so decoding restores the text except for
  runs of white space.
- ``byte_bpe``: byte-pair encoding of the bytes of UTF-8 (Radford et al. 2019, section 2.2). Every text can be encoded, and
  decoding restores it exactly. Words are split by GPT-2's regular expression.
- ``wordpiece``: BERT's vocabulary (Devlin et al. 2019). A word is encoded as the longest subwords from left to right, and a
  subword that continues a word begins with ``##``. The subwords are learned by byte-pair merges.

The same texts and options give the same vocabulary, in every process and with any number of threads.

A WordPiece vocabulary of a corpus (Devlin et al. 2019, section 3: "We use WordPiece embeddings") is learned on its ``train``.
It depends on its corpus and its size alone, so tasks that name the same two have the same token ids: a classifier can start
from the weights of a masked language model. Texts are lower-cased, and accents are removed, as for BERT's uncased models.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, get_args

from attnlab._util.packages import version_of
from attnlab.errors import UserError, nearest
from attnlab.tasks import corpora, datasets

if TYPE_CHECKING:
    from tokenizers import Tokenizer

logger = logging.getLogger(__name__)

Kind = Literal["bpe", "byte_bpe", "wordpiece"]
KINDS: tuple[Kind, ...] = get_args(Kind)
UNKNOWN = "[UNK]"  # stands for characters outside the alphabet
CONTINUING = "##"  # prefix of WordPiece's subwords that continue a word
SPACE = "▁"
WHITE_SPACE = r"[\s\x1c-\x1f]+"  # as str.isspace() defines it: \s lacks the separators of ASCII
LEAST_COUNT = 2  # occurrences of a pair that is merged
FORMAT = 1  # of the cached vocabularies
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP, MASK = range(len(SPECIAL_TOKENS))
ALPHABET = 200  # most frequent characters; words with another one are [UNK]
WORDPIECE_FORMAT = 1  # of the options below


def learn(
    kind: Kind,
    texts: Iterable[str],
    *,
    vocabulary: int,
    special_tokens: Sequence[str] = (),
    lower: bool = False,
    alphabet: int | None = None,
) -> Tokenizer:
    """Learn a vocabulary of subwords.

    The special tokens have the first ids, in their order. ``bpe`` and ``wordpiece`` add ``[UNK]`` unless it is one of them.

    Args:
        kind: ``bpe``, ``byte_bpe`` or ``wordpiece``, as described above.
        texts: the training texts, for example lines or paragraphs; no word extends from one text to the next. ``bpe`` and
            ``wordpiece`` read them twice: an iterator is then kept in memory, a sequence is not copied.
        vocabulary: number of token ids with the special tokens. The vocabulary has fewer if no pair of subwords occurs twice.
        special_tokens: tokens that stand for no text.
        lower: texts are lower-cased, in training and in encoding.
        alphabet: the most frequent characters of the texts that the alphabet keeps; None: all. Not for ``byte_bpe``.

    Raises:
        UserError: the kind is unknown, or the vocabulary is smaller than the alphabet and the special tokens.
    """
    if kind not in KINDS:
        raise UserError(f"subwords: expected {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {kind!r}{nearest(str(kind), KINDS)}")
    options: dict[str, Any] = {"vocab_size": vocabulary, "min_frequency": LEAST_COUNT, "show_progress": False}
    if kind == "byte_bpe":
        return _learn_bpe(kind, texts, _bytes(), list(special_tokens), options, lower=lower)
    texts = list(texts) if isinstance(texts, Iterator) else texts
    special = [*special_tokens, *([] if UNKNOWN in special_tokens else [UNKNOWN])]
    characters = _frequent_characters(_pipeline(kind, lower=lower).normalizer, texts, alphabet)
    if kind == "bpe":
        return _learn_bpe(kind, texts, sorted({*characters, SPACE}), special, options, lower=lower)
    return _learn_wordpiece(texts, characters, special, options, lower=lower)


def load_or_learn(name: str, digest: str, learn_it: Callable[[], Tokenizer]) -> Tokenizer:
    """Return a vocabulary from the folder of prepared data, when it is stored after it has been learned once.

    Args:
        name: prefix of the folder's name, for example the name of the task.
        digest: identifies the training texts and the options of ``learn``.
        learn_it: returns the vocabulary.
    """
    from tokenizers import Tokenizer

    key = {"vocabulary": digest, "tokenizers": version_of("tokenizers"), "format": FORMAT}
    place = datasets.prepared(name, key, lambda folder: learn_it().save(str(folder / "vocabulary.json")))
    return Tokenizer.from_file(str(place / "vocabulary.json"))


def _pipeline(kind: Kind, *, lower: bool) -> Any:
    """Return a tokenizer without a vocabulary: its model, and how it splits and restores texts."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    if kind == "byte_bpe":
        tokenizer = Tokenizer(models.BPE())
        steps: list[Any] = []
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
        tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    elif kind == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
        steps = [normalizers.NFC(), normalizers.Replace(Regex(WHITE_SPACE), " "), normalizers.Strip()]
        words = [pre_tokenizers.Metaspace(SPACE), pre_tokenizers.Punctuation()]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(words)  # type: ignore[assignment, arg-type]
        tokenizer.decoder = decoders.Metaspace(SPACE)  # type: ignore[assignment]
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN, continuing_subword_prefix=CONTINUING))
        steps = [normalizers.BertNormalizer(lowercase=lower)]
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
        tokenizer.decoder = decoders.WordPiece(prefix=CONTINUING)  # type: ignore[assignment]
    if lower and kind != "wordpiece":
        steps += [
            normalizers.Lowercase(),
            normalizers.NFC(),
        ]  # a lower-case letter may have a composed form that its capital lacks
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)  # type: ignore[assignment]
    return tokenizer


def _bytes() -> list[str]:
    """Return the characters that stand for the 256 bytes."""
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel.alphabet()


def _frequent_characters(normalizer: Any, texts: Iterable[str], most: int | None) -> list[str]:
    """Return the ``most`` frequent characters of the normalized texts, in order and without white space."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    characters = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    return sorted(characters[:most])


def _require(vocabulary: int, alphabet: int, special: int, *, characters: str) -> None:
    """Raise ``UserError`` unless the vocabulary holds the alphabet and the special tokens."""
    if vocabulary < alphabet + special:
        parts = f"{alphabet:,} {characters}" + (f" and {special:,} special tokens" if special else "")
        raise UserError(f"vocabulary: expected at least {alphabet + special:,}, for {parts}, got {vocabulary:,}")


def _learn_bpe(kind: Kind, texts: Iterable[str], alphabet: list[str], special: list[str], options: Any, *, lower: bool) -> Any:
    """Learn a vocabulary of ``bpe`` or ``byte_bpe``."""
    from tokenizers import trainers

    characters = "bytes" if kind == "byte_bpe" else "characters"
    _require(options["vocab_size"], len(alphabet), len(special), characters=characters)
    tokenizer = _pipeline(kind, lower=lower)
    trainer = trainers.BpeTrainer(
        special_tokens=special,  # type: ignore[arg-type]
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        **options,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _learn_wordpiece(texts: Iterable[str], alphabet: list[str], special: list[str], options: Any, *, lower: bool) -> Any:
    """Learn a vocabulary of ``wordpiece``.

    The trainer of ``tokenizers`` numbers the continuing characters (``##a``) in the random order of a hash table, and these
    numbers decide between equally frequent pairs. It numbers its special tokens first, in their order, so the continuing
    characters are passed as such, and the vocabulary is then copied into a tokenizer without them.
    """
    from tokenizers import models, trainers

    continuing = sorted(set(alphabet).intersection(chain.from_iterable(word[1:] for word in _words(texts, lower=lower))))
    _require(options["vocab_size"], len(alphabet) + len(continuing), len(special), characters="first and continuing characters")
    trainer = trainers.WordPieceTrainer(
        special_tokens=[*special, *(CONTINUING + character for character in continuing)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        **options,
    )
    trained = _pipeline("wordpiece", lower=lower)
    trained.train_from_iterator(texts, trainer)
    tokenizer = _pipeline("wordpiece", lower=lower)
    tokenizer.model = models.WordPiece(trained.get_vocab(), unk_token=UNKNOWN, continuing_subword_prefix=CONTINUING)
    tokenizer.add_special_tokens(special)
    return tokenizer


def _words(texts: Iterable[str], *, lower: bool) -> list[str]:
    """Return the different words of the texts, as ``wordpiece`` splits them."""
    from tokenizers import models, trainers

    counter = _pipeline("wordpiece", lower=lower)
    counter.model = models.WordLevel(unk_token=UNKNOWN)
    counter.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=1 << 31, min_frequency=0, show_progress=False))
    return list(counter.get_vocab())


def wordpiece_identity(corpus: str, vocabulary: int) -> str:
    """Return a string that identifies the meaning of token ids, without fetching anything."""
    return f"wordpiece {vocabulary} of {corpora.find(corpus).identity()} format {WORDPIECE_FORMAT}"


def load_wordpiece(corpus: str, vocabulary: int) -> Tokenizer:
    """Return the vocabulary of a corpus, which is learned once and stored with the prepared data.

    Args:
        corpus: the name of a corpus.
        vocabulary: number of token ids, including ``SPECIAL_TOKENS``.

    Raises:
        UserError: the corpus is not available, or the vocabulary is smaller than the alphabet.
    """

    def learned() -> Tokenizer:
        documents = corpora.find(corpus).read()["train"]
        logger.info("%s: learning a WordPiece vocabulary of %s tokens", corpus, f"{vocabulary:,}")
        texts = [sentence for document in documents for sentence in document]
        return learn("wordpiece", texts, vocabulary=vocabulary, special_tokens=SPECIAL_TOKENS, lower=True, alphabet=ALPHABET)

    tokenizer = load_or_learn(f"{corpus}-wordpiece", wordpiece_identity(corpus, vocabulary), learned)
    tokenizer.encode_special_tokens = True  # "[MASK]" in a text is text
    return tokenizer
