"""Tests of validation: an invalid user's task gives one line that names the task and the method."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.tasks import Batch
from attnlab.training.train import train
from tests.support.small_runs import Reviews, tiny
from tests.support.studies import STUDY, misplanned, write

MINE = """
from attnlab.tasks import Task


class Mine(Task):
    kind, role, metric, direction, length, vocabulary = "language_model", "causal", "recall", "max", 7, 5

    def identity(self): return "mine"
    def prepare(self): pass
    def steps_per_epoch(self, batch_size): return 1
    def train_batch(self, step, *, seed, batch_size): pass
    def eval_batches(self, split, **how): pass
"""
PLANNED = {
    "no kind": ("kind, role", "sort, role", "expected kind to be language_model or classifier, got None"),
    "a role that is none": ('"causal"', '"casual"', "expected role to be causal or bidirectional, got 'casual'"),
    "no metric": ("metric,", "metrik,", "expected metric to be the name of a score, got None"),
    "a length of nothing": ("7, 5", "0, 5", "expected length to be a whole number of at least 1, got 0"),
    "no batches": ("train_batch", "training_batch", "expected a method train_batch(step, *, seed, batch_size), got none"),
    "a batch without a size": (
        "seed, batch_size): pass",
        "seed): pass",
        "expected train_batch(step, *, seed, batch_size), got train_batch(step, *, seed): got an unexpected keyword argument",
    ),
    "an argument too many": ("prepare(self)", "prepare(self, folder)", "expected prepare(), got prepare(folder): "),
}


@pytest.mark.parametrize("kind", PLANNED)
def test_definitions_are_checked_in_the_plan(kind: str, tmp_path: Path) -> None:
    old, new, words = PLANNED[kind]
    assert old in MINE
    write(tmp_path, MINE.replace(old, new), name="mine.py")
    text = misplanned(write(tmp_path, STUDY.replace("{name: pydocs, length: 24}", "'mine.py:Mine'")))
    assert text.startswith(f"s.yaml:3:9: task Mine: {words}")


class Other(Reviews):
    """Reviews with one mistake, which ``wrong`` names."""

    def __init__(self, *, wrong: str) -> None:
        super().__init__()
        self.wrong = wrong

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Any:
        batch = super().train_batch(step, seed=seed, batch_size=batch_size)
        changed = {
            "no batch": (batch.inputs, batch.targets),
            "numbers": Batch(batch.inputs.float(), batch.targets),
            "length": Batch(batch.inputs.repeat(1, 2), batch.targets),
            "targets": Batch(batch.inputs, batch.inputs),
            "class": Batch(batch.inputs, batch.targets + 1),
            "token": Batch(batch.inputs + 28, batch.targets),
        }
        return changed.get(self.wrong, batch)

    def score(self, logits: Any, batch: Batch) -> Any:
        return {"acuracy": (1, 1)} if self.wrong == "name" else super().score(logits, batch)


RUN = {
    "no batch": "expected an attnlab.tasks.Batch, got tuple from train_batch()",
    "numbers": "expected inputs of int64, got torch.float32",
    "length": "expected inputs of (b, t), t from 1 to the length 13, got (4, 26)",
    "targets": "expected targets of (4,) with inputs of (4, 13), got (4, 13)",
    "class": "expected targets from 0 to 1, got 1 to 2",
    "token": "expected inputs from 0 to 28, got 28 to ",
    "name": "expected score() to name the metric accuracy, got acuracy",
}


@pytest.mark.parametrize("kind", RUN)
def test_the_first_batch_is_checked_before_the_first_step(kind: str) -> None:
    with pytest.raises(UserError) as caught:
        train(tiny(task={"name": "tests.tasks.test_validation:Other", "wrong": kind}, model__heads=2))
    assert str(caught.value).startswith(f"task Other wrong={kind}: {RUN[kind]}")
