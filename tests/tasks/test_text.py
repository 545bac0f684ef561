"""Tests of ``text``: one file that is split, or files of its own for ``valid`` and ``test``."""

import gzip
import lzma
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.tasks.csv import Csv
from attnlab.tasks.parallel import Parallel
from attnlab.tasks.text import Text
from attnlab.tasks.tokens import Tokens
from tests.support.studies import STUDY, misplanned, write

TRAIN, VALID, TEST = (bytes(range(start, start + 60)) * 10 for start in (1, 70, 140))
SPLITS = ("train", "valid", "test")


@pytest.fixture
def corpus(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folders)
    for name, contents in zip(SPLITS, (TRAIN, VALID, TEST), strict=True):
        (folders / f"{name}.txt").write_bytes(contents)
    return folders


def splits(task: Text) -> list[bytes]:
    return [task.split(name).tobytes() for name in SPLITS]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, [TRAIN[:540], TRAIN[540:570], TRAIN[570:]]),
        ({"valid": "valid.txt", "test": "test.txt"}, [TRAIN, VALID, TEST]),
        ({"test": "test.txt"}, [TRAIN[:570], TRAIN[570:], TEST]),
        ({"valid": "valid.txt"}, [TRAIN[:570], VALID, TRAIN[570:]]),
    ],
)
def test_a_split_without_a_file_is_the_end_of_path(files: dict[str, Any], expected: list[bytes], corpus: Path) -> None:
    task = Text(path="train.txt", length=16, **files)
    sizes = [len(contents) for contents in expected]
    assert task.cuts() == (sizes[0], sizes[0] + sizes[1], sum(sizes))  # known before the data are read
    assert task.steps_per_epoch(4) == (sizes[0] - 1) // 64
    assert splits(task) == expected
    assert Text(path="train.txt", length=16, **files).identity() == task.identity()


@pytest.mark.parametrize("name", SPLITS)
def test_a_change_of_any_file_is_another_identity_and_a_read_text_keeps_its_own(name: str, corpus: Path) -> None:
    options: dict[str, Any] = {"path": "train.txt", "valid": "valid.txt", "test": "test.txt"}
    task, before = Text(length=16, **options), Text(length=16, **options).identity()
    task.prepare()
    (corpus / f"{name}.txt").write_bytes(b"another text " * 40)
    assert Text(length=16, **options).identity() != before
    assert task.identity() == before and splits(task) == [TRAIN, VALID, TEST]


def test_small_and_missing_files_are_named_with_their_option(corpus: Path) -> None:
    (corpus / "one.txt").write_bytes(b"x")
    for option in ("valid", "test"):
        with pytest.raises(UserError, match=f"^{option}: .*does not exist"):
            Text(path="train.txt", length=16, **{option: "none.txt"})  # type: ignore[arg-type]
        with pytest.raises(UserError, match=f"^{option}: .*at least 2 bytes in {option}, got 1 from .*one.txt"):
            Text(path="train.txt", length=16, **{option: "one.txt"})  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"^path: .*at least 601 bytes in train, got 600 from .*test.txt"):
        Text(path="test.txt", valid="valid.txt", test="test.txt", length=600)
    Text(path="test.txt", valid="valid.txt", test="test.txt", length=599)


def study(folder: str = "") -> str:
    """Return a study over the three files in ``folder``."""
    files = ", ".join(f"{option}: {folder}{name}.txt" for option, name in zip(("path", *SPLITS[1:]), SPLITS, strict=True))
    return STUDY.replace("{name: pydocs, length: 24}", f"{{name: text, {files}, length: 24}}")


def test_files_of_a_study_are_relative_to_it_and_mistakes_have_their_place(corpus: Path) -> None:
    options = plan(write(corpus / "lab", study("../"))).cells[0].config.task.options
    assert [options[name] for name in ("path", "valid", "test")] == [str(corpus / f"{name}.txt") for name in SPLITS]
    line = misplanned(write(corpus, study().replace("test: test.txt", "test: tset.txt")))
    assert line.startswith("s.yaml:3:") and "task.test" in line and "did you mean 'test.txt'" in line


