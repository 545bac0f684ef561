"""Tests of ``sweep`` of a study file: valid ones, their extensions, and every mistake as one line with its place."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli import _config_keys
from attnlab.config.reader import read_study
from attnlab.config.schema import json_schema
from attnlab.config.search import SweepConfig
from attnlab.errors import UserError
from attnlab.tracking.tags import to_yaml
from tests.support.studies import GOOD, misread, write

SWEPT = (
    GOOD.replace("  train.lr: [1e-3, 3e-4]\n", "").replace(", train.lr: 3e-4", "") + "sweep: {train.lr: [1e-2, 1e-3, 3e-3]}\n"
)
VALUES = "[1e-2, 1e-3, 3e-3]"
SEARCH = "search: {trials: 2, space: {model.dropout: {low: 0.1, high: 0.2}}}\n"
# Text of SWEPT to replace, its replacement, the place of the error, and words that the message must contain.
MISTAKES = {
    "two values": (VALUES, "[1e-2, 1e-3]", "17:19", "sweep.train.lr: expected a list of at least 3 numbers, such as [1e-3"),
    "one value": (VALUES, "1e-3", "17:19", "expected a list of at least 3 numbers, such as [1e-3, 3e-3, 1e-2], got 0.001"),
    "a range": (VALUES, "{low: 1e-4, high: 1e-2}", "17:19", "expected a list of at least 3 numbers"),
    "a value twice": (VALUES, "[1e-2, 1e-3, 0.01]", "17:32", "sweep.train.lr[2]: expected each value once, got 0.01 again"),
    "zero": (VALUES, "[0, 1e-3, 1e-2]", "17:20", "sweep.train.lr[0]: expected a number greater than 0, got 0"),
    "a word": (VALUES, "[1e-3, high, 1e-2]", "17:26", "sweep.train.lr[1]: expected a number, got 'high'"),
    "true": (VALUES, "[1e-3, true, 1e-2]", "17:26", "sweep.train.lr[1]: expected a number, got true"),
    "no path": (
        "sweep: {train.lr: [1e-2, 1e-3, 3e-3]}",
        "sweep: {}",
        "17:8",
        "expected one of train.lr and train.weight_decay",
    ),
    "a number": ("sweep: {train.lr: [1e-2, 1e-3, 3e-3]}", "sweep: 3", "17:8", "sweep: expected a mapping of keys, got 3"),
    "two paths": (
        VALUES,
        f"{VALUES}, train.weight_decay: [1, 2, 3]",
        "17:8",
        "expected one of train.lr and train.weight_decay",
    ),
    "the budget": ("{train.lr", "{train.steps", "17:9", "unknown key 'train.steps' in sweep: expected one of train.lr, train"),
    "the model": ("{train.lr", "{model.dim", "17:9", "unknown key 'model.dim' in sweep"),
    "the last part only": ("{train.lr", "{lr", "17:9", "unknown key 'lr' in sweep"),
    "extensions below 0": (VALUES, f"{VALUES}, extensions: -1", "17:51", "sweep.extensions: expected a number of at least 0"),
    "a search, too": ("sweep:", f"{SEARCH}sweep:", "18:1", "sweep: expected none in a study with 'search'"),
    "an axis": (
        "stride: 7}]\n",
        "stride: 7}]\n  train.lr: [1e-3]\n",
        "18:9",
        "sweep: expected no 'train.lr': the axis 'train.lr'",
    ),
    "an axis over the section": (
        "stride: 7}]\n",
        "stride: 7}]\n  train: [{warmup: 1}, {lr: 1e-3}]\n",
        "18:9",
        "the axis 'train' of the grid sets it",
    ),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(kind: str, tmp_path: Path) -> None:
    old, new, place, words = MISTAKES[kind]
    assert SWEPT.count(old) == 1, f"{old!r} must stand once in the good file"
    message = misread(write(tmp_path, SWEPT.replace(old, new)))
    assert message.startswith(f"s.yaml:{place}: ") and words in message


def sweep(*values: float, **options: Any) -> SweepConfig:
    return SweepConfig.model_validate({"train.lr": list(values), **options})


def test_values_are_read_in_order_and_written_as_they_were_read(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, SWEPT))
    assert study.sweep is not None
    assert (study.sweep.path, study.sweep.values, study.sweep.extensions) == ("train.lr", (0.001, 0.003, 0.01), 4)
    written = to_yaml(study.model_dump(mode="json", exclude_defaults=True))
    assert read_study(write(tmp_path, written, name="again.yaml")).sweep == study.sweep
    other = read_study(write(tmp_path, SWEPT), sets={"sweep": {"train.weight_decay": [1, 0.1, 0.01]}, "sweep.extensions": 1})
    assert other.sweep is not None and (other.sweep.path, other.sweep.extensions) == ("train.weight_decay", 1)


def test_a_swept_field_cannot_be_assigned(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_study(write(tmp_path, SWEPT), sets={"train.lr": 1e-3})
    assert caught.value.where == "train.lr=0.001" and "sweep" in caught.value.message


@pytest.mark.parametrize(
    ("values", "low", "high", "expected"),
    [
        ((1e-3, 3e-3, 1e-2), 0, 0, (0.001, 0.003, 0.01)),
        ((1e-3, 3e-3, 1e-2), 2, 1, (0.0001, 0.000316, 0.001, 0.003, 0.01, 0.0316)),  # by sqrt(10) on average
        ((2, 0.5, 1), 1, 2, (0.25, 0.5, 1, 2, 4, 8)),
        ((1.0, 1.001, 1.002), 1, 1, (0.999000999001, 1.0, 1.001, 1.002, 1.003001)),  # three digits would repeat 1.0
    ],
)
def test_extensions_continue_the_grid(values: tuple[float, ...], low: int, high: int, expected: tuple[float, ...]) -> None:
    extended = sweep(*values).extended(low, high)
    assert extended == pytest.approx(expected, rel=1e-6)
    assert list(extended) == sorted(set(extended))
    assert sweep(*values).extended(low + 1, high + 1)[1:-1] == extended, "a further extension leaves the values as they are"


def test_the_keys_are_listed_and_in_the_schema() -> None:
    keys = {path for path, _, _ in _config_keys.config_keys()}
    assert {"sweep.train.lr", "sweep.train.weight_decay", "sweep.extensions"} <= keys
    properties = json_schema()["$defs"]["SweepConfig"]["properties"]
    assert set(properties) == {"train.lr", "train.weight_decay", "extensions"}
    assert json.dumps(properties["train.lr"]).count("exclusiveMinimum") == 1
