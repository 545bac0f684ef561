"""Archives of data sets: their addresses, and functions that read and verify their contents.

The *contents* are verified, so another archive of the same contents is accepted, too. Only expected members are read, in
memory; nothing is unpacked onto the disk, so that no name, link or device in an archive can escape from it. The unpacked
size is limited, which protects against decompression bombs.
"""

import gzip
import hashlib
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from attnlab.errors import UserError

REVIEWS_PER_FOLDER = 12_500


@dataclass(frozen=True)
class Source:
    """The archive of a data set.

    Args:
        name: the data set's name on the command line.
        file: path of the archive in the folder of archives; a copy placed by hand must have it.
        url: the original address.
        size: bytes of the original archive.
        md5: checksum of the original archive; "" if only that of the contents is published.
        contents: checksum of the contents, as ``read`` computes it.
        unpacked: the most bytes that the archive may unpack to.
        read: (source, path) -> (verified contents, one line that describes the archive); raises ``UserError``.
        others: names of files that may hold the same contents without the archive, for example uncompressed.
    """

    name: str
    file: str
    url: str
    size: int
    md5: str
    contents: str
    unpacked: int
    read: Callable[["Source", Path], tuple[Any, str]]
    others: tuple[str, ...] = ()

    def place(self, folder: Path) -> Path:
        """Return the path in the folder of archives: the archive's, or that of the first other file if only it exists."""
        archive = folder / self.file
        others = (folder / name for name in self.others)
        return archive if archive.exists() else next((path for path in others if path.exists() and not path.is_dir()), archive)

    @property
    def data_set(self) -> str:
        """The name without that of the file, if the data set has several files: ``multi30k`` of ``multi30k/train.de``."""
        return self.name.partition("/")[0]


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _mismatch(source: Source, path: Path, expected: str, actual: str) -> UserError:
    size = path.stat().st_size
    original = f"{source.size:,} bytes" + (f", md5 {source.md5}" if source.md5 else "")
    return UserError(
        f"{path} is not {source.name}: expected {expected}, found {actual} (the file has {size:,} bytes, md5 "
        f"{_md5(path)}; the original {original})"
    )


def read_member(source: Source, path: Path) -> tuple[bytes, str]:
    """Read the member of a zip file that is named like the source, or one of ``source.others``: ``NAME.xz`` or ``NAME``.

    ``source.contents`` is the md5 of the member.
    """
    kind = {"": "a file", ".xz": "an xz file"}.get(path.suffix, f"a zip file with a member {source.name!r}")
    expected = f"{kind} of md5 {source.contents}"
    try:
        with _open_member(source.name, path) as member:
            contents = _Bounded(member, source.unpacked).read()
    except KeyError:
        raise _mismatch(source, path, expected, "no such member") from None
    except Exception as error:  # a damaged or hostile archive may make the libraries raise anything
        raise _mismatch(source, path, expected, f"a broken or incomplete file ({error})") from error
    digest = hashlib.md5(contents).hexdigest()
    if digest != source.contents:
        raise _mismatch(source, path, expected, f"{len(contents):,} bytes of md5 {digest}")
    original = path.stat().st_size == source.size
    which = "the original archive" if original else "another file of the same contents"
    return contents, f"{which}, md5 of {source.name} {digest}"


@contextmanager
def _open_member(name: str, path: Path) -> Iterator[IO[bytes]]:
    if path.suffix == ".xz":
        import lzma  # some builds of Python lack it

        with lzma.open(path) as member:
            yield member
    elif path.suffix == "":
        with path.open("rb") as member:
            yield member
    else:
        with zipfile.ZipFile(path) as archive, archive.open(name) as member:
            yield member


