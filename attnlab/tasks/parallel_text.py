"""Parallel text: pairs of sentences, as tokens of one joint vocabulary.

A split is prepared as four arrays, the tokens of each side and the ends of its sentences, and as the text of each side, which
scores of translations are computed from. The tokens do not contain the special ones. When the data are prepared, the tokens of
each side are decoded and compared with its text: ``Restored`` is the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks.lines import quoted, require_line_ends, split_lines
from attnlab.tasks.overlap import NOTABLE

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SIDES = ("source", "target")
SPECIAL_TOKENS = ("[PAD]", "[BOS]", "[EOS]", "[UNK]")
PADDING, BEGIN, END, UNKNOWN = range(4)  # their numbers
CHUNK = 4096  # sentences that are encoded at a time: encodings are large


@dataclass(frozen=True)
class Sentences:
    """The sentences of one side: number ``i`` is ``tokens[ends[i - 1]:ends[i]]``."""

    tokens: np.ndarray
    ends: np.ndarray

    @cached_property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], self.ends[:-1]])

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n,) tokens of each sentence with its end token."""
        return self.ends - self.starts + 1

    def padded(self, numbers: np.ndarray, *, length: int, fill: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sentences with their end tokens, cut to ``length``, in rows that are filled up with ``fill``.

        Returns:
            (b, t) int64 token ids, where t is the longest of the rows, and (b, t) bool, True at tokens.
        """
        lengths = np.minimum(self.lengths[numbers], length)
        rows = np.full((len(numbers), int(lengths.max())), fill, dtype=np.int64)
        for row, start, end, count in zip(rows, self.starts[numbers], self.ends[numbers], lengths, strict=True):
            row[: min(end - start, count)] = self.tokens[start : min(end, start + count)]
            if count > end - start:
                row[count - 1] = END
        return rows, np.arange(rows.shape[1]) < lengths[:, None]


def read_lines(text: str, *, place: str) -> list[str]:
    """Return the sentences of a text, one a line (``attnlab.tasks.lines``), without surrounding white space.

    Args:
        place: names the file in messages.

    Raises:
        UserError: a line is empty, or there is none.
    """
    require_line_ends(text, place=place)
    lines = [line.strip() for line in split_lines(text)]
    for number, line in enumerate(lines or [""], start=1):
        if not line:
            raise UserError(f"{place}:{number}: expected one sentence a line, got an empty line")
    return lines


def write_side(place: Path, name: str, lines: Sequence[str], vocabulary: Tokenizer) -> None:
    """Write the text, the tokens and the ends of the sentences of one side of a split, under ``name``."""
    kind = np.uint16 if vocabulary.get_vocab_size() <= 1 << 16 else np.uint32
    rows: list[np.ndarray] = []
    for begin in range(0, len(lines), CHUNK):
        encodings = vocabulary.encode_batch_fast(list(lines[begin : begin + CHUNK]), add_special_tokens=False)
        rows += [np.asarray(encoding.ids, dtype=kind) for encoding in encodings]
    np.save(place / f"{name}-tokens.npy", np.concatenate(rows))
    np.save(place / f"{name}-ends.npy", np.cumsum([len(row) for row in rows]))
    (place / f"{name}.txt").write_bytes("\n".join(lines).encode())  # a file in text mode could change line ends


def load_side(place: Path, name: str) -> Sentences:
    """Return the sentences that ``write_side`` wrote, memory-mapped."""
    return Sentences(np.load(place / f"{name}-tokens.npy", mmap_mode="r"), np.load(place / f"{name}-ends.npy"))


def cut_note(sides: Sequence[Sentences], length: int, *, split: str) -> str:
    """Return a note on the sentences of a split that have more than ``length`` tokens; "" if there are none."""
    cut = [int((side.lengths > length).sum()) for side in sides]
    if not any(cut):
        return ""
    return f"{cut[0]:,} source and {cut[1]:,} target sentences of {split} are longer than {length} tokens and are cut"


def shared_note(split: str, sources: Sequence[str], train: Sequence[str]) -> str:
    """Return a note on the source sentences of a split that are also in ``train``; "" if they are few."""
    shared = len(sources) and sum(map(set(train).__contains__, sources))
    if shared < NOTABLE * len(sources):
        return ""
    share = f"{shared:,} of the {len(sources):,} source sentences of {split}"
    return f"{share} are also in train: a model may have memorised them"


def load_text(place: Path, name: str) -> list[str]:
    """Return the lines that ``write_side`` wrote."""
    return (place / f"{name}.txt").read_bytes().decode().split("\n")


@dataclass(frozen=True)
class Restored:
    """The comparison of the sentences of one side with what their tokens decode to.

    Attributes:
        different: the number of sentences that the tokens do not restore.
        first: the first of them, counted from 1; 0 when there is none.
        sentence, decoded: the first of them, and what its tokens decode to.
    """

    different: int = 0
    first: int = 0
    sentence: str = ""
    decoded: str = ""


def compare_restored(place: Path, name: str, vocabulary: Tokenizer, normalize: Callable[[str], str]) -> None:
    """Decode the tokens that ``write_side`` wrote, compare them with the text, and write the result, ``Restored``.

    Args:
        normalize: the changes of a sentence that do not count, for example of white space.
    """
    side, lines, result = load_side(place, name), load_text(place, name), Restored()
    for begin in range(0, len(lines), CHUNK):
        places = zip(side.starts[begin : begin + CHUNK], side.ends[begin : begin + CHUNK], strict=True)
        decoded = vocabulary.decode_batch([side.tokens[start:end].tolist() for start, end in places])
        for number, (line, text) in enumerate(zip(lines[begin : begin + CHUNK], decoded, strict=True), start=begin + 1):
            if normalize(text) != normalize(line):
                first = result if result.different else Restored(0, number, line, text)
                result = replace(first, different=result.different + 1)
    (place / f"{name}-restored.json").write_text(json.dumps(asdict(result)), encoding="utf-8")


def restored_note(place: Path, split: str, *, count: int) -> str:
    """Return a note on the target sentences of a split that their tokens do not restore; "" if there are none.

    Args:
        place: the folder of ``compare_restored``.
        count: the number of sentences.
    """
    result = Restored(**json.loads((place / f"{split}-target-restored.json").read_text(encoding="utf-8")))
    if not result.different:
        return ""
    share = f"{result.different:,} of the {count:,} target sentences of {split}"
    example = f"number {result.first:,}, {quoted(result.sentence)}, becomes {quoted(result.decoded)}"
    return f"{share} cannot be written with the subwords of train, so perfect translations of them score less: {example}"
