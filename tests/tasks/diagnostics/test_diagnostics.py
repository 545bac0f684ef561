"""The contract of all diagnostics: determined targets, disjoint splits, rows that depend on step and seed alone, chance."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from attnlab.registry import TASKS
from attnlab.tasks import IGNORED, SPLITS
from attnlab.tasks.diagnostics.base import Diagnostic
from attnlab.tasks.validation import check_definition
from attnlab.testing import check_task
from tests.support.paths import ROOT

NAMES = [name for name in TASKS.names() if issubclass(TASKS.get(name), Diagnostic)]
LEVELS = [
    pytest.param(name, options, id="-".join([name, *(f"{option}={value}" for option, value in options.items())]))
    for name in NAMES
    for options in TASKS.get(name).levels
]


@pytest.mark.parametrize(("name", "options"), LEVELS)
def test_the_solution_in_plain_python_scores_one(name: str, options: dict[str, object]) -> None:
    task = TASKS.get(name)(**options)
    inputs, targets = task.rows("test", 50)
    assert inputs.shape == targets.shape == (50, task.length)
    assert inputs.min() >= 0 and inputs.max() < task.vocabulary
    scored = targets != IGNORED
    assert scored.any(axis=1).all() and targets[scored].min() >= 0 and targets[scored].max() < task.vocabulary
    assert (np.array([task.solve(row) for row in inputs.tolist()])[scored] == targets[scored]).all()


@pytest.mark.parametrize(("name", "options"), LEVELS)
def test_chance_is_reached_by_no_constant_answer(name: str, options: dict[str, object]) -> None:
    """The commonest target scores at most chance: a model without the ability must not pass for one that has some of it."""
    task = TASKS.get(name)(**options)
    _, targets = task.rows("valid", 500)
    counts = np.bincount(targets[targets != IGNORED])
    assert 0 < task.chance() < 1
    expected = task.chance() * counts.sum()
    assert counts.max() <= expected + 4 * expected**0.5 + 5  # the largest of many counts, and some are small


@pytest.mark.parametrize("name", NAMES)
def test_the_definition_is_complete(name: str) -> None:
    task = TASKS.get(name)()
    check_definition(task, name=name)
    assert task.paper and task.levels and inspect.getdoc(type(task))
    assert {name: score.about for name, score in task.reference_scores().items()}.keys() == {"solution", "chance"}
    assert task.reference_scores()["solution"].score(20) == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_the_contract_of_tasks_holds(name: str) -> None:
    assert {result.status for result in check_task(name)} == {"passed", "not declared"}


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_lists_every_diagnostic(name: str) -> None:
    """Its row has the chance of the default options and the paper."""
    (row,) = re.findall(rf"^\| `{name}` \|.*arxiv.*$", (ROOT / "docs" / "diagnostics.md").read_text(), flags=re.MULTILINE)
    assert TASKS.get(name).paper.removeprefix("arXiv:") in row
    chance = float(row.split("|")[3])
    assert chance == pytest.approx(TASKS.get(name)().chance(), abs=0.0051)


@pytest.mark.parametrize("name", NAMES)
def test_splits_have_no_row_in_common(name: str) -> None:
    task = TASKS.get(name)()
    rows = {split: {row.tobytes() for row in task.rows(split, 300)[0]} for split in SPLITS}
    assert not rows["train"] & rows["valid"] and not rows["train"] & rows["test"] and not rows["valid"] & rows["test"]


@pytest.mark.parametrize("name", NAMES)
def test_a_training_batch_depends_on_step_and_seed_alone(name: str) -> None:
    first = TASKS.get(name)().train_batch(3, seed=1, batch_size=4)
    task = TASKS.get(name)()
    task.train_batch(0, seed=1, batch_size=4)
    assert torch.equal(first.inputs, task.train_batch(3, seed=1, batch_size=4).inputs)
    assert not torch.equal(first.inputs, task.train_batch(3, seed=2, batch_size=4).inputs)
    assert not torch.equal(first.inputs, task.train_batch(4, seed=1, batch_size=4).inputs)


@pytest.mark.parametrize("name", NAMES)
def test_scores_count_targets_and_whole_rows(name: str) -> None:
    task = TASKS.get(name)()
    batch = next(task.eval_batches("test", batch_size=8))
    scored = batch.targets != IGNORED
    answers = batch.targets.clone()
    row, column = (int(i) for i in scored.nonzero()[0])
    answers[row, column] += 1 if answers[row, column] == batch.targets[scored].min() else -1  # one error
    logits = logits_for(task, answers)
    sums = {metric: (float(total), int(count)) for metric, (total, count) in task.score(logits, batch).items()}
    assert sums["accuracy"] == (scored.sum() - 1, scored.sum())
    assert sums["exact"] == (7, 8)
    assert float(task.loss(logits, batch)) == pytest.approx(50 / int(scored.sum()))
    per_row, counts = task.item_scores(logits, batch)
    assert per_row.sum() == sums["accuracy"][0] and counts.sum() == sums["accuracy"][1]


def logits_for(task: Diagnostic, answers: torch.Tensor) -> torch.Tensor:
    """Return the output of a model that answers a batch so, with 50 nats between an answer and all others.

    The gradient of the logits that predict the answers is 1 where the model must put them.
    """
    logits = torch.zeros(*answers.shape, task.vocabulary, requires_grad=True)
    task.target_logits(logits).gather(-1, answers.clamp(min=0)[..., None])[answers != IGNORED].sum().backward()
    assert logits.grad is not None
    return 50 * logits.grad


def test_the_diagnostic_of_the_documentation_is_complete(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "diagnostics.md").read_text()
    (code,) = re.findall(r'```python title="first.py"\n(.*?)```', text, flags=re.DOTALL)
    (tmp_path / "first.py").write_text(code)
    path = f"{tmp_path / 'first.py'}:First"
    assert {result.status for result in check_task(path)} == {"passed", "not declared"}
    assert TASKS.get(path)(length=9).reference_scores()["solution"].score(50) == 1.0
