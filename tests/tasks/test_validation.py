"""Tests of validation: an invalid user's task gives one line that names the task and the method."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.tasks import Batch
from attnlab.tasks.validation import check_first_batch
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
    "no kind": ("kind, role", "sort, role", ["kind", "language_model", "classifier", "None"]),
    "a role that is none": ('"causal"', '"casual"', ["role", "causal", "bidirectional", "'casual'"]),
    "no metric": ("metric,", "metrik,", ["metric", "None"]),
    "a length of nothing": ("7, 5", "0, 5", ["length", "at least 1", "got 0"]),
    "no batches": ("train_batch", "training_batch", ["train_batch(step, *, seed, batch_size)", "none"]),
    "a batch without a size": (
        "seed, batch_size): pass",
        "seed): pass",
        ["train_batch(step, *, seed, batch_size)", "train_batch(step, *, seed)", "unexpected keyword"],
    ),
    "an unknown estimand": (
        "    def identity",
        '    estimand = "modus"\n\n    def identity',
        ["estimand", "solve_rate", "'modus'"],
    ),
    "a rate without a threshold": (
        "    def identity",
        '    estimand = "solve_rate"\n\n    def identity',
        ["threshold", "None"],
    ),
    "an argument too many": ("prepare(self)", "prepare(self, folder)", ["prepare()", "prepare(folder)"]),
}


@pytest.mark.parametrize("kind", PLANNED)
def test_definitions_are_checked_in_the_plan(kind: str, tmp_path: Path) -> None:
    old, new, words = PLANNED[kind]
    assert old in MINE
    write(tmp_path, MINE.replace(old, new), name="mine.py")
    text = misplanned(write(tmp_path, STUDY.replace("{name: pydocs, length: 24}", "'mine.py:Mine'")))
    assert text.startswith("s.yaml:3:9: task Mine: ") and [word for word in words if word not in text] == []


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
    "no batch": ["attnlab.tasks.Batch", "tuple", "train_batch()"],
    "numbers": ["inputs", "int64", "torch.float32"],
    "length": ["inputs", "length 13", "(4, 26)"],
    "targets": ["targets of (4,)", "got (4, 13)"],
    "class": ["targets", "0 to 1", "1 to 2"],
    "token": ["inputs", "0 to 28", "got 28 to "],
    "name": ["score()", "metric accuracy", "acuracy"],
}


@pytest.mark.parametrize("kind", RUN)
def test_the_first_batch_is_checked_before_the_first_step(kind: str) -> None:
    with pytest.raises(UserError) as caught:
        train(tiny(task={"name": "tests.tasks.test_validation:Other", "wrong": kind}, model__heads=2))
    message = caught.value.message
    assert message.startswith(f"task Other wrong={kind}: ") and [word for word in RUN[kind] if word not in message] == []


class RowSum(Reviews):
    """A loss that is a sum over the rows, not a mean over the targets."""

    def loss(self, logits: Any, batch: Batch) -> Any:
        return super().loss(logits, batch) * len(batch.targets)


def test_a_loss_that_is_no_mean_over_targets_is_refused_with_micro_batches() -> None:
    for name, accumulation, mistake in (("RowSum", 2, True), ("RowSum", 1, False), ("Reviews", 2, False)):
        task = {"Reviews": Reviews, "RowSum": RowSum}[name]()
        config = tiny(train__gradient_accumulation=accumulation, train__batch_size=8)
        if not mistake:
            check_first_batch(task, config)
            continue
        with pytest.raises(UserError, match=r"loss\(\)"):
            check_first_batch(task, config)
