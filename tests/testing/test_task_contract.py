"""The contract of tasks: correct ones pass, and each check catches its mutants."""

import pytest

from attnlab.errors import UserError
from attnlab.tasks import Task
from attnlab.testing import CheckResult, check_task
from attnlab.testing.task_checks import TASK_CHECKS
from tests.mutants.tasks import CORRECT, NECESSARY, TASK_MUTANTS, Letters, OtherMetric, Sums
from tests.support.paths import ROOT

CASES = [(name, mutant) for name, mutants in TASK_MUTANTS.items() for mutant in mutants]


def failures(task: type[Task]) -> dict[str, CheckResult]:
    return {result.check: result for result in check_task(task) if result.status == "failed"}


@pytest.mark.parametrize("task", ["pydocs", f"{ROOT}/examples/my_task/recall.py:Recall", *CORRECT])
def test_correct_tasks_pass(task: str | type[Task]) -> None:
    results = check_task(task, options={"length": 24} if task == "pydocs" else {})
    assert [result.check for result in results] == list(TASK_CHECKS)
    assert not [result for result in results if result.status == "failed"]
    assert all(result.detail for result in results)


@pytest.mark.parametrize(("name", "mutant"), CASES, ids=lambda value: getattr(value, "__name__", str(value).replace(" ", "_")))
def test_a_mutant_is_caught_by_its_check_alone(name: str, mutant: type[Task]) -> None:
    caught = failures(mutant)
    assert set(caught) - NECESSARY.get(mutant, set()) == {name}, caught
    assert not caught[name].traceback, "the property must fail, not the task raise"
    assert caught[name].detail and caught[name].advice


def test_every_check_has_a_mutant() -> None:
    assert TASK_MUTANTS.keys() == TASK_CHECKS.keys()


def test_a_missing_metric_is_named() -> None:
    (result,) = check_task(OtherMetric, only=["chance level"])
    assert result.status == "failed" and "bits_per_byte" in result.detail


def test_chance_level_is_stated() -> None:
    (language_model,) = check_task(Letters, only=["chance level"])
    (classifier,) = check_task(Sums, only=["chance level"])
    assert "(uniform) 8" in language_model.detail and "chance 0.3333" in classifier.detail


@pytest.mark.parametrize(
    ("task", "options", "only", "words"),
    [
        ("pydoc", None, None, "did you mean 'pydocs'"),
        ("pydocs", {"lenght": 4}, None, "did you mean 'length'"),
        ("pydocs", {"length": "long"}, None, "expected a whole number"),
        ("pydocs", None, ["shape"], "did you mean 'shapes'"),
        (dict, None, None, "attnlab.tasks.Task"),
    ],
)
def test_invalid_arguments_are_user_errors(task: str, options: dict | None, only: list[str] | None, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_task(task, options=options, only=only)


def test_an_exception_names_the_line_of_the_task() -> None:
    class Raises(Sums):
        def train_batch(self, step: int, *, seed: int, batch_size: int):  # noqa: ANN202
            raise ValueError("no rows")

    (result,) = check_task(Raises)
    assert result.check == "shapes" and "no rows (test_task_contract.py:" in result.detail and result.traceback


def test_a_method_that_is_missing_is_named_before_it_is_called() -> None:
    class NoBatches(Task):
        kind, role, metric, direction = "classifier", "bidirectional", "accuracy", "max"
        length, vocabulary, classes = 5, 9, 2

    (result,) = check_task(NoBatches)
    assert result.status == "failed" and "identity()" in result.detail and not result.traceback


def test_data_that_are_missing_are_the_users_mistake() -> None:
    with pytest.raises(UserError, match="it does not exist"):
        check_task("text", options={"path": "nothing.txt"})
