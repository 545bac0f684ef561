"""The output of a program: its result, the curves before it, and the files that may not change while it runs."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from attnlab.config.command import CommandConfig
from attnlab.planning.command_files import file_digests
from attnlab.study.execution.command import parse_object, parse_point, recorded_results, run_command
from attnlab.training.result import Result

HUGE = "1" + "0" * 400
EARLY = 'print(json.dumps({"score": 0.1}), flush=True)\n'


def ended(folder: Path, code: str, *, command: str = "python t.py {seed}", **fields: Any) -> tuple[Result, list[str]]:
    (folder / "t.py").write_text(f"import json, sys, time\n{code}\n")
    config = CommandConfig(command=command, folder=str(folder), **fields)
    notices: list[str] = []
    (folder / "run").mkdir(exist_ok=True)
    options: dict[str, Any] = {"metric": "score", "threads": 1, "folder": folder / "run", "notify": notices.append}
    end = run_command(config, **options, report=lambda step, values: False)
    assert isinstance(end, Result)
    return end, notices


def score(end: Result) -> float | None:
    return end.summary["score"] if end.state == "completed" else None


COUNTS = {
    "a line": 'print(json.dumps({"score": 0.9}))',
    "with blank lines after it": 'print(json.dumps({"score": 0.9}) + "\\n\\n  ")',
    "without an end of the line": 'sys.stdout.write(json.dumps({"score": 0.9}))',
    "of more than a mebibyte": 'print(json.dumps({"score": 0.9, "rows": [0.5] * 400_000}))',
    "after a progress bar": 'print("\\repoch 0\\repoch 1\\r" + json.dumps({"score": 0.9}))',
    "with a step that is null": 'print(json.dumps({"step": None, "score": 0.9}))',
    "with other values": 'print(json.dumps({"score": 0.9, "more": {"score": 1}, "name": "x", "ok": True}))',
    "before stderr": 'print(json.dumps({"score": 0.9}))\nprint("done", file=sys.stderr)',
}


@pytest.mark.parametrize("end", COUNTS.values(), ids=COUNTS)
def test_the_last_line_is_the_result(end: str, tmp_path: Path) -> None:
    assert score(ended(tmp_path, EARLY + end)[0]) == 0.9


FAILS = {
    "several lines": 'print(json.dumps({"score": 0.9}, indent=2))',
    "Python's notation": 'print({"score": 0.9})',
    "the prefix of a logger": 'print("INFO:root:" + json.dumps({"score": 0.9}))',
    "a color": 'print("\\x1b[32m" + json.dumps({"score": 0.9}) + "\\x1b[0m")',
    "an object inside another": 'print(json.dumps({"test": {"score": 0.9}}))',
    "a list": 'print(json.dumps([{"score": 0.9}]))',
    "two objects": 'print(json.dumps({"score": 0.9}) + json.dumps({"score": 0.9}))',
    "a name twice": 'print(\'{"score": 0.9, "score": 0.1}\')',
    "text after a progress bar": 'print("\\repoch 1" + json.dumps({"score": 0.9}))',
    "a point of a curve": 'print(json.dumps({"step": 3, "score": 0.9}))',
    "null": 'print(json.dumps({"score": None}))',
    "a text": 'print(json.dumps({"score": "0.9"}))',
    "true": 'print(json.dumps({"score": True}))',
    "another metric": 'print(json.dumps({"loss": 0.9}))',
    "a line after it": 'print(json.dumps({"score": 0.9}))\nprint("done")',
}


@pytest.mark.parametrize("end", FAILS.values(), ids=FAILS)
def test_anything_else_fails_the_run_and_no_earlier_value_counts(end: str, tmp_path: Path) -> None:
    result, _ = ended(tmp_path, EARLY + end)
    assert result.state == "failed" and len(result.reason) < 400
    assert "the last line of stdout" in result.reason and "\x1b" not in result.reason


def test_the_reason_has_the_line(tmp_path: Path) -> None:
    result, _ = ended(tmp_path, "print({'score': 0.5})")
    assert result.state == "failed" and "{'score': 0.5}" in result.reason
    result, _ = ended(tmp_path, "")
    assert result.state == "failed" and "got nothing" in result.reason


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('score: 0.1'); print('test score: 0.9 (best)'); print('done')", 0.9),
        ("print('score: 0.1, score: 0.9')", 0.9),
        ("print('score: 0.1'); print('score: nan%')", None),
        ("print('done')", None),
    ],
)
def test_the_last_match_of_a_pattern_is_the_result(code: str, expected: float | None, tmp_path: Path) -> None:
    end, _ = ended(tmp_path, code, pattern=r"score: ([^\s,]+)")
    assert score(end) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [('{\n  "score": 0.9,\n  "loss": 1\n}\n', 0.9), ("score: 0.9", None), ("", None), ('{"score": 1}{"score": 2}', None)],
)
def test_a_file_may_hold_the_result(text: str, expected: float | None, tmp_path: Path) -> None:
    code = f"print('{{\"score\": 0.1}}')\nopen(sys.argv[1], 'w').write({text!r})"
    end, _ = ended(tmp_path, code, command="python t.py {result} {seed}")
    assert score(end) == expected
    if expected is None:
        assert end.state == "failed" and "{result}" in end.reason
        end, _ = ended(tmp_path, "print('no result')", command="python t.py {result} {seed}")
        assert end.state == "failed" and "got nothing" in end.reason, "the file of an earlier attempt is gone"


def planned(folder: Path) -> dict[str, tuple[str, str]]:
    return {name: file_digests(folder / name) for name in ("data.txt", "t.py") if (folder / name).is_file()}


def test_a_file_that_changes_while_a_program_runs_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("1")
    listing = planned(tmp_path)
    end, _ = ended(tmp_path, 'open("data.txt", "w").write("2")\nprint(\'{"score": 1}\')', listing=listing)
    assert end.state == "failed" and "data.txt" in end.reason and "while" in end.reason
    end, _ = ended(tmp_path, 'open("started", "w")', listing=listing)
    assert end.state == "failed" and "data.txt" in end.reason and not (tmp_path / "started").exists(), "nor does one start"
    (tmp_path / "data.txt").unlink()
    assert ended(tmp_path, "", listing=listing)[0].state == "failed"
    end, _ = ended(tmp_path, 'open("new.txt", "w").write("2")\nprint(\'{"score": 1}\')', listing={})
    assert score(end) == 1, "a new file is a result"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('  {"step": 3, "loss": 1, "name": "x", "ok": true, "more": {"a": 1}}', (3, {"curve/loss": 1.0})),
        ('{"step": 3.0, "loss": Infinity, "valid/loss": 2}', (3, {"curve/loss": math.inf, "curve/valid/loss": 2.0})),
        ('{"step": 1, "hit@1": 0.9, "hit_1": 0.5}', (1, {"curve/hit_1": 0.5})),
        ('{"step": 3}', (3, {})),
        ('{"loss": 1.5}', (None, {})),
        ('{"step": 0.5, "loss": 1}', (None, {})),
        ('{"step": "3", "loss": 1}', (None, {})),
        ('{"step": NaN, "loss": 1}', (None, {})),
        ('{"step": true, "loss": 1}', (None, {})),
        ('{"step": ' + HUGE + ', "loss": 1}', (None, {})),
        ('{"loss": 1', (None, {})),
        ('[{"step": 1, "loss": 1}]', (None, {})),
        ("loss: 1", (None, {})),
        ("{" * 100_000, (None, {})),
    ],
)
def test_a_line_with_a_step_is_a_point_of_a_curve(line: str, expected: tuple[int | None, dict[str, float]]) -> None:
    assert parse_point(line) == expected


def test_columns_of_attnlab_and_placeholders_are_not_replaced() -> None:
    notices: list[str] = []
    fields = parse_object('{"score": 1, "seconds": 3, "wall_seconds": 4, "lr": 5, "parameters": 6}')
    assert recorded_results(fields, {"lr"}, notices.append) == {"score": 1, "parameters": 6}
    assert len(notices) == 2, "placeholders are often printed, and have no notice"


def test_a_process_that_keeps_the_pipe_holds_no_run_up(tmp_path: Path) -> None:
    child = f'__import__("subprocess").Popen([{sys.executable!r}, "-c", "import time; time.sleep(20)"])'
    end, _ = ended(tmp_path, f"{child}\nprint('{{\"score\": 1}}')")
    assert end.state == "completed" and end.summary["wall_seconds"] < 15
