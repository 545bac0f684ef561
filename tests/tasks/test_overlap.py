"""Tests of the overlap of splits: planted passages are found wherever they stand, and a study reports them."""

from pathlib import Path

import numpy as np
import pytest

from attnlab.planning.plan import plan
from attnlab.report import write as report
from attnlab.study.comparison import load_info
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.run import run
from attnlab.tasks import overlap as module
from attnlab.tasks.enwik8 import Enwik8
from attnlab.tasks.overlap import WINDOW, Overlap
from attnlab.tracking.runs import load_curves, load_runs
from tests.support.studies import STUDY, write


def overlap(train: np.ndarray, test: np.ndarray) -> Overlap:
    (result,) = module.overlap(train, test)
    return result


def noise(count: int, *, seed: int, kind: str = "uint8") -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size=count).astype(kind)


def planted(kind: str, *, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a train and a test of noise, with passages of test in train: about a quarter of its windows."""
    train, test = noise(90_001, seed=1, kind=kind), noise(40_000, seed=2, kind=kind)
    for i in range(5):
        train[i * 11_003 + shift :][:2_000] = test[i * 8_000 :][:2_000]
    return train, test


@pytest.mark.parametrize("kind", ["uint8", "<u2", "<u4"])
@pytest.mark.parametrize("shift", [0, 1, 5])
def test_the_share_of_samples_estimates_the_share_of_all_windows(
    kind: str, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = planted(kind, shift=shift)
    size = WINDOW // test.itemsize
    known = {train[i : i + size].tobytes() for i in range(len(train) - size + 1)}
    share = float(np.mean([test[i : i + size].tobytes() in known for i in range(len(test) - size + 1)]))
    assert 0.2 < share < 0.3
    assert overlap(train, test).share == share, "small splits are compared whole"
    monkeypatch.setattr(module, "SAMPLES", train.nbytes // 64)
    result = overlap(train, test)
    assert 300 < result.windows < len(test) // 16
    assert result.share == pytest.approx(share, abs=4 * (share * (1 - share) / result.windows) ** 0.5)
    assert overlap(noise(90_001, seed=3, kind=kind), test).shared == 0
    assert overlap(test, test).share == 1


def test_parts_are_joined_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = planted("uint8", shift=3)
    whole = overlap(train, test)
    monkeypatch.setattr(module, "PART", 1 << 12)
    assert overlap(train, test) == whole


def test_a_large_train_is_read_in_parts_and_the_share_is_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = planted("uint8", shift=3)
    whole = overlap(train, test)
    monkeypatch.setattr(module, "PART", 1 << 10)
    monkeypatch.setattr(module, "MOST", 1 << 15)
    some = overlap(train, test[:20_000])
    assert some.partial and not whole.partial and 0 < some.share < 0.9 * whole.share


def test_the_check_misses_passages_with_a_change_in_every_window() -> None:
    """As documented: a passage with one changed byte in every window."""
    test = noise(20_000, seed=2)
    train = test.copy()
    train[:: WINDOW // 2] += 1
    assert overlap(train, test).shared == 0


# ---------------------------------------------------------------- in a study

TEXT = noise(9_000, seed=4) % 127 + 1  # in ASCII, without NUL bytes
PASSAGE = TEXT[2_000:2_500]
OPTIONS = {  # task -> its files, options, and a word of its note
    "text": ("{name: text, path: train.txt, test: test.txt, length: 24}", "test.txt"),
    "tokens": ("{name: tokens, path: train.npy, test: test.npy, vocabulary: 256, length: 24}", "tokens"),
    "csv": ("{name: csv, path: train.csv, test: test.csv, length: 24}", "of the 80 texts of test"),
}


@pytest.fixture
def corpus(folders: Path) -> Path:
    """Files of each task; a part of each test is in train."""
    other = noise(700, seed=5) % 127 + 1
    for name, items in (("train", TEXT), ("test", np.concatenate([PASSAGE, other])), ("other", other)):
        (folders / f"{name}.txt").write_bytes(items.tobytes())
        np.save(folders / f"{name}.npy", items)
    lines = [f"text number {i},{'good' if i % 2 else 'bad'}\n" for i in range(200)]
    for name, part in (("train", lines[:120]), ("test", lines[80:160]), ("other", lines[120:])):
        (folders / f"{name}.csv").write_text("text,label\n" + "".join(part), encoding="utf-8")
    return folders


@pytest.mark.parametrize("name", OPTIONS)
def test_the_plan_notes_test_data_inside_train(name: str, corpus: Path) -> None:
    task, word = OPTIONS[name]
    text = STUDY.replace("{name: pydocs, length: 24}", task)
    (note,) = [note for note in plan(write(corpus, text)).notes if "memorized" in note]
    assert note.startswith("data: ") and word in note and "train" in note
    separate = plan(write(corpus, text.replace("test: test", "test: other")))
    assert not [note for note in separate.notes if "memorized" in note]


@pytest.mark.parametrize("name", OPTIONS)
def test_the_plan_notes_that_valid_is_test(name: str, corpus: Path) -> None:
    """A checkpoint that is selected on valid is then selected on test."""
    task = OPTIONS[name][0].replace("test: test", "test: other")
    suffix = task.partition("other.")[2].partition(",")[0]
    (corpus / f"copy.{suffix}").write_bytes((corpus / f"other.{suffix}").read_bytes())
    text = STUDY.replace("{name: pydocs, length: 24}", task.replace(", length", f", valid: copy.{suffix}, length"))
    (note,) = [note for note in plan(write(corpus, text)).notes if "are the same" in note]
    assert f"valid (copy.{suffix}) and test (other.{suffix}) are the same" in note


OWN = """
from attnlab.tasks.pydocs import PyDocs


class Own(PyDocs):
    def data_notes(self):
        return 1 / 0
"""


@pytest.mark.real
def test_the_note_of_enwik8_is_measured(real_data: Path) -> None:
    task = Enwik8()
    valid, test = module.overlap(task.split("train"), task.split("valid"), task.split("test"))
    assert f"{100 * valid.share:.1f} % of valid and {100 * test.share:.1f} % of test" in task.data_notes()[0]


def test_the_report_repeats_the_note(corpus: Path, root: Path) -> None:
    task, _ = OPTIONS["text"]
    planned = plan(write(corpus, STUDY.replace("{name: pydocs, length: 24}", task)))
    (note,) = [note for note in planned.notes if note.startswith("data: ")]
    run(planned, root=root, display=ProgressDisplay(quiet=True), train="tests.support.study_fakes:good", reference_scores=False)
    runs = load_runs("s", root)
    assert list(runs["data_notes"]) == [[note.removeprefix("data: ")]] * len(runs)
    report.write(corpus / "page", info=load_info("s", root)[0], runs=runs, curves=load_curves("s", root))
    assert note.removeprefix("data: ") in (corpus / "page" / "README.md").read_text(encoding="utf-8")
