"""Tests of studies of a program, from the study file to the records: metrics, states, resumption, and processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli.main import main
from attnlab.config.command import CommandConfig
from attnlab.report.stored import load
from attnlab.report.write import write_report as report
from attnlab.study.adaptive import run_until_conclusive
from attnlab.study.execution.command import run_command
from attnlab.study.plan import code_change_notes
from attnlab.study.result import StudyResult
from attnlab.study.run import run
from attnlab.tracking.client import connect
from attnlab.tracking.runs import load_curves, load_runs
from attnlab.training.result import Result
from tests.support.empty_store import copy_store
from tests.support.paths import ROOT
from tests.support.processes import MARK, Marked, alive

STUDY: dict[str, Any] = {
    "study": "program",
    "command": "python train.py {how} {seed}",
    "grid": {"how": ["plain", "gated"]},
    "seeds": [0, 1, 2],
    "baseline": {"how": "plain"},
    "metric": {"name": "score", "direction": "min"},
    "retries": 0,
}
TRAIN = """\
import json, os, signal, subprocess, sys, time
how, seed = sys.argv[1], int(sys.argv[2])
open("log", "a").write(f"{how} {seed} {os.environ['OMP_NUM_THREADS']} {os.environ.get('MODE', '')}\\n")
print("begin")
for step in (10, 20):
    print(json.dumps({"step": step, "score": 9 - step / 10, "loss": 1}))
