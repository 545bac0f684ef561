"""Tests that every look at a study counts, whoever adds its seeds and however: in the terminal, the report and in Python."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.report.wording import format_difference, format_interval
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.stats.look_history import LookHistory
from attnlab.stats.records import exclude_trials
from attnlab.stats.sequential import Looks
from attnlab.study import looks as study_looks
from attnlab.study.comparison import load_info
from attnlab.study.run import run
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tags import to_yaml
from tests.study.test_study import QUIET, study

Attnlab = Callable[..., tuple[str, str]]
CONFIG = study(
    grid={"variant": ["dense", "narrow", "wide"], "position": ["learned"]}, baseline={"variant": "dense"}, margin=0.1
)


@pytest.fixture
def attnlab(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Attnlab:
    """Return a function that runs a command with stand-ins for training, and returns standard output and error."""
    (tmp_path / "small.yaml").write_text(to_yaml(CONFIG))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    fake = partial(run, display=QUIET, train="tests.support.study_fakes:settling")
    monkeypatch.setattr("attnlab.study.run.run", fake)

    def command(verb: str, *words: str, study: str = "small.yaml") -> tuple[str, str]:
        assert main.main([verb, study, *words]) == 0
        return capsys.readouterr()

    return command


def spec_of(root: Path) -> Any:
    return load_info("small", root)[0].spec


def loaded(root: Path) -> dict[str, CellSummary]:
    """Return the cells as a person compares the runs of `attnlab.load_runs`."""
    cells = summarize_cells(exclude_trials(load_runs("small", root).to_dict("records")), spec_of(root))  # type: ignore[arg-type]
    return {cell.name: cell for cell in cells}


def test_the_terminal_the_report_and_load_runs_give_the_same_numbers(attnlab: Attnlab, root: Path, tmp_path: Path) -> None:
    """Also after `--until-conclusive`, and with seeds added by hand to some cells only."""
    calls = (
        ["--until-conclusive", "--max-seeds", "4"],
        ["--seeds", "0-3"],  # a plain call for the same runs, after looks that were announced
        ["--seeds", "0-4"],
        ["--seeds", "0-5", "--only", "variant=dense,wide"],
    )
    widths = set()
    for words in calls:
        out, _ = attnlab("run", *words)
        page = (tmp_path / "runs/reports/small/README.md").read_text()
        attnlab("report", study="small")
        assert (tmp_path / "runs/reports/small/README.md").read_text() == page, "a report of the same runs is no further look"
        cells = loaded(root)
        for name, cell in cells.items():
            terminal = next(line for line in out.splitlines() if line.startswith(name))
            row = next(line for line in page.splitlines() if line.startswith(f"| {name} "))
            for text in (format_interval(cell.value), format_difference(cell)):
                assert text in terminal and text in row
        widths.add(cells["wide learned"].difference.interval.half_width)  # type: ignore[union-attr]
    assert spec_of(root).looks == Looks(2, 4, (5, 6)) and len(widths) == 3


def test_seeds_added_by_hand_are_looks_and_the_page_says_so(attnlab: Attnlab, root: Path, tmp_path: Path) -> None:
    out, _ = attnlab("run", "--seeds", "0-2")
    first = (tmp_path / "runs/reports/small/README.md").read_text()
    assert spec_of(root).looks == Looks(3, 3) and "corrected for" not in out and "is judged at" not in first
    attnlab("run", "--seeds", "0-2")
    attnlab("run", "--seeds", "0-1", "--no-report")
    assert spec_of(root).looks == Looks(3, 3), "the same or fewer seeds are no look"
    out, _ = attnlab("run", "--set", "seeds=[0,1,2,3,4]", "--no-report")
    assert "corrected for 2 looks" in out
    attnlab("run", "--set", "seeds=[0,1,2,3,4,5]", "--only", "variant=dense,narrow")
    looks = spec_of(root).looks
    page = (tmp_path / "runs/reports/small/README.md").read_text()
    assert looks == Looks(3, 3, (5, 6))
    assert "judged at 3, 5 and 6 seeds" in page and "corrected for 3 looks" in page
    assert "seeds=0-2" in page and "seeds=[0, 1, 2, 3, 4]'" in page, "the page depends on its looks"


def test_a_run_whose_table_was_not_shown_is_no_look(attnlab: Attnlab, root: Path) -> None:
    run(CONFIG, root=root, display=QUIET, train="tests.support.study_fakes:settling")  # no table
    assert study_looks.recorded_looks("small", root) == LookHistory() and spec_of(root).looks is None
    attnlab("run", "--seeds", "0-3", "--no-report")
    assert spec_of(root).looks == Looks(4, 4)


def test_seeds_that_are_added_after_a_look_are_not_announced(attnlab: Attnlab, root: Path) -> None:
    attnlab("run", "--no-report")
    attnlab("run", "--no-report", "--until-conclusive", "--max-seeds", "4")
    assert spec_of(root).looks == Looks(2, 2, (3, 4))


def test_looks_at_runs_of_another_configuration_do_not_count(attnlab: Attnlab, root: Path) -> None:
    attnlab("run", "--set", "train.steps=10", "--seeds", "0-1", "--no-report")
    attnlab("run", "--seeds", "0-3", "--no-report")
    assert spec_of(root).looks == Looks(4, 4)
    attnlab("run", "--set", "train.steps=10", "--seeds", "0-2", "--no-report")
    assert spec_of(root).looks is not None and spec_of(root).looks.first == 2, "these runs were judged at two seeds"


def test_looks_count_for_a_changed_question(attnlab: Attnlab, root: Path) -> None:
    attnlab("run", "--seeds", "0-2", "--no-report")
    attnlab("run", "--seeds", "0-3", "--set", "margin=0.2", "--set", "baseline.variant=narrow", "--no-report")
    assert spec_of(root).looks == Looks(3, 3, (4,)) and not spec_of(root).own_looks


def test_a_plan_announces_a_further_look_and_its_level(attnlab: Attnlab, root: Path) -> None:
    assert "further look" not in attnlab("plan", "--tflops", "1")[0]
    attnlab("run", "--seeds", "0-2", "--no-report")
    for words in (["--seeds", "0-2"], ["--seeds", "0-1"], ["--seeds", "0-4", "--set", "train.steps=30"]):
        assert "further look" not in attnlab("plan", "--tflops", "1", *words)[0]
    (note,) = [line for line in attnlab("plan", "--tflops", "1", "--seeds", "0-4")[0].splitlines() if "further look" in line]
    assert "judged at 3 seeds" in note and "with 5 seeds" in note
    assert f"{2 * Looks(3, 3, (5,)).nominal_level(0.025):.2%}" in note and "5.00%" in note
    assert note.removeprefix("note: ") in attnlab("run", "--seeds", "0-4", "--no-report")[1]
    assert "further look" not in attnlab("run", "--seeds", "0-4", "--no-report")[1]


def test_a_look_that_cannot_be_recorded_is_reported_in_one_line(
    attnlab: Attnlab, root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attnlab("run", "--no-report", "--seeds", "0-2")
    run(CONFIG, sets={"seeds": [0, 1, 2, 3]}, root=root, display=QUIET, train="tests.support.study_fakes:settling")

    def refuse(*_: object) -> None:
        raise UserError("MLflow rejected the request: read-only")

    monkeypatch.setattr(study_looks, "look_tags", refuse)
    cells = list(loaded(root).values())
    history = study_looks.record_look(spec_of(root), cells, study_looks.recorded_looks("small", root), root)
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "not recorded" in warning and "read-only" in warning and "\n" not in warning
    assert history.looks == Looks(3, 3, (4,)), "it counts in this table"
    assert study_looks.recorded_looks("small", root).looks == Looks(3, 3)
