"""Scores of generated text: computed by each evaluation, selected by, and recorded with the run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlab._util.metrics import ITEMS_FILE
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.models.decoding import decode
from attnlab.tasks.parallel import Parallel
from attnlab.training import evaluate, train
from attnlab.training.evaluate import ItemScores
from tests.support.small_translations import pairs, write


@pytest.fixture
def config(tmp_path: Path, folders: Path) -> RunConfig:
    rows = pairs(70)
    options: dict[str, Any] = {"name": "translation", "vocabulary": 90, "length": 20, "beam": 2}
    for split, begin, end in (("train", 0, 40), ("valid", 40, 50), ("test", 50, 70)):
        options |= write(tmp_path, split, rows[begin:end])
    part = {"variant": "dense", "position": "learned"}
    model = {"dim": 12, "depth": 1, "heads": 2, "encoder": part, "decoder": part, "cross": {**part, "position": "none"}}
    return RunConfig.model_validate(
        {
            "task": options,
            **part,
            "backend": "reference",
            "model": model,
            "train": {"steps": 4, "batch_size": 8, "lr": 0.05, "eval_every": 2, "checkpoint_selection": "best"},
            "machine": {"device": "cpu", "threads": 1},
        }
    )


def test_a_run_selects_and_reports_by_the_metric_of_generated_text(config: RunConfig, tmp_path: Path):
    points: list[dict[str, float]] = []
    result = train.train(config, folder=tmp_path / "run", report=lambda step, metrics: points.append(metrics) or False)
    curves = [point["valid/bleu"] for point in points if "valid/bleu" in point]
    assert result.state == "completed" and len(curves) == 2
    assert result.summary["valid_bleu"] == max(curves)
    assert {"bleu", "chrf", "loss", "valid_chrf", "valid_loss"} <= result.summary.keys()
    assert "tok:13a" in result.tags["sacrebleu"] and "version:" in result.tags["sacrebleu"]
    # BLEU of a corpus is no mean over sentences, so the loss of each is kept, under its own name.
    items = np.load(tmp_path / "run" / ITEMS_FILE)
    assert str(items["metric"]) == "loss" and len(items["score"]) == 20
    assert np.average(items["score"], weights=items["count"]) == pytest.approx(result.summary["loss"], rel=1e-5)


def test_an_evaluation_decodes_each_sentence_as_the_task_says(config: RunConfig, monkeypatch: pytest.MonkeyPatch):
    task = Parallel(**config.task.options)
    task.prepare()
    model = build(config, task)
    calls: list[dict[str, Any]] = []

    def spy(model: Any, source: Any, source_mask: Any, **options: Any) -> list[list[int]]:
        calls.append({"rows": len(source), **options})
        return decode(model, source, source_mask, **options)

    monkeypatch.setattr(evaluate, "decode", spy)
    device = next(model.parameters()).device
    limited = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"test_limit": 7})})
    scores = evaluate.evaluate(model, task, "test", config=limited, device=device)
    assert sum(call["rows"] for call in calls) == 7 and model.training
    assert all((call["beam"], call["max_length"]) == (2, 20) for call in calls)
    assert scores.keys() == {"bleu", "chrf", "loss"}
    assert scores == evaluate.evaluate(model, task, "test", config=limited, device=device)


def test_a_processor_evaluates_and_decodes_large_batches_in_parts(config: RunConfig, monkeypatch: pytest.MonkeyPatch):
    task = Parallel(**config.task.options)
    task.prepare()
    model = build(config, task).eval()
    config = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"batch_size": 20})})
    device = next(model.parameters()).device
    whole, whole_items = _scores_with_items(model, task, config, device)
    logits, decoded = [], []
    forward = type(model).forward_batch

    def forward_spy(self: Any, batch: Any, memory: Any = None) -> Any:
        output, memory = forward(self, batch, memory)
        logits.append(output.numel())
        return output, memory

    def decode_spy(model: Any, source: Any, source_mask: Any, **options: Any) -> list[list[int]]:
        decoded.append(len(source))
        return decode(model, source, source_mask, **options)

    row = 90 * 20  # logits
    monkeypatch.setattr(type(model), "forward_batch", forward_spy)
    monkeypatch.setattr(evaluate, "decode", decode_spy)
    monkeypatch.setattr(evaluate, "MAX_LOGITS", 3 * row)
    monkeypatch.setattr(evaluate, "MAX_DECODING", 4 * 2 * (90 + 4 * 12 * 20))
    parts, items = _scores_with_items(model, task, config, device)
    assert max(logits) <= 3 * row and max(decoded) <= 4 and sum(decoded) == 20
    assert parts == pytest.approx(whole, rel=1e-6)
    assert items == pytest.approx(whole_items, rel=1e-5)


def _scores_with_items(model: Any, task: Any, config: RunConfig, device: Any) -> tuple[dict[str, float], list[float]]:
    """Return the scores of an evaluation, and those of its items in their order."""
    collected = ItemScores()
    scores = evaluate.evaluate(model, task, "test", config=config, device=device, items=collected)
    pairs = zip(torch.cat(collected._numbers).tolist(), torch.cat(collected._sums).tolist(), strict=True)
    return scores, [score for _, score in sorted(pairs)]


def test_a_task_whose_scores_lack_its_metric_is_named(config: RunConfig):
    class Silent(Parallel):
        def generated_scores(self, *arguments: Any, **options: Any) -> dict[str, float]:
            return {}

    task = Silent(**config.task.options)
    task.prepare()
    model = build(config, task)
    with pytest.raises(UserError, match="expected a score named bleu on valid, got .* named loss"):
        evaluate.evaluate(model, task, "valid", config=config, device=next(model.parameters()).device)


def test_a_resumed_run_has_the_same_scores(config: RunConfig, tmp_path: Path):
    def interrupt(step: int, metrics: dict[str, float]) -> bool:
        if step == 4:
            raise KeyboardInterrupt
        return False

    whole = train.train(config, folder=tmp_path / "whole", report=lambda step, metrics: False)
    with pytest.raises(KeyboardInterrupt):
        train.train(config, folder=tmp_path / "run", report=interrupt)
    resumed = train.train(config, folder=tmp_path / "run", report=lambda step, metrics: False)
    names = ("bleu", "chrf", "loss", "valid_bleu", "valid_chrf", "valid_loss")
    assert {name: resumed.summary[name] for name in names} == {name: whole.summary[name] for name in names}