score = 1 + 0.01 * seed - 0.1 * (how == "gated") + 0.001 * (seed * (3 if how == "gated" else 1) % 4)
"""
END = 'print(json.dumps({"score": score, "how": 3, "valid/loss": 2, "text": "x", "flag": True}))\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(copy_store(tmp_path / "runs")))
    write(tmp_path, END)
    return tmp_path


def write(folder: Path, end: str) -> None:
    (folder / "train.py").write_text(TRAIN + end)


def go(folder: Path, study: dict[str, Any] | None = None, **options: Any) -> StudyResult:
    return run({**STUDY, **(study or {})}, root=folder / "runs", **options)


def started(folder: Path) -> list[str]:
    path = folder / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_runs_are_paired_recorded_and_not_repeated(folder: Path) -> None:
    result = go(folder, {"env": {"MODE": "a"}})
    assert [row.state for row in result.rows] == ["completed"] * 6 and len(started(folder)) == 6
    assert all(line.endswith(" a") for line in started(folder)), "the variables of the study are set"
    runs = load_runs("program", folder / "runs")
    assert dict(zip(runs["name"], runs["score"], strict=True))["gated s2"] == pytest.approx(0.922)
    assert min(runs["wall_seconds"]) > 0 and set(runs["valid_loss"]) == {2} and set(runs["how"]) == {"plain", "gated"}
    assert not {"parameters", "saved_mib", "tokens_per_s", "flag", "text"} & set(runs.columns)
    curves = load_curves("program", folder / "runs")
    assert {"curve/score", "curve/loss"} <= set(curves["metric"])
    points = curves[curves["metric"] == "curve/score"]
    assert {tuple(steps) for _, steps in points.groupby("run_id")["step"]} == {(10, 20)}
    client = connect(folder / "runs")
    params = client.get_run(str(runs["run_id"].iloc[0])).data.params
    assert params["how"] == "plain" and params["seed"] == "0"
    again = go(folder, {"env": {"MODE": "a"}})
    assert all(row.reused for row in again.rows) and len(started(folder)) == 6
    assert "begin" in (folder / "runs" / "work" / runs["fingerprint"][0] / "log.txt").read_text()


def test_a_changed_program_is_run_again_and_a_note_says_so(folder: Path) -> None:
    go(folder)
    from attnlab.planning.plan import plan

    assert not code_change_notes(plan(STUDY), folder / "runs")
    write(folder, END + "# a comment\n")
    assert all(row.reused for row in go(folder).rows)
    write(folder, "score += 1\n" + END)
    (note,) = code_change_notes(plan(STUDY), folder / "runs")
    assert "train.py" in note and "6 runs" in note
    assert not any(row.reused for row in go(folder).rows)
    assert set(load_runs("program", folder / "runs")["score"] > 1.5) == {True}, "the earlier runs are no longer current"


ENDINGS = {
    "raise ValueError('no gate')\n": ("failed", ("exit code 1", "ValueError: no gate")),
    "sys.exit(7)\n": ("failed", ("exit code 7",)),
    "print(json.dumps({'score': float('nan')}))\n": ("diverged", ("score is nan",)),
    "print(json.dumps({'score': float('inf')}))\n": ("diverged", ("score is inf",)),
    "print(json.dumps({'score': 1e308}))\n": ("diverged", ("score is 1e+308",)),
    "print('{\"loss\": 1}')\n": ("failed", ("the last line of stdout", "loss")),
    "time.sleep(60)\n": ("timed_out", ("run.timeout",)),
    "os.kill(os.getpid(), signal.SIGTERM)\n": ("failed", ("SIGTERM",)),
}


@pytest.mark.parametrize("end", ENDINGS)
def test_a_run_that_does_not_complete_has_a_row_and_stops_no_other(end: str, folder: Path) -> None:
    state, words = ENDINGS[end]
    write(folder, f"if how == 'plain':\n    print(json.dumps({{'score': 1}}))\n    sys.exit()\n{end}")
    result = go(folder, {"seeds": [0], "run": {"timeout": 2}})
    plain, gated = result.rows
    assert plain.state == "completed" and gated.state == state, gated.reason
    assert all(word in gated.reason for word in words), gated.reason


def test_the_end_of_stderr_is_an_artifact_of_a_failed_run(folder: Path) -> None:
    write(folder, "print('a detail', file=sys.stderr)\nsys.exit(3)\n")
    row = go(folder, {"seeds": [0]}).rows[0]
    assert row.reason == "exit code 3: a detail"
    (text,) = (folder / "runs").glob(f"artifacts/program/{row.run_id}/artifacts/traceback.txt")
    assert text.read_text() == "a detail"


def test_a_program_that_a_signal_ends_is_tried_again(folder: Path) -> None:
    write(folder, "if len(open('log').readlines()) == 1: os.kill(os.getpid(), signal.SIGKILL)\n" + END)
    result = go(folder, {"seeds": [0], "retries": 1})
    assert [row.state for row in result.rows] == ["completed"] * 2 and len(started(folder)) == 3


def test_a_process_that_a_program_leaves_behind_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, str(folder))
    write(folder, "child = subprocess.Popen(['sleep', '600'])\nprint(json.dumps({'score': 1, 'child': child.pid}))\n")
    result = go(folder, {"seeds": [0]})
    assert result.ok
    until = time.monotonic() + 20
    while any(alive(int(row.summary["child"])) for row in result.rows):
        assert time.monotonic() < until, "a process outlived its run"
        time.sleep(0.05)


def test_workers_run_at_the_same_time_and_divide_the_threads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    meet = "open(f'here-{how}', 'w').close()\nother = {'plain': 'gated', 'gated': 'plain'}[how]\n"
    write(folder, f"{meet}while not os.path.exists(f'here-{{other}}'): time.sleep(0.01)\n{END}")
    assert go(folder, {"seeds": [0], "run": {"timeout": 60}}, workers=2).ok
    assert {line.split()[2] for line in started(folder)} == {"2"}


def test_seeds_are_added_until_the_verdict_is_conclusive(folder: Path) -> None:
    write(folder, "score += 0.097 * (how == 'gated')\n" + END)
    result = run_until_conclusive({**STUDY, "seeds": [0, 1]}, run=run, max_seeds=4, root=folder / "runs")
    assert {row.state for row in result.rows} == {"completed"} and len(result.rows) > 4


def test_a_command_of_one_cell_can_be_selected(folder: Path) -> None:
    result = go(folder, only={"how": "gated"})
    assert {row.cell for row in result.rows} == {"gated"}


def test_a_recorded_result_is_not_computed_again(folder: Path, tmp_path: Path) -> None:
    """The parent may die between the end of the program and its record."""
    config = CommandConfig(command="python train.py gated {seed}", folder=str(folder))
    points: list[tuple[int, dict[str, float]]] = []

    def report(step: int, values: dict[str, float]) -> bool:
        points.append((step, values))
        return False

    def ended() -> Result:
        place = tmp_path / "run"
        place.mkdir(exist_ok=True)
        end = run_command(config, metric="score", threads=1, report=report, folder=place)
        assert isinstance(end, Result)
        return end

    first, again = ended(), ended()
    assert len(started(folder)) == 1 and again == first and again.state == "completed"
    assert (
        points[:2]
        == points[2:]
        == [(10, {"curve/score": 8.0, "curve/loss": 1.0}), (20, {"curve/score": 7.0, "curve/loss": 1.0})]
    )


def test_a_divergence_is_recorded_and_not_computed_again(folder: Path, tmp_path: Path) -> None:
    write(folder, "print(json.dumps({'score': float('nan')}))\n")
    config = CommandConfig(command="python train.py gated {seed}", folder=str(folder))
    for _ in range(2):
        end = run_command(config, metric="score", threads=1, report=lambda step, values: False, folder=tmp_path)
        assert isinstance(end, Result) and (end.state, end.reason) == ("diverged", "score is nan")
    assert len(started(folder)) == 1


def test_the_page_states_the_command_and_nothing_that_it_does_not_know(folder: Path) -> None:
    go(folder)
    text = (report("program", folder / "runs", folder / "page") / "README.md").read_text(encoding="utf-8")
    assert "| command | python train.py {how} {seed} |" in text and "train.py " in text
    assert "as the program prints it" in text and "(curve-score.svg)" in text and "(wall_seconds.svg)" in text
    unknown = ("test split", "same batches", "tokens/s", "evaluation", "saved MiB", "empty folder", "All seeds give")
    assert not [words for words in unknown if words in text]
    assert "wall s" in text and "`gated` **is better** than `plain`" in text
    stored = load(folder / "page")
    assert set(stored["curves"]["metric"]) == {"curve/score", "curve/loss"}


def test_seeds_with_the_same_result_are_noted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "print(json.dumps({'score': len(how)}))\n")
    (folder / "s.yaml").write_text(json.dumps({**STUDY, "grid": {"how": ["plain", "clipped"]}}))
    assert main(["run", "s.yaml"]) == 0
    assert "All seeds give the same result: plain, clipped." in capsys.readouterr().out
    assert "All seeds give the same result" in (folder / "runs" / "reports" / "program" / "README.md").read_text(
        encoding="utf-8"
    )
    assert main(["plan", "s.yaml", "--seeds", "0-3"]) == 0
    out = capsys.readouterr().out
    assert "Finished runs: 6 of 8" in out and "for the 2 runs left" in out and "First command: python train.py plain 0" in out
    assert main(["runs", "program", "--where", "how == 'plain'"]) == 0
    assert "plain s2  completed  plain" in capsys.readouterr().out
    assert main(["check", "--study", "s.yaml"]) == 2


def test_a_study_whose_parent_is_killed_leaves_no_process_and_resumes(tmp_path: Path) -> None:
    root, wait = tmp_path / "runs", tmp_path / "wait"
    copy_store(root)
    wait.touch()
    write(tmp_path, f"while seed > 2 and os.path.exists({str(wait)!r}): time.sleep(0.01)\n{END}")
    study = {**STUDY, "seeds": [0, 1, 2, 3, 4]}
    (tmp_path / "s.yaml").write_text(json.dumps(study))
    environment = os.environ | {"ATTNLAB_RUNS": str(root), "PYTHONPATH": str(ROOT), MARK: str(tmp_path)}
    words = [sys.executable, "-m", "attnlab", "run", "s.yaml", "--no-report", "--workers", "2"]
    parent = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while len(started(tmp_path)) < 8 or list(load_runs("program", root)["state"]).count("completed") < 6:  # two runs wait
        assert time.monotonic() < until and parent.poll() is None
        time.sleep(0.05)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert Marked(str(tmp_path)).gone(seconds=20), "a program outlived its study"
    wait.unlink()
    finished = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr
    runs = load_runs("program", root)
    assert list(runs["state"]) == ["completed"] * 10 and len(set(runs["fingerprint"])) == 10
    times = Counter(tuple(line.split()[:2]) for line in started(tmp_path))
    assert len(times) == 10 and sorted(times.values()) == [1] * 8 + [2] * 2, "only the two runs that were killed ran twice"


def test_a_file_that_the_program_writes_is_named_before_it_costs_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, f"open(f'{{how}}.json', 'w').write('1')\n{END}")
    (folder / "s.yaml").write_text(json.dumps({**STUDY, "seeds": [0, 1]}))
    assert main(["run", "s.yaml", "--no-report"]) == 0
    assert "gated.json, plain.json" in capsys.readouterr().out
    (folder / "s.yaml").write_text(json.dumps({**STUDY, "seeds": [0, 1], "files": ["*.py"]}))
    assert main(["plan", "s.yaml"]) == 0
    assert "Finished runs: 4 of 4" in capsys.readouterr().out


def test_a_program_that_is_edited_while_its_study_runs_mixes_no_results(folder: Path) -> None:
    edit = "if len(open('log').readlines()) == 3: open('train.py', 'a').write('score += 1\\n')\n"
    write(folder, edit + END)
    states = Counter(row.state for row in go(folder, {"seeds": [0, 1, 2]}).rows)
    assert states == {"completed": 2, "failed": 4}
    write(folder, END)
    assert go(folder).ok and set(load_runs("program", folder / "runs")["score"] < 1.5) == {True}
