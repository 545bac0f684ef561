"""Byte-level byte-pair encoding of whole splits: bytes to token ids and back, exactly.

Tokens are learned and encoded by ``tokenizers`` (``attnlab.tasks.subwords``), which reads text. Bytes that are not valid UTF-8
are encoded one by one, each as the token of that byte, so that every sequence of bytes survives the round trip.

A text is encoded in chunks that end at line breaks between two characters that are not white space. No word of GPT-2's
regular expression crosses such a place, so the tokens are the same as for the whole text. Without such a place, a chunk ends at
``CHUNK`` bytes, and the tokens around its end may differ from the tokens of the whole text. They stand for the same bytes in
either case, so bits per byte are exact.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnlab.config.comparability import SUBWORDS
from attnlab.errors import UserError
from attnlab.tasks import SPLITS, datasets
from attnlab.tasks.subwords import learn, load_or_learn

if TYPE_CHECKING:
    from tokenizers import Tokenizer

logger = logging.getLogger(__name__)

BYTES = 256
CHUNK = 1 << 16  # bytes that are encoded as one text
GROUP = 32  # chunks that are encoded at a time
FORMAT = 1  # of the vocabulary's definition and of the encoded splits
INVALID = re.compile("([\udc80-\udcff]+)")  # bytes that are not UTF-8, as Python decodes them with "surrogateescape"


class ByteBPE:
    """Encodes bytes with a vocabulary that ``attnlab.tasks.subwords.learn`` learned as ``byte_bpe``.

    Attributes:
        tokens: the bytes of each token, by id.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        byte_of = {character: byte for byte, character in enumerate(_characters())}
        ids = tokenizer.get_vocab()
        self._tokenizer = tokenizer
        self.tokens = [bytes(byte_of[c] for c in token) for token in sorted(ids, key=ids.__getitem__)]
        self._id_of_byte = [ids[character] for character in _characters()]

    def encode(self, data: bytes) -> np.ndarray:
        """Return the token ids of ``data``, (n,) uint32."""
        return np.concatenate([np.zeros(0, np.uint32), *self.encode_groups(data)])

    def encode_groups(self, data: bytes) -> Iterator[np.ndarray]:
        """Yield the token ids of ``data`` in parts of at most ``GROUP`` chunks: encodings take a lot of memory."""
        places = list(chunks(data))
        for begin in range(0, len(places), GROUP):
            group = places[begin : begin + GROUP]
            ids = self._encode([piece for place in group for piece in _pieces(data[place])])
            if self.decode(ids) != data[group[0].start : group[-1].stop]:
                raise RuntimeError(f"tokens do not restore the bytes {group[0].start:,} to {group[-1].stop:,}")
            yield np.array(ids, dtype=np.uint32)

    def _encode(self, pieces: list[str]) -> list[int]:
        encodings = iter(self._tokenizer.encode_batch_fast([piece for piece in pieces if not INVALID.match(piece)]))
        ids: list[int] = []
        for piece in pieces:
            ids += [self._id_of_byte[ord(c) - 0xDC00] for c in piece] if INVALID.match(piece) else next(encodings).ids
        return ids

    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of token ids."""
        return b"".join(map(self.tokens.__getitem__, ids))


def chunks(data: bytes) -> Iterator[slice]:
    """Yield the places of the chunks of ``data``, in order."""
    start = 0
    while start < len(data):
        stop = min(start + CHUNK, len(data))
        if stop < len(data):
            stop = _line_end(data, start, stop)
        yield slice(start, stop)
        start = stop


def _line_end(data: bytes, start: int, stop: int) -> int:
    """Return the end of the last line up to ``stop`` that two characters enclose, else the end of the last whole character."""
    end = data.rfind(b"\n", start, stop)
    while end > start and (data[end - 1 : end].isspace() or data[end + 1 : end + 2].isspace()):
        end = data.rfind(b"\n", start, end)
    if end > start:
        return end + 1
    for whole in range(stop, max(start, stop - 4), -1):
        if data[whole] & 0xC0 != 0x80:  # not in the middle of a character of UTF-8
            return whole
    return stop


def _pieces(data: bytes) -> list[str]:
    """Return the valid texts of ``data`` and, between them, the bytes that are not UTF-8, as surrogates (``INVALID``)."""
    return INVALID.split(data.decode("utf-8", errors="surrogateescape"))


def _characters() -> list[str]:
    """Return the printable character that stands for each byte in GPT-2's vocabularies: itself, or one from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (chr(BYTES + n) for n in range(BYTES))
    return [chr(byte) if byte in printable else next(others) for byte in range(BYTES)]


def load_or_learn_byte_bpe(name: str, text: str, read_train: Callable[[], np.ndarray], vocabulary: int) -> Tokenizer:
    """Return the vocabulary of a text's training split.

    Args:
        name: of the task, for the folder and for messages.
        text: identifies the text, for example a checksum.
        read_train: returns the training split, (n,) uint8; not called if the vocabulary has been learned before.
        vocabulary: number of tokens, at least 256.

    Raises:
        UserError: the training split has too few pairs of tokens that occur twice.
    """

    def learn_it() -> Tokenizer:
        train = read_train()
        logger.info("%s: learning %s tokens on the %s bytes of train", name, f"{vocabulary:,}", f"{len(train):,}")
        data = train.tobytes()
        texts = (piece for place in chunks(data) for piece in _pieces(data[place]) if not INVALID.match(piece))
        tokenizer = learn("byte_bpe", texts, vocabulary=vocabulary)
        if (size := tokenizer.get_vocab_size()) < vocabulary:
            raise UserError(f"vocabulary: expected at most {size:,}, all tokens that train yields, got {vocabulary:,}")
        return tokenizer

    return load_or_learn(f"{name}-vocabulary", f"{text}{vocabulary_identity(vocabulary)}", learn_it)


def encoded_splits(name: str, text: str, splits: dict[str, np.ndarray], encoder: ByteBPE) -> dict[str, np.ndarray]:
    """Return the token ids of each split, memory-mapped (n,) uint16 or uint32, each split encoded by itself.

    Args:
        name: of the task, for the folder and for messages.
        text: identifies the text, for example a checksum.
        splits: (n,) uint8 of each split.
        encoder: the vocabulary.
    """
    dtype = np.uint16 if len(encoder.tokens) <= 1 << 16 else np.uint32

    def build(folder: Path) -> None:
        for split, data in splits.items():
            logger.info("%s: encoding the %s bytes of %s", name, f"{len(data):,}", split)
            parts = [part.astype(dtype) for part in encoder.encode_groups(data.tobytes())]
            np.save(folder / f"{split}.npy", np.concatenate([np.zeros(0, dtype), *parts]))

    vocabulary = hashlib.sha256(b"".join(len(token).to_bytes(4, "little") + token for token in encoder.tokens)).hexdigest()
    cuts = [len(data) for data in splits.values()]
    key = {"text": text, "cuts": cuts, "vocabulary": vocabulary, "format": FORMAT}
    folder = datasets.prepared(f"{name}-tokens", key, build)
    return {split: np.load(folder / f"{split}.npy", mmap_mode="r") for split in SPLITS}


def vocabulary_identity(vocabulary: int) -> str:
    """Return a string that identifies a vocabulary of so many tokens of a known text, to be appended to the text's identity.

    It stands for the definition, so that the plan need not learn the vocabulary.
    """
    return f"{SUBWORDS}{vocabulary}:{FORMAT}"
