"""The archives that data sets come in: their addresses, and how the contents of each are read and verified.

What counts are the *contents*: another archive of the same contents is as good as the original. They are read
in memory, under the names that are expected and no others; nothing is unpacked onto the disk, so that no name, link or
device in an archive can reach out of it. How much may come out of one is known beforehand: no bomb goes off.
"""

import gzip
import hashlib
import re
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from attnlab.errors import UserError

REVIEWS_PER_FOLDER = 12_500


@dataclass(frozen=True)
class Source:
    """One data set's archive.

    Args:
        name: what the verbs call it.
        file: the archive's own file name, under which a copy placed by hand is found.
        url: its original address.
        size: bytes of the original archive.
        md5: of the original archive; "" where only that of the contents is published.
        contents: the digest of what matters inside, as ``read`` computes it.
        unpacked: bytes that may come out of the archive at most.
        read: (source, path) -> (the verified contents, a line on which archive it was); raises ``UserError``.
    """

    name: str
    file: str
    url: str
    size: int
    md5: str
    contents: str
    unpacked: int
    read: Callable[["Source", Path], tuple[Any, str]]


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _wrong(source: Source, path: Path, expected: str, found: str) -> UserError:
    size = path.stat().st_size
    original = f"{source.size:,} bytes" + (f", md5 {source.md5}" if source.md5 else "")
    return UserError(
        f"{path} is not {source.name}: expected {expected}, found {found} (the file has {size:,} bytes, md5 "
        f"{_md5(path)}; the original {original})"
    )


def read_member(source: Source, path: Path) -> tuple[bytes, str]:
    """The member called as the source is, of a zip file; ``source.contents`` is its md5."""
    expected = f"a zip file with a member {source.name!r} of md5 {source.contents}"
    try:
        with zipfile.ZipFile(path) as archive, archive.open(source.name) as member:
            contents = _Bounded(member, source.unpacked).read()
    except KeyError:
        raise _wrong(source, path, expected, "no such member") from None
    except Exception as error:  # whatever a damaged or a hostile archive makes the libraries raise
        raise _wrong(source, path, expected, f"a broken or incomplete file ({error})") from error
    found = hashlib.md5(contents).hexdigest()
    if found != source.contents:
        raise _wrong(source, path, expected, f"{len(contents):,} bytes of md5 {found}")
    original = path.stat().st_size == source.size
    which = "the original archive" if original else "another archive of the same contents"
    return contents, f"{which}, md5 of {source.name} {found}"


class _Bounded:
    """A stream that ends in an error where more than ``most`` bytes come out of it."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, most: int) -> None:
        self._stream, self._most, self._left = stream, most, most

    def read(self, size: int = -1) -> bytes:
        some = self._stream.read(self._left + 1 if size < 0 else min(size, self._left + 1))
        self._left -= len(some)
        if self._left < 0:
            raise ValueError(f"more than {self._most:,} bytes come out of it")
        return some


_REVIEW = re.compile(r"(?:\./)?aclImdb/((train|test)/(pos|neg)/\d+_\d+\.txt)")


def read_reviews(source: Source, path: Path) -> tuple[dict[str, bytes], str]:
    """The labelled reviews of an IMDb archive by name (``train/pos/0_9.txt``), names in order.

    ``source.contents`` is the sha256 over names, lengths and texts in that order, whatever the archive's own.
    """
    reviews: dict[str, bytes] = {}
    unlabelled = 0
    expected = f"{REVIEWS_PER_FOLDER:,} reviews in each labelled folder"
    try:
        with gzip.open(path) as raw, tarfile.open(fileobj=_Bounded(raw, source.unpacked), mode="r|") as archive:  # type: ignore[arg-type]
            for member in archive:
                unlabelled += member.name.removeprefix("./").startswith("aclImdb/train/unsup/")
                match = _REVIEW.fullmatch(member.name)
                if match and member.isreg() and not member.issparse():  # one with holes could be of any size
                    reviews[match[1]] = archive.extractfile(member).read()  # type: ignore[union-attr]  # it is regular
    except Exception as error:  # as above
        raise _wrong(source, path, expected, f"a broken or incomplete file ({error})") from error
    for place in ("train/pos", "train/neg", "test/pos", "test/neg"):
        count = sum(name.startswith(place) for name in reviews)
        if count != REVIEWS_PER_FOLDER:
            raise _wrong(source, path, expected, f"{count:,} in {place}")
    reviews = dict(sorted(reviews.items()))
    digest = hashlib.sha256()
    for name, text in reviews.items():
        digest.update(f"{name} {len(text)}\n".encode())
        digest.update(text)
    if digest.hexdigest() != source.contents:
        expected = f"labelled reviews of sha256 {source.contents}"
        raise _wrong(source, path, expected, f"sha256 {digest.hexdigest()}")
    return reviews, f"{_which(source, path, unlabelled)}, sha256 of the {len(reviews):,} as expected"


def _which(source: Source, path: Path, unlabelled: int) -> str:
    if path.stat().st_size == source.size and _md5(path) == source.md5:
        return "the original archive"
    return "another archive with unlabelled reviews" if unlabelled else "an archive of labelled reviews only"


ENWIK8 = Source(
    name="enwik8",
    file="enwik8.zip",
    url="http://mattmahoney.net/dc/enwik8.zip",
    size=36_445_475,
    md5="",
    contents="a1fa5ffddb56f4953e226637dabbb36a",
    unpacked=100_000_000,
    read=read_member,
)
IMDB = Source(
    name="imdb",
    file="aclImdb_v1.tar.gz",
    url="https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    size=84_125_825,
    md5="7c2ac02c03563afcf9b574c7e56c153a",
    contents="07722abb3341e017c7eb226d36c60cee3d927285d55ce069013c94cbf031a6b7",
    unpacked=2**30,  # with the 50,000 unlabelled reviews about a third of that
    read=read_reviews,
)
SOURCES = {source.name: source for source in (ENWIK8, IMDB)}
