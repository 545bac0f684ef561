"""Tests of the keys of a study of several tasks."""

from typing import Any

import pytest

from attnlab.config.axes import by_label, task_axis
from attnlab.config.reader import read_study
from attnlab.errors import UserError

STUDY: dict[str, Any] = {
    "study": "s",
    "base": {"model": {"dim": 12, "depth": 1, "heads": 2}, "train": {"steps": 5}},
    "grid": {"variant": ["dense", "no_wo"], "task": [{"name": "pydocs", "length": 24}, {"name": "imdb", "length": 12}]},
    "baseline": {"variant": "dense"},
}
SETTINGS = {"text": {"task": {"name": "pydocs"}, "train.lr": 1e-3}, "reviews": {"task": {"name": "imdb"}}}


def mistake(**changes: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        read_study(STUDY | changes)
    return caught.value


def test_the_task_axis_has_tasks_of_several_names() -> None:
    assert task_axis(read_study(STUDY)) == "task"
    named = {"variant": ["dense", "no_wo"], "setting": SETTINGS}
    assert task_axis(read_study(STUDY | {"grid": named})) == "setting"
    lengths = {"variant": ["dense", "no_wo"], "task": [{"name": "pydocs", "length": n} for n in (24, 48)]}
    assert task_axis(read_study(STUDY | {"grid": lengths})) == ""
    assert (
        task_axis(
            read_study(STUDY | {"grid": {"variant": ["dense", "no_wo"]}, "base": {"task": "imdb", "train": {"steps": 1}}})
        )
        == ""
    )


def test_metric_and_margin_may_name_a_task_without_its_options() -> None:
    study = read_study(STUDY | {"metric": {"imdb": "loss"}, "margin": {"imdb length=12": 0.02, "pydocs": 0.01}})
    assert isinstance(study.metric, dict) and isinstance(study.margin, dict)
    assert by_label(study, "metric", study.metric) == {"imdb length=12": "loss"}
    assert by_label(study, "margin", study.margin) == {"imdb length=12": 0.02, "pydocs length=24": 0.01}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metric": {"enwik8": "loss"}}, ("expected one of pydocs length=24, imdb length=12", "'enwik8'")),
        ({"margin": {"imdb": 0.1, "imdb length=12": 0.2}}, ("each task once", "imdb length=12")),
        ({"margin": {"imdb": -1}}, ("a number greater than 0",)),
        ({"margin": {}}, ("at least one task",)),
        ({"metric": {"imdb": 3}}, ("the name of a metric",)),
        ({"baseline": {"variant": "dense", "task": "imdb"}}, ("baseline", "within their task")),
        ({"baseline": [{"variant": "dense"}, {"task": "imdb"}]}, ("baseline", "within their task")),
        ({"control": {"variant": "no_wo", "task": "imdb"}}, ("control", "within their task")),
        ({"grid": {"variant": ["dense", "no_wo"]}, "metric": {"imdb": "loss"}}, ("metric", "one task")),
        ({"grid": {"variant": ["dense", "no_wo"]}, "margin": {"imdb": 0.1}}, ("margin", "one task")),
        (
            {"grid": {}, "baseline": None, "factors": {"task": ["pydocs", "imdb"], "model.depth": [1, 2]}},
            ("factors.task", "one task"),
        ),
    ],
)
def test_mistakes(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    if changes.get("grid") == {}:
        base = {key: value for key, value in STUDY.items() if key not in ("grid", "baseline")}
        with pytest.raises(UserError) as caught:
            read_study(base | {key: value for key, value in changes.items() if value})
        error = caught.value
    else:
        error = mistake(**changes)
    for word in words:
        assert word in error.message, error.message
