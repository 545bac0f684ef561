"""Tests of the metrics that a program prints: how a line is read, and which values are left out, with a notice."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from attnlab.config.command import CommandConfig, describe_bad_name, result_name
from attnlab.study.execution.command import PrintedMetrics, describe_missing, parse_metrics, run_command
from attnlab.study.execution.job import Ended, Raised

HUGE = "1" + "0" * 400


def printed(*lines: str, metric: str = "score") -> tuple[PrintedMetrics, list[str]]:
    notices: list[str] = []
    metrics = PrintedMetrics(lambda step, values: False, notices.append, metric, {"lr", "seed"})
    for line in lines:
        metrics.read(line)
    return metrics, notices


@pytest.mark.parametrize("last", ["null", '"nan"', HUGE, "[0.5]"])
def test_a_last_value_that_is_no_number_leaves_no_earlier_one(last: str) -> None:
    metrics, _ = printed('{"score": 0.7, "loss": 1}', f'{{"score": {last}}}')
    assert metrics.results == {"loss": 1.0} and "instead of a number" in describe_missing(metrics)
    metrics, _ = printed('{"step": 3, "score": 0.7}', f'{{"score": {last}}}')
    assert "instead of a number" in describe_missing(metrics), "and not only a point of a curve"
    assert printed('{"score": 0.7}', f'{{"step": 3, "score": {last}}}')[0].results == {"score": 0.7}
    assert printed('{"score": 0.7}', f'{{"best": {{"score": {last}}}}}')[0].results == {"score": 0.7}
    assert printed('{"score": 0.7}', f'{{"score": {last}}}', '{"score": 0.8}')[0].results == {"score": 0.8}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('\x1b[32m{"loss": 1.5}\x1b[0m', (None, {"loss": 1.5})),
        ('\x1b[1;31m{"step": 2, "loss": 1}\x1b[K', (2, {"loss": 1.0})),
        ('\repoch 0\repoch 1\r{"loss": 1.5}', (None, {"loss": 1.5})),
        ('\repoch 0\repoch 1{"loss": 1.5}', (None, {"loss": 1.5})),
        ('{"loss": 1.5}\r', (None, {"loss": 1.5})),
        ('\ufeff{"loss": 1.5}', (None, {"loss": 1.5})),
        ('INFO:root:{"loss": 1.5}', None),  # a line of the log may show any object, such as the configuration
        ("{'loss': 1.5}", None),  # likewise: print(vars(args))
        ('{"loss": 1.5, "count": ' + HUGE + "}", (None, {"loss": 1.5})),
        ('{"loss": 1e400}', (None, {"loss": math.inf})),
        ('{"loss": 1' + "0" * 5000 + "}", None),
        ('{"step": null, "loss": 1.5}', (None, {"loss": 1.5})),
        ('{"step": 3.0, "loss": 1.5}', (3, {"loss": 1.5})),
    ],
)
def test_what_a_terminal_shows_is_read(line: str, expected: tuple[int | None, dict[str, float]] | None) -> None:
    assert parse_metrics(line) == expected


def test_a_step_that_is_none_is_a_result_and_another_one_is_noted() -> None:
    metrics, notices = printed('{"score": 0.7}', '{"step": null, "score": 0.8}')
    assert metrics.results == {"score": 0.8} and not notices
    metrics, notices = printed('{"score": 0.7}', *('{"step": "last", "score": 0.8}',) * 2)
    assert metrics.results == {"score": 0.7} and len(notices) == 1 and "'last'" in notices[0]
    assert printed('{"score": 0.7}', '{"step": null, "score": null}')[0].results == {}


def test_results_of_several_splits_are_noted_once() -> None:
    valid, test = '{"score": 0.7, "split": "valid"}', '{"score": 0.8, "split": "test"}'
    metrics, notices = printed(valid, test, valid, test)
    assert metrics.results == {"score": 0.8} and len(notices) == 1 and "'valid'" in notices[0]
    for lines in (
        (valid, valid),
        (test, '{"loss": 1.0, "split": "train"}'),
        ('{"step": 1, "score": 0.1, "split": "valid"}', test),
    ):
        assert printed(*lines)[1] == []


@pytest.mark.parametrize("name", ["", ".", "..", "..a", "x" * 300])
@pytest.mark.parametrize("step", [None, 1])
def test_a_name_that_the_store_refuses_is_left_out_once_with_a_notice(name: str, step: int | None) -> None:
    line = json.dumps({"step": step, name: 1.0, "loss": 2.0} if step is not None else {name: 1.0, "loss": 2.0})
    metrics, notices = printed(line, line)
    if step is None:
        assert metrics.results == {"loss": 2.0} and len(notices) == 1
    else:
        assert all("curve/loss" in values for _, values in metrics.history)
        assert all(not describe_bad_name(name) for _, values in metrics.history for name in values)


@pytest.mark.parametrize("name", ["a//b", "a/../b", "/a", "a/", "./a", "../a"])
def test_a_curve_whose_name_is_no_path_is_left_out(name: str) -> None:
    metrics, notices = printed(json.dumps({"step": 1, name: 1.0, "a/b": 2.0}))
    assert metrics.history[0][1]["curve/a/b"] == 2.0
    kept = [key for key in metrics.history[0][1] if key != "curve/a/b"]
    assert len(kept) + len(notices) == 1


def test_names_that_mlflow_accepts_are_those_that_are_recorded() -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.utils.validation import _validate_metric_name  # the store's own check

    for name in (
        "",
        ".",
        "..",
        "..a",
        "a",
        ".a",
        "curve/",
        "curve/.",
        "curve/a//b",
        "curve//a",
        "curve/a/",
        "curve/..a",
        "a.b-c_d",
    ):
        try:
            _validate_metric_name(name)
            accepted = bool(name)
        except MlflowException:
            accepted = False
        assert accepted or describe_bad_name(name), name


@pytest.mark.parametrize("order", [("hit_1", "hit@1"), ("hit@1", "hit_1")])
@pytest.mark.parametrize("lines", [1, 2])
def test_two_names_that_become_one_do_not_overwrite_each_other(order: tuple[str, str], lines: int) -> None:
    values = {"hit_1": 0.5, "hit@1": 0.9}
    both = [json.dumps({name: values[name] for name in order})]
    apart = [json.dumps({name: values[name]}) for name in order]
    metrics, notices = printed(*(both if lines == 1 else apart), metric="hit_1")
    assert metrics.results == {"hit_1": 0.5}
    assert len(notices) == 1 and "hit@1" in notices[0]


def test_two_curves_that_become_one_do_not_mix() -> None:
    metrics, notices = printed('{"step": 1, "hit@1": 0.9, "hit_1": 0.5}', '{"step": 2, "hit@1": 0.9, "hit_1": 0.4}')
    assert metrics.history == [(1, {"curve/hit_1": 0.5}), (2, {"curve/hit_1": 0.4})] and len(notices) == 1


def test_columns_of_attnlab_are_not_replaced() -> None:
    metrics, notices = printed('{"score": 1, "seconds": 3, "wall_seconds": 4, "lr": 5, "parameters": 6}')
    assert metrics.results == {"score": 1, "parameters": 6}
    assert len(notices) == 2, "placeholders are often printed, and have no notice"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('INFO:root:{"score": 0.8}', "other text on its line"),
        ("{'score': 0.8}", "json.dumps"),
        ('{"score": "0.8"}', "a text"),
        ('{"score": true}', "true or false"),
        ('{"score": null}', "null"),
        ('{"score": ' + HUGE + "}", "too large"),
        ('{"eval": {"score": 0.8}}', "inside another value"),
        ("score = 0.8", "another form"),
        ('{"step": 3, "score": 0.8}', "a point of a curve"),
        ('{"loss": 0.8}', "got loss"),
        ("nothing", "no line with metrics"),
    ],
)
def test_the_reason_of_a_missing_metric_has_what_was_found(line: str, words: str) -> None:
    reason = describe_missing(printed(line)[0])
    assert words in reason and len(reason) < 400


def test_a_run_with_refused_values_completes(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"score": 0.5, "": 1, ".": 2, "x" * 300: 3, "a//b": 4, "ok": 5}
    curve, result = json.dumps({"step": 1, "a//b": 1, "": 2}), json.dumps(fields)[:-1] + f', "big": {HUGE}}}'
    (tmp_path / "t.py").write_text(f"print({curve!r})\nprint({result!r})\n")
    config = CommandConfig(command="python t.py {seed}", folder=str(tmp_path))
    notices: list[str] = []
    points: list[Any] = []
    options: dict[str, Any] = {"metric": "score", "threads": 1, "folder": tmp_path}
    end = run_command(config, **options, report=lambda *point: bool(points.append(point)), notify=notices.append)
    assert isinstance(end, Ended) and end.state == "completed"
    assert {name: value for name, value in end.summary.items() if not name.startswith(("wall", "host"))} == {
        "score": 0.5,
        result_name("a//b"): 4,
        "ok": 5,
    }
    assert not points and len(notices) == 4


def test_a_run_without_its_metric_fails_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("print({'score': 0.5})\n")
    config = CommandConfig(command="python t.py {seed}", folder=str(tmp_path))
    end = run_command(config, metric="score", threads=1, folder=tmp_path, report=lambda step, values: False)
    assert isinstance(end, Raised) and "{'score': 0.5}" in end.reason
