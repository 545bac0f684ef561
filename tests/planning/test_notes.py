"""Tests of the notes of a plan on tasks: data that is not held out, and a metric with an unusual direction."""

from pathlib import Path

import pytest

from attnlab.planning.plan import plan
from tests.support.studies import STUDY, write

TRAIN, OTHER = (" ".join(f"word{n * factor % 99991}" for n in range(1, 2_000)).encode() for factor in (7919, 104_729))


def notes(folder: Path, task: str, *, base: str = STUDY) -> list[str]:
    return plan(write(folder, base.replace("{name: pydocs, length: 24}", task))).notes


@pytest.mark.parametrize(
    ("valid", "test", "splits"),
    [
        (OTHER, OTHER[::-1], []),
        (OTHER, TRAIN, ["test"]),
        (OTHER, TRAIN[4_000:9_000], ["test"]),
        (TRAIN[100:3_000], TRAIN[4_000:9_000], ["valid", "test"]),
        (OTHER, OTHER + TRAIN[4_000:6_000], ["test"]),
        (OTHER, OTHER + TRAIN[4_000:4_080], []),  # a small part may repeat
    ],
)
def test_text_that_is_in_train_too_is_noted(valid: bytes, test: bytes, splits: list[str], tmp_path: Path) -> None:
    for name, contents in (("train", TRAIN), ("valid", valid), ("test", test)):
        (tmp_path / f"{name}.txt").write_bytes(contents)
    task = "{name: text, path: train.txt, valid: valid.txt, test: test.txt, length: 24}"
    overlaps = [note for note in notes(tmp_path, task) if "also occurs in train" in note]
    assert [note.partition(" % of ")[2].partition(" ")[0] for note in overlaps] == splits


def test_a_text_that_is_split_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(TRAIN)
    assert notes(tmp_path, "{name: text, path: train.txt, length: 24}") == []


def test_reviews_that_are_in_train_too_are_noted(tmp_path: Path) -> None:
    rows = [f"{'good' if n % 2 else 'bad'} text number {n},{n % 2}" for n in range(200)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]))
    (tmp_path / "test.csv").write_text("\n".join(["text,label", *rows[:20], "another text,1"]))
    texts = notes(
        tmp_path,
        "{name: csv, path: train.csv, test: test.csv, length: 24}",
        base=STUDY.replace(", {name: strided_sparse, stride: 7}", ""),
    )
    (text,) = [text for text in texts if "memorized" in text]
    assert "of the 21 texts of test" in text


TASK = """
from attnlab import register_task
from attnlab.tasks.pydocs import PyDocs

@register_task("NAME")
class Own(PyDocs):
    metric, direction = "METRIC", "DIRECTION"
"""


@pytest.mark.parametrize(
    ("metric", "direction", "odd"),
    [
        ("accuracy", "min", True),
        ("top5_accuracy", "min", True),
        ("perplexity", "max", True),
        ("accuracy", "max", False),
        ("bits_per_byte", "min", False),
        ("depth", "max", False),
    ],
)
def test_a_metric_with_an_unusual_direction_is_noted(metric: str, direction: str, odd: bool, tmp_path: Path) -> None:
    name = f"own_{metric}_{direction}"
    own = TASK.replace("NAME", name).replace("METRIC", metric).replace("DIRECTION", direction)
    write(tmp_path, own, name=f"{name}.py")
    texts = notes(tmp_path, f"{{name: {name}, length: 24}}", base=STUDY.replace("base:", f"imports: [{name}.py]\nbase:", 1))
    assert [f"{metric} is compared with direction {direction}" in note for note in texts] == [True] * odd
