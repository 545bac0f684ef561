"""Tests of the terminal at 80 and 120 columns: the live display and the final table, as snapshots and on a terminal.

``ATTNLAB_UPDATE_SNAPSHOTS=1`` writes the snapshots; read them before you commit them.
"""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from attnlab._util.run_state import RunState
from attnlab.cli import main
from attnlab.cli._results import print_results
from attnlab.cli.plan import print_plan
from attnlab.planning.plan import Plan, plan
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.result import StudyResult
from attnlab.tracking.artifacts import ReferenceScore
from attnlab.training.result import Result
from tests.support.compared import fake_record, of_rows
from tests.support.terminal import assert_snapshot, plain_lines, run_in_terminal

WIDTHS = pytest.mark.parametrize("width", [80, 120])
VARIANTS = ["dense", "no_wo", "narrow", "wide", "basic", "strided_sparse", "fixed_sparse"]
STUDY: dict[str, Any] = {
    "study": "quickstart",
    "base": {
        "task": {"name": "pydocs", "length": 17},
        "position": "learned",
        "model": {"dim": 12, "depth": 1, "heads": 2},
        "train": {"steps": 20, "batch_size": 2, "log_every": 2, "eval_every": 10},
        "evaluate": {"valid_limit": 200, "test_limit": 200},
        "machine": {"device": "cpu", "threads": 1},
    },
    "grid": {"variant": VARIANTS},
    "seeds": [0, 1],
    "baseline": {"variant": "dense"},
    "margin": 0.02,
}


class _Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def training(*names: str) -> tuple[ProgressDisplay, _Clock]:
    """Return a display of a study with three finished runs, in which these train, and its clock."""
    clock = _Clock()
    display = ProgressDisplay(io.StringIO(), clock=clock)
    display.start_study("quickstart", runs=14, finished=2, workers=3, metrics=["bits_per_byte"])
    for seed in range(3):
        clock.now += 40
        display.start_run(f"gru s{seed}", total=1000)
        display.end_run(f"gru s{seed}", Result(RunState.COMPLETED, {"bits_per_byte": 3.0}))
    for step in (10, 500):
        for name in names:
            display.start_run(name, total=1000)
            clock.now += 30
            display.metrics(name, step, {"train/loss": 2.31, "valid/bits_per_byte": 3.1, "train/tokens_per_s": 12_345.0})
    display.start_run("wide learned s1")
    return display, clock


def rendered(display: ProgressDisplay, width: int) -> list[str]:
    """Return the lines of the live display, without colors."""
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(display._progress.get_renderable())
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 200])
@pytest.mark.parametrize("name", ["dense s0", "a" * 300, "长" * 60])
def test_count_bar_and_time_left_never_disappear(width: int, name: str) -> None:
    every, line, starting = rendered(training(name)[0], width)
    assert len(line) <= width and " 500/1000 " in line and "━" in line and "00:31" in line
    assert " 5/16 " in every and "starting" in starting


def test_the_time_left_follows_the_steps_that_this_call_trained() -> None:
    clock, stream = _Clock(), io.StringIO()
    display = ProgressDisplay(stream, clock=clock)
    display.start_study("mine", runs=4, finished=0, workers=1)
    display.start_run("dense s0", total=100)
    display.metrics("dense s0", 60, {"train/loss": 2.0})  # resumed: an earlier call has trained these steps
    clock.now = 20
    display.metrics("dense s0", 80, {"train/loss": 2.0})
    assert "0:20 left" in stream.getvalue()


def test_a_display_shows_a_study_after_one_that_was_aborted() -> None:
    display, _ = training("dense s0")  # has not ended
    display.start_study("again", runs=1, finished=0, workers=1)
    display.start_run("dense s0", total=100)
    assert "0/100" in rendered(display, 120)[1]


def test_an_evaluation_is_named_until_the_next_point_of_a_curve() -> None:
    display, _ = training("dense s0")
    display.evaluation("dense s0", "test", 1_000, 25_000)
    assert "evaluating test 4%" in rendered(display, 120)[1]
    display.metrics("dense s0", 1000, {"train/loss": 2.0})
    assert "loss 2.000" in rendered(display, 120)[1]


def score(name: str, value: float) -> ReferenceScore:
    return ReferenceScore(name, "pydocs length=17", "data", None, "bits_per_byte", value, 1.0, "a compressor")


@pytest.fixture(scope="module")
def quickstart() -> Plan:
    return of_fixed_size(plan(STUDY))


def of_fixed_size(made: Plan) -> Plan:
    """Return a plan with made-up sizes of its data: the topics of ``help()`` depend on the version of Python."""
    sizes = "train 330,000 bytes, valid 18,000 bytes (all scored), test 18,000 bytes (all scored)"
    return replace(made, cells=[replace(cell, data_sizes=sizes) for cell in made.cells])


