"""Tests of archives: the contents, not the bytes of the archive, identify the data set."""

import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

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


@pytest.mark.real
def test_the_real_archive_of_enwik8(real_data: Path):  # that of IMDb: tests/tasks/test_imdb.py
    assert archives.ENWIK8.contents in datasets.verify(datasets.find("enwik8"))
