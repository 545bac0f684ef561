"""Tests of archives: the contents, not the bytes of the archive, identify the data set."""

import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.tasks import archives, datasets
from attnlab.tasks.archives import Source, read_reviews

REVIEWS = {
    f"{half}/{label}/{number}_{8 if label == 'pos' else 2}.txt": f"{half} {label} {number}".encode()
    for half in ("train", "test")
    for label in ("pos", "neg")
    for number in range(3)
}


def tarred(reviews: dict[str, bytes], *, also: dict[str, bytes] | None = None) -> bytes:
    buffer = io.BytesIO()
    members = {f"aclImdb/{name}": text for name, text in reviews.items()} | (also or {})
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    return buffer.getvalue()


def place(folders: Path, contents: bytes) -> Path:
    (folders / "data").mkdir(exist_ok=True)
    path = folders / "data" / "r.tar.gz"
    path.write_bytes(contents)
    return path


@pytest.fixture
def reviews(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setattr(archives, "REVIEWS_PER_FOLDER", 3)
    digest = hashlib.sha256()
    for name in sorted(REVIEWS):
        digest.update(f"{name} {len(REVIEWS[name])}\n".encode() + REVIEWS[name])
    return Source("reviews", "r.tar.gz", "http://nowhere/", 7, "0" * 32, digest.hexdigest(), read_reviews)


def test_the_reviews_do_not_depend_on_the_archive(reviews: Source, folders: Path):
    place(folders, tarred(REVIEWS))
    assert datasets.load(reviews) == REVIEWS
    assert "an archive of labelled reviews only" in datasets.verify(reviews)

    others = {"aclImdb/train/unsup/0_0.txt": b"", "../evil": b""}
    backwards = tarred(dict(reversed(REVIEWS.items())), also=others)
    path = place(folders, backwards)
    assert list(datasets.load(reviews)) == sorted(REVIEWS)
    assert "another archive with unlabelled reviews" in datasets.verify(reviews)
    assert [p.name for p in folders.rglob("*")] == ["data", "r.tar.gz"]  # nothing was unpacked

    whole = replace(reviews, size=len(backwards), md5=hashlib.md5(path.read_bytes()).hexdigest())
    assert "the original archive" in datasets.verify(whole)


def test_missing_and_changed_reviews_are_found(reviews: Source, folders: Path):
    fewer = dict(list(REVIEWS.items())[:-1])
    place(folders, tarred(fewer))
    with pytest.raises(UserError, match="found 2 in test/neg"):
        datasets.load(reviews)
    place(folders, tarred(REVIEWS | {"train/pos/0_8.txt": b"changed"}))
    with pytest.raises(UserError, match=f"expected labelled reviews of sha256 {reviews.contents}"):
        datasets.load(reviews)
    place(folders, tarred(REVIEWS)[:-60])
    with pytest.raises(UserError, match="r.tar.gz"):
        datasets.load(reviews)


def zipped(reviews: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("reviews", b"".join(reviews.values()))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_damaged_archives_are_refused(kind: str, reviews: Source, folders: Path):
    """An irrelevant bit (of a date, say) may flip; every other change is refused, in one line."""
    whole: Any = REVIEWS if kind == "tar" else b"".join(REVIEWS.values())
    if kind == "zip":
        reviews = replace(reviews, contents=hashlib.md5(whole).hexdigest(), read=archives.read_member)
    good = tarred(REVIEWS) if kind == "tar" else zipped(REVIEWS)
    flipped = [good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1 :] for i in range(len(good))]
    refused = 0
    for contents in [*flipped, *(good[:n] for n in range(len(good)))]:
        place(folders, contents)
        try:
            assert datasets.load(reviews) == whole
        except UserError as error:
            assert "\n" not in str(error) and str(error).endswith("; delete it to download it again")
            refused += 1
    assert refused > 1.5 * len(good)


@pytest.mark.real
def test_the_real_archive_of_enwik8(real_data: Path):  # that of IMDb: tests/tasks/test_imdb.py
    assert archives.ENWIK8.contents in datasets.verify(datasets.find("enwik8"))


def test_a_name_in_a_zip_file_reaches_nowhere(reviews: Source, folders: Path):
    """Only one member of a zip file is read, by its name; a link's contents are the path that it points to."""
    buffer = io.BytesIO()
    link = zipfile.ZipInfo("reviews")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("../attnlab-was-here", "/tmp/attnlab-was-here"):
            archive.writestr(name, b"x")
        archive.writestr(link, b"/etc/passwd")
    place(folders, buffer.getvalue())
    with pytest.raises(UserError, match=r"found 11 bytes of md5"):
        datasets.load(replace(reviews, read=archives.read_member))
    assert [p.name for p in folders.rglob("*")] == ["data", "r.tar.gz"]
    assert not list(Path("/tmp").glob("attnlab-was-here*"))