def result(made: Plan, states: dict[str, RunState] | None = None, seeds: int = 2) -> StudyResult:
    """Return a result with made-up values."""
    rows = []
    for i, cell in enumerate(made.cells):
        state = (states or {}).get(cell.name, RunState.COMPLETED)
        for seed in range(seeds):
            value = 3.1 + 0.013 * i * (-1) ** i + 0.017 * seed**2 * (1 + 0.37 * i)
            costs = {"tokens_per_s": 52_345.0 - 1_000 * i, "saved_mib": 23.1 + i, "train_seconds": 8.85 + i}
            summary = {"bits_per_byte": value, **costs} if state == RunState.COMPLETED else {}
            rows.append(fake_record(cell.name, seed, summary, state))
    return StudyResult(made, rows, [score("gzip", 2.5033), score("8-gram", 1.6745)])


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[StudyResult, int | None], str]:
    """Return a function that prints a result on a terminal of a width, or into a file (None)."""

    def printed(result: StudyResult, width: int | None) -> str:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: width is not None)
        monkeypatch.setenv("COLUMNS", str(width or 10))
        monkeypatch.setenv("NO_COLOR", "1")
        info, compared = of_rows(result.plan, result.rows)
        data = {"data": str(compared.records[0]["data"]), "limit": compared.records[0]["evaluate.test_limit"]}
        scores = tuple(replace(score, **data) for score in result.reference_scores)
        print_results(replace(info, reference_scores=scores), compared)
        return capsys.readouterr().out

    return printed


@WIDTHS
def test_the_final_table(quickstart: Plan, printed: Callable[..., str], width: int) -> None:
    text = printed(result(quickstart), width)
    assert_snapshot(f"table-{width}", text)
    assert max(map(len, text.splitlines())) <= width


@WIDTHS
def test_the_final_table_with_a_failure(quickstart: Plan, printed: Callable[..., str], width: int) -> None:
    text = printed(result(quickstart, {"no_wo": RunState.FAILED}, seeds=5), width)
    assert_snapshot(f"table-failure-{width}", text)
    assert max(map(len, text.splitlines())) <= width


def test_values_that_all_cells_share_are_printed_once(quickstart: Plan, printed: Callable[..., str]) -> None:
    shared, failed = printed(result(quickstart), None), printed(result(quickstart, {"no_wo": RunState.FAILED}), None)
    assert shared.count("completed") == 1 and shared.count("too few") == 1 and "seeds: 2" in shared
    assert "completed" not in failed and failed.count("failed") == 1 and "seeds: 2 in all cells with a result" in failed


def test_a_study_on_a_terminal(tmp_path: Path) -> None:
    study = STUDY | {"grid": {"variant": ["dense"]}, "reference_scores": False}
    (tmp_path / "tiny.yaml").write_text(json.dumps(study))
    command = [sys.executable, "-m", "attnlab", "run", "tiny.yaml", "--workers", "2", "--no-report"]
    command += [
        "--set",
        "train.steps=600",
        "--set",
        "train.eval_every=300",
    ]  # longer than the time between two refreshes of the bars
    code, output = run_in_terminal(command, columns=80, cwd=tmp_path, environment={"ATTNLAB_RUNS": str(tmp_path / "runs")})
    lines = plain_lines(output)
    assert code == 0 and max(map(len, lines)) <= 80
    with_metrics = [line for line in lines if "loss " in line]
    assert with_metrics and all("/600 " in line and "━" in line for line in with_metrics)
    assert any(line.startswith("all runs") and " 2/2 " in line for line in lines)


GRID: dict[str, Any] = STUDY | {
    "grid": {"variant": ["dense", "gru", "lstm"], "position": ["learned", "rotary", "alibi"], "train.lr": [1e-3, 1e-4, 1e-5]},
    "skip": [
        {"where": {"variant": "dense", "position": "alibi"}, "because": "it is elsewhere"},
        {"where": {"variant": "dense", "position": "learned", "train.lr": 1e-5}, "because": "it was seen before"},
    ],
    "baseline": {"variant": "dense", "position": "rotary"},
    "seeds": [0],
}


@pytest.fixture(scope="module")
def grid() -> Plan:
    return of_fixed_size(plan(GRID))


@pytest.fixture
def printed_plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Return a function that prints a plan on a terminal of a width, or into a file (None)."""

    def printed(plan: Plan, width: int | None = None, **options: Any) -> list[str]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: width is not None)
        monkeypatch.setenv("COLUMNS", str(width or 10))
        print_plan(plan, tflops=1e-5, **options)
        return capsys.readouterr().out.splitlines()

    return printed


@WIDTHS
def test_the_plan(grid: Plan, printed_plan: Callable[..., list[str]], width: int) -> None:
    lines = printed_plan(grid, width)
    assert_snapshot(f"plan-{width}", "\n".join(lines) + "\n")
    assert max(map(len, lines)) <= width


def test_a_plan_groups_cells_by_reason(grid: Plan, printed_plan: Callable[..., list[str]]) -> None:
    lines = printed_plan(grid)
    refused = [line for line in lines if line.startswith("refused: ")]
    assert len(refused) == 4 and all(line.startswith("refused: 3 cells with variant=") for line in refused)
    skipped = [line for line in lines if line.startswith("skipped: ")]
    assert skipped == [
        "skipped: dense learned lr=1e-05: it was seen before",
        "skipped: 3 cells with variant=dense and position=alibi: it is elsewhere",
    ]


def test_a_plan_lists_each_cell_on_request(grid: Plan, printed_plan: Callable[..., list[str]]) -> None:
    lines = printed_plan(grid, each=True)
    left_out = [line for line in lines if line.startswith(("refused: ", "skipped: "))]
    assert len(left_out) == len(set(left_out)) == 12 + 4
    assert [line for line in lines if line.startswith("note: ")] == [f"note: {note}" for note in grid.notes]


@pytest.mark.parametrize("words", [["list", name] for name in ("config", "tasks", "variants", "components")])
def test_lists_fit_80_columns(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert main.main(words) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