def test_a_moved_project_keeps_its_fingerprints(corpus: Path) -> None:
    for name in SPLITS:
        (corpus / "moved").mkdir(exist_ok=True)
        (corpus / "moved" / f"{name}.txt").write_bytes((corpus / f"{name}.txt").read_bytes())
    first, moved = plan(write(corpus, study())), plan(write(corpus / "moved", study()))
    assert [cell.config.fingerprint() for cell in first.cells] == [cell.config.fingerprint() for cell in moved.cells]
    (corpus / "moved" / "test.txt").write_bytes(TRAIN)
    changed = plan(corpus / "moved" / "s.yaml")
    assert not {cell.config.fingerprint() for cell in first.cells} & {cell.config.fingerprint() for cell in changed.cells}


# ---------------------------------------------------------------- files that are no text

WORDS = "Der Hund sieht, was für ein Haus das ist.\nEr bellt.\n" * 90
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 1234567\n"


@pytest.mark.parametrize("option", ["path", "test"])
@pytest.mark.parametrize(
    "contents",
    [
        gzip.compress(WORDS.encode()),
        lzma.compress(WORDS.encode()),
        WORDS.encode("utf-16"),
        pickle.dumps(WORDS.split()),
        b"PAR1\x15\x04\x15\x80\x00" + WORDS.encode() + b"PAR1",
        POINTER.encode(),
    ],
    ids=["gzip", "xz", "utf-16", "pickle", "parquet", "pointer"],
)
def test_a_file_that_is_no_text_is_refused_by_all_readers_of_texts(option: str, contents: bytes, corpus: Path) -> None:
    (corpus / "odd.csv").write_bytes(contents)
    with pytest.raises(UserError, match=rf"^{option}: expected a text.*odd.csv") as refusal:
        Text(**{"path": "train.txt", "length": 16, option: "odd.csv"})
    assert "\n" not in str(refusal.value)
    (corpus / "good.csv").write_text("text,label\n" + "".join(f"{i},{i % 2}\n" for i in range(99)), encoding="utf-8")
    with pytest.raises(UserError, match=rf"^{option}: expected a text.*odd.csv"):
        Csv(**{"path": "good.csv", option: "odd.csv"})  # type: ignore[arg-type]
    (corpus / "train.de").write_text(WORDS, encoding="utf-8")
    with pytest.raises(UserError, match="^target: expected a text.*odd.csv"):
        Parallel(source="train.de", target="odd.csv")
    np.save(corpus / "tokens.npy", np.arange(99))
    with pytest.raises(UserError, match="^token_bytes: expected a text.*odd.csv"):
        Tokens(path="tokens.npy", length=16, vocabulary=99, token_bytes="odd.csv")


def test_a_text_that_is_not_utf8_is_noted(corpus: Path) -> None:
    for encoding in ("utf-8", "latin-1"):
        (corpus / "train.txt").write_bytes(WORDS.encode(encoding))
        (corpus / "test.txt").write_bytes(WORDS.encode()[:-2] + "ü".encode()[:1])  # cut within a character
        noted = any("train.txt: not UTF-8" in note for note in Text(path="train.txt", test="test.txt", length=16).data_notes())
        assert noted is (encoding == "latin-1")


def test_the_role_of_a_file_is_part_of_the_identity(corpus: Path) -> None:
    one = Text(path="train.txt", valid="valid.txt", test="test.txt", length=16)
    other = Text(path="train.txt", valid="test.txt", test="valid.txt", length=16)
    assert one.identity() != other.identity()
    assert splits(other) == [TRAIN, TEST, VALID] and splits(one) == [TRAIN, VALID, TEST]
