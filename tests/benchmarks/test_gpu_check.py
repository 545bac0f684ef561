"""Tests of `benchmarks.gpu_check`: limits, failures and resuming with small steps, the rehearsal, and the committed pages."""

import json
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from attnlab.errors import UserError
from benchmarks.gpu_check import page
from benchmarks.gpu_check.__main__ import main
from benchmarks.gpu_check.page import STEPS
from benchmarks.gpu_check.runner import FILE, Case, Results, Rows, Setting, Step, Summary, Values, run
from tests.support.paths import ROOT

SOON = 600.0  # seconds, as if there were no limit


def log(setting: Setting, name: str) -> None:
    with (setting.folder / "log").open("a") as file:
        file.write(f"{name} {os.getpid()}\n")


def measured(setting: Setting, name: str) -> Values:
    log(setting, name)
    return {"value": 1.5}


def raising(setting: Setting, error: Exception) -> Values:
    log(setting, type(error).__name__)
    raise error


def hanging(setting: Setting) -> Values:
    log(setting, "hanging")
    time.sleep(SOON)
    return {}


def killed(setting: Setting) -> Values:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def first_cases(setting: Setting) -> Iterator[Case]:
    yield Case("good", partial(measured, setting, "good"))
    yield Case("refused", partial(raising, setting, UserError("not here")))
    yield Case("failing", partial(raising, setting, ValueError("no such kernel")))
    yield Case("killed", partial(killed, setting))
    yield Case("after", partial(measured, setting, "after"))


def hanging_cases(setting: Setting) -> Iterator[Case]:
    yield Case("before", partial(measured, setting, "before"))
    yield Case("hangs", partial(hanging, setting))
    yield Case("never reached", partial(measured, setting, "never reached"))


def many_cases(setting: Setting) -> Iterator[Case]:
    yield from (Case(str(i), partial(measured, setting, str(i))) for i in range(6))


def nothing(rows: Rows) -> Summary:
    return []


FIRST = Step("first", "First", SOON, first_cases, nothing)
HANGING = Step("hanging", "Hanging", 10.0, hanging_cases, nothing)
LAST = Step("last", "Last", SOON, many_cases, nothing, processes=2)


def go(folder: Path, *steps: Step, seconds: float = SOON) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Run steps; return the states of their cases, and what was printed."""
    lines: list[str] = []
    results = run(steps, folder=folder, seconds=seconds, rehearse=True, notice=lines.append)
    return {key: row["state"] for key, row in results.rows.items()}, lines


def test_every_case_has_a_row_whatever_happens_to_it(tmp_path: Path) -> None:
    states, lines = go(tmp_path, FIRST)
    assert {case: state for (_, case), state in states.items()} == {
        "good": "done",
        "refused": "refused",
        "failing": "failed",
        "killed": "failed",
        "after": "done",
    }
    rows = {row["case"]: row for row in Results.load(tmp_path).of("first")}
    assert rows["good"]["value"] == 1.5
    assert rows["refused"]["reason"] == "not here"
    assert "no such kernel" in rows["failing"]["reason"] and "raising" in rows["failing"]["traceback"]
    assert "SIGKILL" in rows["killed"]["reason"]
    assert len(lines) == 5
    log = (tmp_path / "log").read_text().splitlines()
    assert len({line.split()[1] for line in log}) == len(log), "each case has a process of its own"


def test_a_step_that_hangs_ends_at_its_limit_and_the_next_one_runs(tmp_path: Path) -> None:
    states, lines = go(tmp_path, HANGING, LAST)
    assert states["hanging", "before"] == "done" and states["hanging", "hangs"] == "timed_out"
    assert ("hanging", "never reached") not in states
    assert any("1 of 3 cases were not reached" in line for line in lines)
    assert [state for (step, _), state in states.items() if step == "last"] == ["done"] * 6


def test_no_step_begins_after_the_end(tmp_path: Path) -> None:
    states, lines = go(tmp_path, HANGING, LAST, seconds=9.0)
    assert states["hanging", "hangs"] == "timed_out"
    assert "last: no time is left" in lines


def test_a_second_call_runs_what_has_no_result(tmp_path: Path) -> None:
    go(tmp_path, FIRST)
    with (tmp_path / FILE).open("a") as file:
        file.write('{"step": "first", "case": "good", "sta')  # cut off by the end of the first call
    began = len((tmp_path / "log").read_text().splitlines())
    states, _ = go(tmp_path, FIRST)
    again = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()[began:]]
    assert again == ["ValueError"], "failed cases run again, others do not"
    assert states["first", "good"] == "done"


def test_a_rehearsal_runs_every_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rehearse", "--out", str(tmp_path)]) == 0
    results = Results.load(tmp_path)
    assert {row["state"] for row in results.rows.values()} <= {"done", "refused"}
    for step in STEPS:
        assert any(row["state"] == "done" for row in results.of(step.name)), step.name
    table = page.table(results, STEPS).splitlines()
    assert len(table) <= 40 and max(map(len, table)) <= 80
    assert table == [line.rstrip() for line in capsys.readouterr().out.splitlines()][-len(table) - 1 : -1]


def test_a_machine_without_a_card_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="CUDA"):
        main([])


PAGES = sorted((ROOT / "reports" / "gpu").glob("*/" + FILE))


@pytest.mark.parametrize("path", PAGES, ids=[path.parent.name for path in PAGES])
def test_a_committed_page_is_that_of_its_results(path: Path) -> None:
    assert (path.parent / page.PAGE).read_text(encoding="utf-8") == page.text(Results.load(path.parent), STEPS)
    for line in path.read_text(encoding="utf-8").splitlines():
        assert json.loads(line)["state"] in ("done", "refused", "failed", "timed_out")
