"""Tests of `attnlab runs`: conditions, columns, order and formats."""

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas
import pytest

from attnlab._util.run_state import RunState
from attnlab.cli import main
from attnlab.tracking import runs as tracked
from attnlab.tracking.tracker import Tracker
from tests.support.synthetic import made_up
from tests.tracking.test_delivery import small

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def frame(monkeypatch: pytest.MonkeyPatch) -> pandas.DataFrame:
    """28 runs of ten cells; one cell is refused, one run has diverged."""
    runs, _ = made_up()
    runs = runs.assign(phase="grid", trial=None, **{"evaluate.batch_size": None, "train.batch_size": 32})
    runs["train.betas"] = [[0.9, 0.98] for _ in range(len(runs))]
    runs["params"] = [{} for _ in range(len(runs))]
    runs["reason"] = runs["reason"].where(runs["reason"] != "the training loss became nan at step 120", 'a, "b"\nc')
    monkeypatch.setattr(tracked, "load_runs", lambda study: runs)
    return runs


def printed_rows(out: Out, *words: str) -> list[dict[str, str]]:
    """Return the rows that `attnlab runs` prints as CSV."""
    assert main.main(["runs", "made-up", "--format", "csv", *words]) == 0
    return list(csv.DictReader(io.StringIO(out.readouterr().out)))


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        ([], 28),
        (["variant == 'no_wo'"], 6),
        (["variant != 'no_wo'"], 22),
        (["variant == 'strided_sparse stride=16'"], 6),
        (["variant == 'no_wo' and seed == 1"], 2),
        (["variant in ('no_wo', 'basic') and seed < 2"], 7),
        (["bits_per_byte <= 9"], 26),
        (["bits_per_byte > 9"], 0),
        (["bits_per_byte.isna()"], 2),
        (["lr == 3e-4"], 28),
        (["`train.lr` == 3e-4"], 28),
        (["name.str.startswith('no_wo')"], 6),
        (["started > '2026-01-02 03:05:30Z'"], 9),
    ],
)
def test_every_condition_must_hold(conditions: list[str], count: int, capsys: Out) -> None:
    words = [word for condition in conditions for word in ("--where", condition)]
    assert len(printed_rows(capsys, *words)) == count


def test_columns_are_printed_in_the_requested_order(capsys: Out, frame: Any) -> None:
    rows = printed_rows(capsys, "--columns", "name, seed,lr", "--where", "variant == 'basic'")
    assert list(rows[0]) == ["name", "seed", "train.lr"]
    assert rows[0] == {"name": "basic learned s0", "seed": "0", "train.lr": "0.0003"}
    assert list(printed_rows(capsys)[0]) == [
        "run_id",
        "name",
        "state",
        "bits_per_byte",
        "tokens_per_s",
        "train_seconds",
        "reason",
    ]
    assert list(printed_rows(capsys, "--columns", "all")[0]) == list(frame.columns)


def test_a_searched_study_shows_phases_and_validation_scores(capsys: Out, frame: Any) -> None:
    frame["phase"] = "search"
    assert {"phase", "valid_bits_per_byte"} <= set(printed_rows(capsys)[0])


@pytest.mark.parametrize("sign", ["", "-"])
def test_missing_values_sort_last(sign: str, capsys: Out) -> None:
    values = [row["bits_per_byte"] for row in printed_rows(capsys, f"--sort={sign}bits_per_byte")]
    numbers = [float(value) for value in values[:26]]
    assert values[26:] == ["", ""] and numbers == sorted(numbers, reverse=bool(sign))
    names = [row["name"] for row in printed_rows(capsys, "--sort", "name")]
    assert names == sorted(names)


def test_json_keeps_types_and_every_digit(capsys: Out, frame: Any) -> None:
    words = ["--format", "json", "--columns", "seed,bits_per_byte,reason,params,started,trial"]
    assert main.main(["runs", "made-up", *words, "--where", "variant == 'no_wo' and position == 'rotary'"]) == 0
    rows = json.loads(capsys.readouterr().out)
    value = frame[frame["name"] == "no_wo rotary s0"]["bits_per_byte"].iloc[0]
    assert rows[0] == {
        "seed": 0,
        "bits_per_byte": value,
        "reason": "",
        "params": {},
        "started": "2026-01-02T03:04:00+00:00",
        "trial": None,
    }
    assert (rows[1]["bits_per_byte"], rows[1]["reason"]) == (None, 'a, "b"\nc')


def test_a_pipe_gets_every_run_on_one_line_without_truncation(capsys: Out, frame: Any) -> None:
    assert main.main(["runs", "made-up"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 28 and lines[2].startswith(frame["run_id"][0])
    assert 'a, "b"\\nc' in "".join(lines)
    assert main.main(["runs", "made-up", "--columns", "name,trial", "--where", "seed == 2"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["name", "trial"], "a requested column stays although it is empty"


def test_a_terminal_gets_a_table_that_fits(capsys: Out, frame: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    frame["reason"] = ""
    assert main.main(["runs", "made-up"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 60 and frame["run_id"][0][:8] in out and frame["run_id"][0] not in out


def test_conditions_that_no_run_meets_give_an_empty_table(capsys: Out) -> None:
    assert main.main(["runs", "made-up", "--where", "seed == 99"]) == 0
    out, note = capsys.readouterr()
    lines = out.splitlines()
    assert len(lines) == 2 and "bits_per_byte" in lines[0] and "no run meets" in note


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--where", "sed == 1"], "name 'sed' is not defined"),
        (["--where", "seed=1"], "--where seed=1: expected an expression such as"),
        (["--where", "seed"], "--where seed: expected"),
        (["--where", "seed <"], "--where seed <: expected"),
        (["--where", "seed < 'one'"], "--where seed < 'one': expected"),
        (["--columns", "name,batch_size"], "unknown column 'batch_size'"),
        (["--columns", "name,acuracy"], "--columns name,acuracy: unknown column 'acuracy'"),
        (["--sort", "sed"], "--sort sed: unknown column 'sed' (did you mean 'seed'?)"),
        (["--format", "xml"], "unknown 'xml'"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], expected: str, capsys: Out) -> None:
    assert main.main(["runs", "made-up", *words]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and expected in error


def test_conditions_need_a_study_with_runs(capsys: Out, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for words in (["--where", "seed == 1"], ["--format", "json"]):
        assert main.main(["runs", *words]) == 2
        assert "require a study's name" in capsys.readouterr().err
    monkeypatch.setattr(tracked, "load_runs", lambda study: pandas.DataFrame())
    assert main.main(["runs", "made-up"]) == 2
    assert "the study 'made-up' has no runs yet" in capsys.readouterr().err


def test_without_a_study_the_studies_are_listed(root: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    assert main.main(["runs"]) == 0 and "no studies yet" in capsys.readouterr().out
    for name in ("second", "first"):
        with Tracker(small(name), root) as tracker:
            if name == "first":
                tracker.finish(tracker.start(small(name).runs[0]), RunState.COMPLETED)
    assert main.main(["runs"]) == 0
    heading, _, *rows, hint = capsys.readouterr().out.splitlines()
    assert heading.split()[0] == "study" and [row.split()[0] for row in rows] == ["first", "second"]
    today = f"{datetime.now(tz=UTC):%Y-%m-%d}"
    assert [row.count(today) for row in rows] == [2, 1], "a study without runs has no latest run"
    assert "attnlab runs STUDY" in hint
