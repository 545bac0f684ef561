"""Tests of the scores of single test items: they add up to the metric, and do not depend on the batch size."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlab._util.metrics import ITEMS_FILE
from attnlab.models.build import build
from attnlab.tasks import Batch
from attnlab.tasks.pydocs import PyDocs
from attnlab.training import evaluate as items_module
from attnlab.training.evaluate import ItemScores, evaluate
from attnlab.training.train import train
from tests.support.small_runs import Reviews, tiny


def scored(folder: Path, task: Any, config: Any, model: torch.nn.Module) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    items = ItemScores()
    scores = evaluate(model, task, "test", config=config, device=torch.device("cpu"), items=items)  # type: ignore[arg-type]
    items.save(folder)
    with np.load(folder / ITEMS_FILE) as arrays:
        return dict(arrays), scores


@pytest.mark.parametrize(
    ("limit", "protocol"), [(300, {}), (9_000, {}), (700, {"evaluate.protocol": "sliding", "evaluate.stride": 5})]
)
@pytest.mark.parametrize("kept", [1_024, 7])
def test_items_add_up_to_the_metric_for_any_batch_size(
    limit: int, protocol: dict[str, Any], kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items_module, "MAX_SEGMENTS", kept)
    config = tiny().replace({"evaluate.test_limit": limit, **protocol})
    task = PyDocs(**config.task.options)
    model = build(config, task)
    by_rows = []
    for rows in (1, 5, 64):
        arrays, scores = scored(tmp_path, task, config.replace({"evaluate.batch_size": rows}), model)
        assert np.average(arrays["score"], weights=arrays["count"]) == pytest.approx(scores["bits_per_byte"], rel=1e-5)
        assert str(arrays["metric"]) == "bits_per_byte" and len(arrays["score"]) <= kept
        by_rows.append(arrays)
    assert np.allclose(by_rows[0]["score"], by_rows[2]["score"], rtol=1e-4)
    assert np.array_equal(by_rows[0]["count"], by_rows[1]["count"]) and np.array_equal(by_rows[0]["count"], by_rows[2]["count"])
    if kept == 7:
        assert len(by_rows[0]["count"]) == 7 and by_rows[0]["count"].max() <= 2 * by_rows[0]["count"].min()


def test_each_document_is_right_or_wrong(tmp_path: Path) -> None:
    task = Reviews()
    config = tiny(model__pool="max", evaluate__test_limit=None)
    arrays, scores = scored(tmp_path, task, config, build(config, task))
    assert len(arrays["score"]) == 5 * 4 and set(arrays["score"]) <= {0.0, 1.0} and (arrays["count"] == 1).all()
    assert arrays["score"].mean() == pytest.approx(scores["accuracy"])


class ByRow(Reviews):
    """A task with a metric of its own: the share of right answers, twice."""

    metric = "twice"

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Any]:
        right = (logits.argmax(-1) == batch.targets).sum().double()
        return {"twice": (2 * right, len(batch.targets))}


class Whole(ByRow):
    """A task whose rows cannot be scored one by one."""

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Any]:
        if len(batch.targets) == 1:
            raise ValueError("a single row has no rank")
        return super().score(logits, batch)


def test_a_metric_of_ones_own_is_scored_row_by_row(tmp_path: Path) -> None:
    task, config = ByRow(), tiny(model__pool="max", evaluate__test_limit=None)
    arrays, scores = scored(tmp_path, task, config, build(config, task))
    assert set(arrays["score"]) <= {0.0, 2.0} and arrays["score"].mean() == pytest.approx(scores["twice"])


def test_a_run_keeps_its_items_and_a_resumed_one_has_the_same(tmp_path: Path) -> None:
    config, at = tiny(train__checkpoint_every=4), {name: tmp_path / name for name in ("whole", "resumed")}
    train(config, folder=at["whole"])

    def killed(step: int, metrics: dict[str, float]) -> bool:
        if step == 9:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        train(config, folder=at["resumed"], report=killed)
    assert not (at["resumed"] / ITEMS_FILE).exists()
    train(config, folder=at["resumed"])
    one, other = (np.load(folder / ITEMS_FILE) for folder in at.values())
    assert np.array_equal(one["score"], other["score"])
    train(config, folder=at["whole"])  # recorded: not trained again
    assert (at["whole"] / ITEMS_FILE).exists()
