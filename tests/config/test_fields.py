"""Tests that a field of the configuration is one line of its section, and that an old key is an error with its new name."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from attnlab.cli import _config_keys
from attnlab.config import paths, schema
from attnlab.config.reader import read_study
from attnlab.config.run import RunConfig, TrainConfig
from attnlab.config.validation import RENAMED
from attnlab.errors import UserError
from attnlab.tracking import tags


class LongerTrainConfig(TrainConfig):
    """``TrainConfig`` with one more line."""

    ema_decay: float = Field(default=0.25, ge=0, description="decay of the averaged weights")


class LongerRunConfig(RunConfig):
    train: LongerTrainConfig


def longer(**train: Any) -> LongerRunConfig:
    return LongerRunConfig.model_validate({"task": "pydocs", "variant": "dense", "train": {"steps": 1, **train}})


@pytest.fixture(autouse=True)
def one_more_field(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "one_more" in request.node.name:
        for module in (schema, _config_keys, paths):
            monkeypatch.setattr(module, "RunConfig", LongerRunConfig)


def test_one_more_field_is_in_the_schema() -> None:
    written = schema.json_schema()
    field = written["$defs"]["LongerTrainConfig"]["properties"]["ema_decay"]
    assert (field["default"], field["minimum"], field["type"]) == (0.25, 0, "number")
    assert written["else"]["properties"]["grid"]["properties"]["train.ema_decay"]["items"]["minimum"] == 0
    assert "train.ema_decay" in written["$defs"]["SearchConfig"]["properties"]["space"]["properties"]


def test_one_more_field_is_listed_and_is_a_path() -> None:
    rows = {path: (default, description) for path, default, description in _config_keys.config_keys()}
    assert rows["base.train.ema_decay"] == ("0.25", "decay of the averaged weights")
    paths.check_path("train.ema_decay", place="")
    with pytest.raises(UserError) as caught:
        paths.check_value("train.ema_decay", -1, where=lambda loc, /, *, key=False: "here")
    assert caught.value.where == "here" and "at least 0" in caught.value.message


def test_a_field_lists_its_choices() -> None:
    rows = {path: description for path, _, description in _config_keys.config_keys()}
    assert rows["base.train.precision"].startswith("fp32, bf16, auto; ")
    assert rows["base.machine.reuse_memory"].startswith("true, false, auto; ")
    assert rows["base.train.compile"].startswith("torch.compile the blocks")


def test_one_more_field_is_in_the_columns_and_the_fingerprint() -> None:
    assert tags.flatten_config(json.loads(longer().to_json()))["train.ema_decay"] == 0.25
    assert longer().fingerprint() != longer(ema_decay=0.5).fingerprint()
    assert longer().fingerprint() == longer(ema_decay=0.25).fingerprint()


OLD_PATHS = {
    "train.accumulate": 2,
    "train.checkpoint_activations": True,
    "train.clip": 1.0,
    "train.select": "best",
    "model.activation": "relu",
    "model.memory": 8,
    "model.tied": True,
    "machine.processes": 2,
}


def study(**parts: Any) -> dict[str, Any]:
    base = {"task": "pydocs", "train": {"steps": 10}}
    return {"study": "s", "base": base, "grid": {"variant": ["dense"]}, **parts}


def mistake(content: dict[str, Any], sets: dict[str, Any] | None = None) -> UserError:
    with pytest.raises(UserError) as caught:
        read_study(content, sets=sets)
    return caught.value


def test_every_renamed_key_is_tried() -> None:
    assert {path.rpartition(".")[2] for path in OLD_PATHS} | {"baselines"} == set(RENAMED)


@pytest.mark.parametrize("path", OLD_PATHS)
def test_an_old_key_is_an_error_with_the_new_name(path: str) -> None:
    value = OLD_PATHS[path]
    section, _, key = path.partition(".")
    new = f"{section}.{RENAMED[key]}"
    nested = study()
    nested["base"] = {**nested["base"], section: {**nested["base"].get(section, {}), key: value}}
    assert RENAMED[key] in mistake(nested).message and mistake(nested).where == f"base.{path}"
    assert new in mistake(study(grid={"variant": ["dense"], path: [value]})).message
    assert new in mistake(study(), {path: value}).message
    assert mistake(study(), {path: value}).where.startswith(f"{path}=")
    search = {"trials": 2, "space": {path: {"choices": [value, value]}}}
    error = mistake(study(search=search, confirm={"seeds": [1]}))
    assert path in error.where and (new in error.message or section == "machine")  # a search cannot set fields of machine


def test_the_old_key_of_reference_scores_is_an_error_with_the_new_name() -> None:
    error = mistake(study(baselines=False))
    assert "reference_scores" in error.message and error.where == "baselines"
    error = mistake(study(), {"baselines": False})
    assert "reference_scores" in error.message and error.where == "baselines=false"


def test_an_old_key_in_a_file_has_its_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("study: s\nbase:\n  task: pydocs\n  train: {steps: 5, clip: 1.0}\ngrid: {variant: [dense]}\n")
    with pytest.raises(UserError) as caught:
        read_study(file)
    assert caught.value.where == f"{file}:4:21" and "grad_clip" in caught.value.message
