"""Tests of images that are read pixel by pixel."""

from typing import Any

import numpy as np
import pytest
import torch

from attnlab.planning.plan import plan
from attnlab.tasks.pixels import IMAGES, PIXELS, START, Pixels
from attnlab.testing import check_task

BASE = {"task": "pixels", "train": {"steps": 3}}
STUDY: dict[str, Any] = {"study": "p", "base": BASE, "grid": {"variant": ["dense", "none"]}, "seeds": [0]}


@pytest.fixture(scope="module")
def task() -> Pixels:
    task = Pixels()
    task.prepare()
    return task


def test_the_contract_holds(task: Pixels) -> None:
    assert {result.status for result in check_task("pixels")} == {"passed", "not declared"}


def test_every_pixel_of_scikit_learn_is_predicted_once_from_those_before_it(task: Pixels) -> None:
    from sklearn.datasets import load_digits

    rows = []
    for split, count in IMAGES.items():
        batches = list(task.eval_batches(split, batch_size=41))
        assert sum(len(batch.inputs) for batch in batches) == count
        for batch in batches:
            assert (batch.inputs[:, 0] == START).all() and torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
            rows.append(batch.targets.numpy())
    images = load_digits().images.reshape(-1, PIXELS)  # type: ignore[union-attr]
    assert sorted(np.concatenate(rows).tolist()) == sorted(images.tolist())


def test_two_tokens_of_a_column_are_eight_places_apart(task: Pixels) -> None:
    from sklearn.datasets import load_digits

    images = {image.astype(int).tobytes() for image in load_digits().images}  # type: ignore[union-attr]
    batch = task.train_batch(0, seed=0, batch_size=5)
    columns = [np.stack([row[column::8] for column in range(8)], axis=1) for row in batch.targets.numpy()]
    assert {image.astype(int).tobytes() for image in columns} <= images


def test_a_limit_counts_pixels_of_whole_images(task: Pixels) -> None:
    (batch,) = task.eval_batches("test", batch_size=9, limit=3 * PIXELS + 5)
    assert len(batch.inputs) == 3
    assert task.eval_tokens("test", limit=3 * PIXELS + 5, protocol="segment", stride=None) == 3 * PIXELS
    for evaluate in ({"test_limit": 63}, {"protocol": "sliding", "stride": 8}):
        assert all(cell.refusal for cell in plan(STUDY | {"base": BASE | {"evaluate": evaluate}}).cells)
    assert not any(cell.refusal for cell in plan(STUDY).cells)


def test_the_n_gram_reads_its_history_and_xz_the_pixels_alone(task: Pixels) -> None:
    scores = {name: reference.score(None) for name, reference in task.reference_scores().items()}
    assert scores["n-gram"] == pytest.approx(2.540, abs=1e-3) and 2.9 < scores["xz"] < 3.0
