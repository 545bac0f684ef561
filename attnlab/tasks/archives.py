"""Archives of data sets: their addresses, and functions that read and verify their contents.

The *contents* are verified, so another archive of the same contents is accepted, too. Only expected members are read, in
memory; nothing is unpacked onto the disk.
"""

import gzip
import hashlib
import json
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
        md5: checksum of the original archive; "" if only the checksum of the contents is published.
        contents: checksum of the contents, as ``read`` computes it.
        read: (source, path) -> (verified contents, one line that describes the archive); raises ``UserError``.
        others: names of files that may hold the same contents without the archive, for example uncompressed.
    """

    name: str
    file: str
    url: str
    size: int
    md5: str
    contents: str
    read: Callable[["Source", Path], tuple[Any, str]]
    others: tuple[str, ...] = ()

    def place(self, folder: Path) -> Path:
        """Return the path in the folder of archives: the archive's, or the path of the first other file if only it exists."""
        archive = folder / self.file
        others = (folder / name for name in self.others)
        return archive if archive.exists() else next((path for path in others if path.exists() and not path.is_dir()), archive)

    @property
    def data_set(self) -> str:
        """The name without the file's name, if the data set has several files: ``multi30k`` of ``multi30k/train.de``."""
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
            contents = member.read()
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


_REVIEW = re.compile(r"(?:\./)?aclImdb/((train|test)/(pos|neg)/\d+_\d+\.txt)")


def read_reviews(source: Source, path: Path) -> tuple[dict[str, bytes], str]:
    """Read the labelled reviews of an IMDb archive, by name (``train/pos/0_9.txt``) in sorted order.

    ``source.contents`` is the sha256 over names, lengths and texts in that order; the order in the archive does not matter.
    """
    reviews: dict[str, bytes] = {}
    unlabelled = 0
    expected = f"{REVIEWS_PER_FOLDER:,} reviews in each labelled folder"
    try:
        with tarfile.open(path, mode="r|gz") as archive:
            for member in archive:
                unlabelled += member.name.removeprefix("./").startswith("aclImdb/train/unsup/")
                match = _REVIEW.fullmatch(member.name)
                if match and member.isreg():
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
            contents = raw.read()
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
    read=read_reviews,
)
MULTI30K_PAIRS = {"train": 29_000, "valid": 1_014, "test": 1_000}
_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
MULTI30K = {
    (part["split"], part["language"]): Source(
        name=f"multi30k/{part['file']}.{part['language']}",
        file=f"multi30k/{part['file']}.{part['language']}.gz",
        url=f"{_MULTI30K}/{part['file']}.{part['language']}.gz",
        size=part["size"],
        md5=part["md5"],
        contents=part["sha256"],
        read=read_gzip,
    )
    for part in json.loads(Path(__file__).with_name("multi30k.json").read_text(encoding="utf-8"))
}
SOURCES = {source.name: source for source in (ENWIK8, IMDB, *MULTI30K.values())}
