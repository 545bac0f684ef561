"""Tests of the notes of a plan on sizes that do not fit the data or the length of the rows."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.planning.plan import plan

LENGTH = 24
TEXT = {"name": "pydocs", "length": LENGTH}


def notes_of(task: dict[str, Any] = TEXT, *, variant: Any = "no_wo", **parts: Any) -> list[str]:
    train = {"steps": 100, "lr": 1e-3, **parts.pop("train", {})}
    base = {"task": task, "model": {"dim": 12, "depth": 1, "heads": 2}, "train": train, **parts.pop("base", {})}
    study = {"study": "s", "base": base, "grid": {"variant": ["dense", variant]}, "baseline": {"variant": "dense"}}
    return plan({**study, **parts}).notes


def window(size: int) -> dict[str, Any]:
    return {"name": "dense", "with": [{"name": "window", "size": size}]}


@pytest.mark.parametrize(
    ("variant", "noted"),
    [
        ({"name": "strided_sparse", "stride": LENGTH}, True),
        ({"name": "strided_sparse", "stride": 1}, True),
        ({"name": "strided_sparse", "stride": 7}, False),
        ({"name": "fixed_sparse", "stride": 30}, True),
        ({"name": "fixed_sparse", "stride": 8, "summary": 8}, True),
        ({"name": "fixed_sparse", "stride": 8, "summary": 2}, False),
        (window(LENGTH), True),
        (window(LENGTH - 1), False),
        ({"name": "dense", "with": [{"name": "moba", "size": 8, "count": 3}]}, True),
        ({"name": "dense", "with": [{"name": "moba", "size": 8, "count": 2}]}, False),
        ({"name": "dsa", "count": LENGTH}, True),
        ({"name": "dsa", "count": LENGTH - 1}, False),
        ({"name": "convolution", "kernel": 100}, True),
        ({"name": "convolution", "kernel": 5}, False),
    ],
)
def test_a_pattern_that_hides_nothing_is_noted(variant: Any, noted: bool) -> None:
    notes = notes_of(variant=variant)
    assert len(notes) == noted
    assert not noted or f"{LENGTH} bytes" in notes[0]


def test_a_pattern_counts_at_the_longest_length_that_is_tested() -> None:
    assert notes_of(variant=window(LENGTH), base={"position": "rotary", "evaluate": {"lengths": [2 * LENGTH]}}) == []


@pytest.mark.parametrize(
    ("evaluate", "train", "margin", "fields"),
    [
        ({"valid_limit": 5, "test_limit": 10_000}, {}, None, ["valid_limit"]),
        ({"test_limit": 10_000_000}, {}, None, ["test_limit"]),
        ({"test_limit": 999}, {}, None, ["test_limit"]),
        ({"test_limit": 999, "test": False}, {}, None, []),
        ({"sample": 5}, {}, None, []),
        ({"sample": 5}, {"eval_every": 10, "checkpoint_selection": "best"}, None, ["sample"]),
        ({"valid_limit": 10_000, "test_limit": 10_000}, {}, 0.02, []),
    ],
)
def test_evaluations_of_a_few_bytes_are_noted(
    evaluate: dict[str, Any], train: dict[str, Any], margin: float | None, fields: list[str]
) -> None:
    notes = notes_of(base={"evaluate": evaluate}, train=train, margin=margin)
    assert [note.split(":")[0].removeprefix("evaluate.") for note in notes] == fields


@pytest.mark.parametrize(("limit", "noted"), [(20, True), (40, True), (50, False)])
def test_rows_that_resolve_less_than_the_margin_are_noted(limit: int, noted: bool) -> None:
    task = {"name": "parity", "length": LENGTH}
    notes = notes_of(task, base={"evaluate": {"test_limit": limit}}, margin=0.02, estimand="mean")
    assert any(note.startswith("evaluate.test_limit") for note in notes) == noted


def test_a_batch_of_more_rows_than_the_data_is_noted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "text,label\n" + "".join(f"{'good' if n % 2 else 'bad'} text {n},{n % 2}\n" for n in range(100))
    )
    task = {"name": "csv", "path": str(tmp_path / "a.csv"), "length": LENGTH}
    for size, noted in ((80, False), (101, True)):
        assert any(note.startswith("train.batch_size") for note in notes_of(task, train={"batch_size": size})) == noted
    assert any(note.startswith("train.batch_size") for note in notes_of(train={"batch_size": 10**6}))


def test_the_size_of_the_data_is_stated(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0123456789" * 1000)
    base = {"train": {"steps": 1, "lr": 1e-3}, "model": {"dim": 12, "depth": 1, "heads": 2}, "variant": "dense"}
    study = {"study": "s", "base": {**base, "task": {"name": "text", "path": str(tmp_path / "a.txt"), "length": LENGTH}}}
    (cell,) = plan(study).cells
    assert cell.data_sizes == "train 9,000 bytes, valid 500 bytes (all scored), test 500 bytes (all scored)"
    task = {"name": "parity", "length": LENGTH}
    (cell,) = plan({"study": "s", "base": {**base, "task": task, "evaluate": {"test_limit": 300}}}).cells
    assert "train" not in cell.data_sizes and "test 2,000 rows (300 scored)" in cell.data_sizes


def test_frozen_random_weights_are_noted() -> None:
    assert any(note.startswith("train.frozen") for note in notes_of(train={"frozen": "all"}))
    init = {"stages": {"first": {"train": {"steps": 5}}}, "base": {"init": {"from": "first"}}}
    assert not any("train.frozen" in note for note in notes_of(train={"frozen": "all"}, **init))
