"""Tests of ``benchmarks.verdict``: equal trainings, and a trial of two cells from end to end."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.registry import TASKS
from attnlab.tasks import Task
from attnlab.training.train import train
from benchmarks import processor
from benchmarks.verdict import __main__ as verdict
from benchmarks.verdict import plain, script, tables, ways

LENGTH = 37
CELLS = ways.study()["grid"]["variant"]


@cache
def config_of(cell: str) -> RunConfig:
    """Return the resolved configuration of a cell of the study, at another length."""
    sets = {"task.length": LENGTH, "train.precision": "fp32"}
    plan = attnlab.plan(ways.study(), sets=sets, only={"variant": cell})
    return plan.cells[0].config


def twin(config: RunConfig, task: Task) -> tuple[torch.nn.Module, plain.LanguageModel, dict[str, Any]]:
    """Return attnlab's model of a cell, the plain one with its parameters, and the configuration as the script reads it."""
    fields = json.loads(config.model_dump_json())
    own, other = build(config, task), plain.LanguageModel(fields, task.vocabulary)
    own_parameters = dict(own.named_parameters())
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(own_parameters[_attnlab_name(name)])
    assert script.parameters(other) == script.parameters(own)
    return own, other, fields


def _attnlab_name(name: str) -> str:
    renamed = name if name.startswith("head") else f"backbone.{name}"
    for theirs, ours in (
        ("backbone.position", "backbone.position.table"),
        ("attention.qkv", "attention.project"),
        *((f"attention.{kind}", f"attention.project.{kind}") for kind in ("query", "key", "value")),
        *((f".{layer}.", f".feed_forward.{layer}.") for layer in ("widen", "narrow")),
    ):
        renamed = renamed.replace(theirs, ours)
    return renamed


@pytest.mark.parametrize("cell", CELLS)
def test_the_plain_model_is_attnlab_s(cell: str) -> None:
    task = TASKS.get("pydocs")(length=LENGTH)
    own, other, _ = twin(config_of(cell), task)
    batch = task.train_batch(0, seed=0, batch_size=3)
    torch.testing.assert_close(other(batch.inputs), own(batch.inputs)[0], rtol=1e-4, atol=1e-5)


def test_the_script_trains_as_attnlab_does() -> None:
    changes = {
        "train.steps": 11,
        "train.warmup": 3,
        "train.eval_every": 7,
        "evaluate.valid_limit": 900,
        "evaluate.sample": 300,
        "evaluate.test_limit": 700,
    }
    config, task = config_of("strided_sparse").replace(changes), TASKS.get("pydocs")(length=LENGTH)
    _, other, fields = twin(config, task)
    scores, own = script.train(other, task, fields), train(config).summary
    assert scores["valid"] == pytest.approx(own["valid_bits_per_byte"], rel=1e-4)
    assert scores["test"] == pytest.approx(own["bits_per_byte"], rel=1e-4)
    assert scores["test"] < 7, "it did not learn"


@pytest.mark.exhaustive  # no test of the package
def test_a_trial_runs_from_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "OVERRIDES", ("ATTNLAB_", "MLFLOW_"))  # one thread is faster beside other tests
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(verdict, "WAYS", [way for way in ways.WAYS if way.name != script.X_TRANSFORMERS])
    verdict.main(["--quick", "--here", "--rounds", "1", "--out", str(tmp_path)])
    results = tables.read(processor.folder(tmp_path) / "verdict.csv")
    *own, one_after_another, two_at_a_time = zip(results["way"], results["bits_per_byte"], strict=True)
    assert [way for way, _ in own] == ["attnlab"] and set(results["runs"]) == {2}
    assert min(results["seconds"]) > 0
    assert all(4 < bits < 8 for _, bits in own)
    assert one_after_another == ("plain PyTorch", pytest.approx(two_at_a_time[1], rel=1e-3))
    assert "plain PyTorch, two at a time" in capsys.readouterr().out
