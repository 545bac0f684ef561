"""Checks that a file of token numbers is what its options say: their type, byte order, vocabulary, and no header.

A file of numbers carries none of this, so that a wrong option reads other numbers without an error. What cannot be tokens is
refused (``require_tokens``). What is unusual is a note in the plan (``token_notes``): rows may be padded on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks.data_files import DataFile

HEAD = 4096  # bytes of a file that are compared with other formats
FEW = 64  # numbers, below which nothing is concluded from their distribution
MANY = 1_000  # numbers from which the entropy of their bytes is estimated
LEAD = 512  # numbers that a header may take
ALTERNATING = 0.5  # total variation distance between numbers at different positions
ALIKE = 0.2  # likewise, of numbers at positions that do not differ
UNIFORM = 7.0  # bits of a byte: of hashed tokens it has about 8, of a text or of frequent tokens fewer
PADDED = 0.5  # share of one token that is noted
SENTINEL = 128  # largest number n such that -n is likely to mark padding or ignored targets
SWAPPED = 1.5  # bits: by so much the upper byte's entropy exceeds the lower one's if they are swapped

FORMATS = {  # the first bytes of files that are no plain array
    b"\x93NUMPY": "a file of numpy: write it with array.tofile",
    b"PK\x03\x04": "a zip archive, such as numpy's .npz or a checkpoint of PyTorch",
    b"\x1f\x8b\x08": "a gzip archive",
    b"\x28\xb5\x2f\xfd": "a zstandard archive",
    b"\xfd7zXZ": "an xz archive",
    b"\x89HDF": "a file of HDF5",
    b"PAR1": "a file of Parquet",
    b"ARROW1": "a file of Arrow",
    b"MMIDIDX": "an index of Megatron: path is the .bin file",
    (20_240_520).to_bytes(4, "little"): "a file of llm.c with a header: leave out its first 1,024 bytes",
    (20_240_801).to_bytes(4, "little"): "a file of llm.c with a header: leave out its first 1,024 bytes",
    **{b"\x80" + bytes([protocol, 0x95]): "a pickle" for protocol in (4, 5)},
}


def require_plain(file: DataFile) -> None:
    """Raise ``UserError`` if a file begins as one of another format does, or is a text."""
    with file.path.open("rb") as contents:
        head = contents.read(HEAD)
    found = next((name for first, name in FORMATS.items() if head.startswith(first)), None)
    if found is None and len(head) >= FEW and _is_text(head):
        found = "a text"
    if found is not None:
        raise UserError(f"{file.option}: expected numbers without a header, but {file.path} is {found}")


def _is_text(head: bytes) -> bool:
    try:
        text = head[: len(head) - 3].decode("utf-8")  # a character may be cut at the end
    except UnicodeDecodeError as error:
        if error.start < len(head) - 6:
            return False
        text = head[: error.start].decode("utf-8")
    return all(c.isprintable() or c in "\t\r\n" for c in text)


def require_tokens(tokens: np.ndarray, *, file: DataFile, split: str, vocabulary: int) -> None:
    """Raise ``UserError`` if numbers cannot be tokens of a vocabulary.

    Args:
        tokens: (n,) uint16 or uint32, a part of a split.
        file: the file of the split.
        split: its name.
        vocabulary: number of token ids.
    """
    if len(tokens) >= FEW:
        _require_width(tokens, file.path, vocabulary)
        if tokens.min() == tokens.max():
            read = f"all {len(tokens):,} numbers of {file.path} that were read are {int(tokens[0]):,}"
            raise UserError(f"{file.option}: expected different tokens in {split}, but {read}")
    if (largest := int(tokens.max())) >= vocabulary:
        hint = _hint(tokens, vocabulary)
        raise UserError(f"vocabulary: expected more than {largest:,}, a token of {file.path}, got {vocabulary:,}{hint}")


def _require_width(tokens: np.ndarray, path: Path, vocabulary: int) -> None:
    """Raise ``UserError`` if numbers alternate between the lower and upper halves of a wider type."""
    kind, size = tokens.dtype.name, tokens.dtype.itemsize
    even = tokens[: len(tokens) // 4 * 4]
    first, second = even[0::2], even[1::2]
    if first.any() != second.any():
        quarters = even.reshape(-1, 4)
        wider = 4 * size if size == 2 and sum(bool(quarters[:, i].any()) for i in range(4)) == 1 else 2 * size
        named = "uint32" if wider == 4 else f"{wider}-byte numbers"
        order = "" if first.any() else ", the most significant bytes first"
        raise UserError(f"dtype: expected {kind}, but every second number of {path} is 0, as in a file of {named}{order}")
    if size == 2 and vocabulary > 1 << 16 and _alternate(tokens):
        raise UserError(
            f"dtype: expected uint32 for a vocabulary of {vocabulary:,}, got {kind}, as which the numbers of {path} alternate"
        )


def _alternate(tokens: np.ndarray) -> bool:
    """Return True if the bytes of numbers differ in distribution between positions, as the bytes of wider numbers do."""
    if len(tokens) < 4 * MANY:
        return False
    columns = tokens[: len(tokens) // 4 * 4].reshape(-1, 4)
    for values in (columns >> 8, columns & 255):
        shares = np.stack([np.bincount(column, minlength=256) / len(values) for column in values.T])
        if (np.abs(shares[:, None] - shares[None]).sum(-1) / 2).max() > ALTERNATING:  # the total variation distance
            return True
    return False


def _hint(tokens: np.ndarray, vocabulary: int) -> str:
    """Return a guess at why numbers do not fit into the vocabulary; "" without one."""
    whole = np.ascontiguousarray(tokens)
    size = whole.dtype.itemsize
    if int(whole.byteswap().max()) < vocabulary:
        return "; they fit with their bytes in the other order: is it a big-endian file?"
    signed = whole.view(f"i{size}")
    if (signed < 0).any() and int(signed.min()) >= -SENTINEL and int(signed.max()) < vocabulary:
        return f"; is it a file of signed numbers, with {int(signed.min())} for {int(whole.max()):,}?"
    if size == 4 and _are_whole(whole.view("f4")):
        return "; is it a file of float32?"
    for kind in ("uint16", "uint8"):
        if np.dtype(kind).itemsize < size and _is_narrower(whole.view(kind), size // np.dtype(kind).itemsize, vocabulary):
            return f"; is it a file of {kind}?"
    return "; is it a file of uint16?" if size == 4 and int(whole.max()) >= 1 << 20 else ""


def _are_whole(numbers: np.ndarray) -> bool:
    return bool(np.isfinite(numbers).all() and (numbers == np.round(numbers)).all())


def _is_narrower(tokens: np.ndarray, parts: int, vocabulary: int) -> bool:
    """Return True if numbers fit into the vocabulary, and are alike at all ``parts`` positions, like narrower numbers."""
    return int(tokens.max()) < vocabulary and _distance(tokens, parts) <= ALTERNATING


def _is_of_bytes(tokens: np.ndarray) -> bool:
    """Return True if the halves of uint16 numbers are alike, and far from uniform, as the bytes of hashed tokens are."""
    return _distance(tokens.view(np.uint8), 2) <= ALIKE and _entropy(tokens & 255) < UNIFORM


def _distance(tokens: np.ndarray, parts: int) -> float:
    """Return the largest total variation distance between the numbers at ``parts`` positions in turn."""
    columns = tokens[: len(tokens) // parts * parts].reshape(-1, parts).T.astype(np.int64)
    shares = np.stack([np.bincount(column, minlength=int(tokens.max()) + 1) / len(column) for column in columns])
    return float((np.abs(shares - shares[:1]).sum(-1) / 2).max())


def token_notes(tokens: np.ndarray, *, first: int, path: Path, split: str, vocabulary: int) -> Iterator[str]:
    """Yield notes on the tokens of a split that are unusual.

    Args:
        tokens: (n,) the split, memory-mapped.
        first: the most numbers to read of either end.
        path: the file of the split.
        split: its name.
        vocabulary: number of token ids.
    """
    head, tail, name = np.asarray(tokens[:first]), np.asarray(tokens[-first:]), f"{split} ({path.name})"
    if len(head) < FEW:
        return
    lead, rest = head[:LEAD], head[LEAD:]
    if len(rest) >= LEAD and (lead == 0).mean() > 0.8 and (rest == 0).mean() < 0.2:
        yield f"most of the first {LEAD} tokens of {name} are 0, and few of the others: is it a header?"
    different = np.flatnonzero(tail != tail[-1])
    run = len(tail) - 1 - int(different[-1]) if len(different) else len(tail)
    if run > max(FEW, len(tokens) // 100):
        least = "" if len(different) else "at least "
        yield f"{least}the last {run:,} tokens of {name} are all {int(tail[-1]):,}: is the file longer than its content?"
    if (np.diff(head.astype(np.int64)) >= 0).all():
        yield f"the tokens of {name} never decrease: are they in the order of a text?"
    counts = np.bincount(head)
    if (share := counts.max() / len(head)) > PADDED:
        yield f"{100 * share:.0f} % of the tokens of {name} are {int(counts.argmax()):,}: are rows padded?"
    if tokens.dtype.itemsize == 2 and len(head) >= 4 * MANY and _is_of_bytes(head):
        yield f"the upper and the lower bytes of the tokens of {name} are alike: is it a file of uint8?"
    if tokens.dtype.itemsize == 2 and _alternate(head):
        yield f"the tokens of {name} alternate between different ranges: is it a file of wider numbers?"
    if split == "train":
        largest = int(max(head.max(), tail.max()))
        if 2 * largest < vocabulary and len(head) >= MANY:
            yield f"the largest token of {name} is {largest:,}, of a vocabulary of {vocabulary:,}"
        if tokens.dtype.itemsize == 2 and len(head) >= MANY and _entropy(head >> 8) > _entropy(head & 255) + SWAPPED:
            yield f"the upper bytes of the tokens of {name} vary more than the lower ones: is it a big-endian file?"


def _entropy(values: np.ndarray) -> float:
    """Return the bits of the frequencies of values below 256."""
    shares = np.bincount(values, minlength=256) / len(values)
    shares = shares[shares > 0]
    return float(-(shares * np.log2(shares)).sum())
