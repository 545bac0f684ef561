"""Tests that a field of the configuration is one line of its section."""

import json
from typing import Any

import pytest
from pydantic import Field

from attnlab.cli import _config_keys
from attnlab.config import checks, run, schema
from attnlab.config.run import RunConfig, TrainConfig
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
        for module in (schema, _config_keys, checks, run):
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
    checks.check_path("train.ema_decay", place="")
    assert run.accepts("train.ema_decay", 0.5) and not run.accepts("train.ema_decay", -1)


def test_a_field_lists_its_choices() -> None:
    rows = {path: description for path, _, description in _config_keys.config_keys()}
    assert rows["base.train.precision"].startswith("fp32, bf16, fp16, auto; ")
    assert rows["base.train.compile"].startswith("torch.compile the forward pass")


def test_one_more_field_is_in_the_columns_and_the_fingerprint() -> None:
    assert tags.flatten_config(json.loads(longer().to_json()))["train.ema_decay"] == 0.25
    assert longer().fingerprint() != longer(ema_decay=0.5).fingerprint()
    assert longer().fingerprint() == longer(ema_decay=0.25).fingerprint()