class _Bounded:
    """A stream that raises ``ValueError`` after more than ``most`` bytes."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, most: int) -> None:
        self._stream, self._most, self._left = stream, most, most

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(self._left + 1 if size < 0 else min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {self._most:,} bytes")
        return data


_REVIEW = re.compile(r"(?:\./)?aclImdb/((train|test)/(pos|neg)/\d+_\d+\.txt)")


def read_reviews(source: Source, path: Path) -> tuple[dict[str, bytes], str]:
    """Read the labelled reviews of an IMDb archive, by name (``train/pos/0_9.txt``) in sorted order.

    ``source.contents`` is the sha256 over names, lengths and texts in that order; the order in the archive does not matter.
    """
    reviews: dict[str, bytes] = {}
    unlabelled = 0
    expected = f"{REVIEWS_PER_FOLDER:,} reviews in each labelled folder"
    try:
        with gzip.open(path) as raw, tarfile.open(fileobj=_Bounded(raw, source.unpacked), mode="r|") as archive:  # type: ignore[arg-type]
            for member in archive:
                unlabelled += member.name.removeprefix("./").startswith("aclImdb/train/unsup/")
                match = _REVIEW.fullmatch(member.name)
                if match and member.isreg() and not member.issparse():  # a sparse member could be of any size
                    reviews[match[1]] = archive.extractfile(member).read()  # type: ignore[union-attr]  # a regular file
    except Exception as error:  # as in read_member
        raise _mismatch(source, path, expected, f"a broken or incomplete file ({error})") from error
    for place in ("train/pos", "train/neg", "test/pos", "test/neg"):
        count = sum(name.startswith(place) for name in reviews)
        if count != REVIEWS_PER_FOLDER:
            raise _mismatch(source, path, expected, f"{count:,} in {place}")
    reviews = dict(sorted(reviews.items()))
    digest = hashlib.sha256()
    for name, text in reviews.items():
        digest.update(f"{name} {len(text)}\n".encode())
        digest.update(text)
    if digest.hexdigest() != source.contents:
        expected = f"labelled reviews of sha256 {source.contents}"
        raise _mismatch(source, path, expected, f"sha256 {digest.hexdigest()}")
    return reviews, f"{_describe_archive(source, path, unlabelled)}, sha256 of the {len(reviews):,} as expected"


def _describe_archive(source: Source, path: Path, unlabelled: int) -> str:
    if path.stat().st_size == source.size and _md5(path) == source.md5:
        return "the original archive"
    return "another archive with unlabelled reviews" if unlabelled else "an archive of labelled reviews only"


def read_gzip(source: Source, path: Path) -> tuple[bytes, str]:
    """Read a gzipped file; ``source.contents`` is the sha256 of what it unpacks to."""
    expected = f"a gzipped text of sha256 {source.contents}"
    try:
        with gzip.open(path) as raw:
            contents = _Bounded(raw, source.unpacked).read()
    except Exception as error:  # as in read_member
        raise _mismatch(source, path, expected, f"a broken or incomplete file ({error})") from error
    digest = hashlib.sha256(contents).hexdigest()
    if digest != source.contents:
        raise _mismatch(source, path, expected, f"{len(contents):,} bytes of sha256 {digest}")
    original = path.stat().st_size == source.size and _md5(path) == source.md5
    which = "the original file" if original else "another archive of the same text"
    lines = contents.count(b"\n")
    return contents, f"{which}, {lines:,} lines"


ENWIK8 = Source(
    name="enwik8",
    file="enwik8.zip",
    url="http://mattmahoney.net/dc/enwik8.zip",
    size=36_445_475,
    md5="",
    contents="a1fa5ffddb56f4953e226637dabbb36a",
    unpacked=100_000_000,
    read=read_member,
    others=("enwik8.xz", "enwik8"),
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
_MULTI30K_FILES = {  # name, bytes and md5 of the file, sha256 of its text
    ("train", "de"): (
        "train",
        637_044,
        "81ff90b99829c0cd4b1b587d394afd39",
        "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    ),
    ("train", "en"): (
        "train",
        568_929,
        "0065d13af80720a55ca8153d126e6627",
        "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    ),
    ("train", "fr"): (
        "train",
        604_242,
        "6cb767741dcad3931f966fefbc05203f",
        "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
    ),
    ("valid", "de"): (
        "val",
        24_681,
        "6e0e229eb049e3fc99a1ef02fb2d5f91",
        "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    ),
    ("valid", "en"): (
        "val",
        21_650,
        "2b69aa9253948ac9f67e94917272dd40",
        "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    ),
    ("valid", "fr"): (
        "val",
        23_001,
        "93fc564584b7e5ba410c761ea5a1c682",
        "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
    ),
    ("test", "de"): (
        "test_2016_flickr",
        22_890,
        "efd67d314d98489b716b145475101932",
        "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    ),
    ("test", "en"): (
        "test_2016_flickr",
        21_077,
        "ff2c0fcb4893a13bd73414306bc250ae",
        "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    ),
    ("test", "fr"): (
        "test_2016_flickr",
        22_310,
        "08dc7cd4a662f31718412de95ca9bfe3",
        "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
    ),
}
MULTI30K_PAIRS = {"train": 29_000, "valid": 1_014, "test": 1_000}
_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
MULTI30K = {
    (split, language): Source(
        name=f"multi30k/{file}.{language}",
        file=f"multi30k/{file}.{language}.gz",
        url=f"{_MULTI30K}/{file}.{language}.gz",
        size=size,
        md5=md5,
        contents=contents,
        unpacked=2**23,
        read=read_gzip,
    )
    for (split, language), (file, size, md5, contents) in _MULTI30K_FILES.items()
}
SOURCES = {source.name: source for source in (ENWIK8, IMDB, *MULTI30K.values())}
