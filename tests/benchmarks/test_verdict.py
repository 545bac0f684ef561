"""Tests of ``benchmarks.verdict``: equal trainings, its storage and table, and a trial of two cells from end to end."""

import csv
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
from benchmarks.speed import page
from benchmarks.verdict import __main__ as verdict
from benchmarks.verdict import autocast, plain, script, tables, ways

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


def test_the_notes_name_the_widths_of_x_transformers_heads() -> None:
    widths = {cell: script.head_width(json.loads(config_of(cell).model_dump_json())) for cell in CELLS}
    assert widths == {"dense": 16, "strided_sparse": 16, "fixed_sparse": 16, "wide": 64, "no_wo": 12, "narrow": 5, "basic": 1}
    notes = " ".join(tables.NOTES.split())
    assert "`no_wo`, `narrow` and `basic`" in notes and "12, 5 and 1 features instead of 16, 16 and 64" in notes


@pytest.fixture
def fake_ways(monkeypatch: pytest.MonkeyPatch) -> list[ways.Way]:
    """Let attnlab take 10 s, 16 s in fp32, and the peers 12 s two at a time, and 8 s one after another.

    Return the ways in order.
    """
    seen: list[ways.Way] = []

    def fake(way: ways.Way, content: dict[str, Any], **places: Path) -> ways.Measurement:
        seen.append(way)
        return ways.Measurement(16.0 if way.name == ways.IN_FP32 else {0: 10.0, 1: 8.0, 2: 12.0}[way.at_a_time], 2.5)

    monkeypatch.setattr(verdict, "measure", fake)
    monkeypatch.setattr(verdict, "warm_up", lambda way, *, python: None)
    monkeypatch.setattr(verdict, "absent", lambda peers: {})
    monkeypatch.setattr(verdict, "precision", lambda content: "bf16")
    return seen


def test_the_page_opens_with_the_verdict_and_marks_slower_ways(tmp_path: Path, fake_ways: list[ways.Way]) -> None:
    verdict.main(["--here", "--rounds", "2", "--out", str(tmp_path)])
    text = (tmp_path / "README.md").read_text()
    assert "| plain PyTorch, one after another | 8 | 0.80, **slower** | 0.50, **slower** | 2.500 |" in text
    assert "| plain PyTorch, two at a time | 12 | 1.20 | 0.75, **slower** | 2.500 |" in text
    opening, targets = text.partition("\n## ")[0], text.partition("## Targets")[2]
    assert "| time to a verdict, as shipped, peers two at a time | 1.20, " in opening
    assert "| time to a verdict, all in fp32, peers two at a time | 0.75, **slower**, " in opening
    assert "at least 1.3 times as fast | 1.20 against" in targets and "at least 1.3 times as fast | 0.75 against" in targets
    page.write(tmp_path)
    assert (tmp_path / "README.md").read_text() == text, "the page depends on more than the files"


def test_a_study_in_fp32_is_measured_once_and_is_attnlab_in_fp32(
    tmp_path: Path, fake_ways: list[ways.Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "precision", lambda content: "fp32")
    verdict.main(["--here", "--rounds", "1", "--out", str(tmp_path)])
    assert ways.Way(ways.IN_FP32) not in fake_ways
    text = (tmp_path / "README.md").read_text()
    assert "| plain PyTorch, two at a time | 12 | 1.20 | 1.20 | 2.500 |" in text


def test_the_page_states_what_autocast_does_to_the_peers(
    tmp_path: Path, fake_ways: list[ways.Way], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autocast, "study", lambda: {**ways.study(), "grid": {"variant": CELLS[:2]}})
    monkeypatch.setattr(autocast, "WARM_UP", 0)
    verdict.main(["--here", "--rounds", "1", "--out", str(tmp_path)])
    autocast.main(["--here", "--steps", "1", "--out", str(tmp_path)])
    path = processor.folder(tmp_path) / tables.AUTOCAST
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert path.read_text() in capsys.readouterr().out
    plain_rows = [row for row in rows if row["peer"] == script.PLAIN]
    assert {(row["cell"], row["threads"]) for row in plain_rows} >= {(cell, "1") for cell in CELLS[:2]}
    sums = [sum(float(row[f"{name}_ms"]) for row in plain_rows if row["threads"] == "1") for name in ("bf16", "fp32")]
    page.write(tmp_path)
    assert f"take the peers {sums[0] / sums[1]:.2f} (plain PyTorch, 1 thread)" in (tmp_path / "README.md").read_text()


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
