"""Tests of the notes of a plan on patterns that hide nothing, and of the sizes of the data."""

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
    ],
)
def test_a_pattern_that_hides_nothing_is_noted(variant: Any, noted: bool) -> None:
    notes = notes_of(variant=variant)
    assert len(notes) == noted
    assert not noted or f"{LENGTH} bytes" in notes[0]


def test_a_pattern_counts_at_the_longest_length_that_is_tested() -> None:
    assert notes_of(variant=window(LENGTH), base={"position": "rotary", "evaluate": {"lengths": [2 * LENGTH]}}) == []


def test_the_size_of_the_data_is_stated(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0123456789" * 1000)
    base = {"train": {"steps": 1, "lr": 1e-3}, "model": {"dim": 12, "depth": 1, "heads": 2}, "variant": "dense"}
    study = {"study": "s", "base": {**base, "task": {"name": "text", "path": str(tmp_path / "a.txt"), "length": LENGTH}}}
    (cell,) = plan(study).cells
    assert cell.data_sizes == "train 9,000 bytes, valid 500 bytes (all scored), test 500 bytes (all scored)"
    task = {"name": "parity", "length": LENGTH}
    (cell,) = plan({"study": "s", "base": {**base, "task": task, "evaluate": {"test_limit": 300}}}).cells
    assert "train" not in cell.data_sizes and "test 2,000 rows (300 scored)" in cell.data_sizes
