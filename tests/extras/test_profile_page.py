"""Tests of the page of a profile: its map and tables, and that it can be rendered again."""

from dataclasses import replace
from pathlib import Path

import pytest

from attnlab._version import __version__
from attnlab.cli.main import main
from attnlab.extras import rerender
from attnlab.extras.profile.page import describe_rate, describe_steps, heat_row, overview_table, write_profile
from attnlab.extras.profile.results import Level, load_profile
from attnlab.extras.profile.run import profile
from attnlab.report.page import RENDERED
from attnlab.study.execution.progress import ProgressDisplay
from tests.support.pages import changed_files
from tests.support.paths import ROOT
from tests.support.profiles import level_result, made_up_profile

COMMITTED = ROOT / "reports" / "profile"


def test_the_map_counts_the_levels_that_all_seeds_solve() -> None:
    table = overview_table(made_up_profile())
    assert [column.heading for column in table.columns] == ["diagnostic", "mine", "dense", "lstm"]
    assert [list(row.cells) for row in table.rows] == [
        ["mqar", "1 of 3, 1 open", "3 of 3", "0 of 3"],
        ["parity", "no result", "0 of 3, 2 open", "1 of 3, 1 open"],
    ]
    assert heat_row(made_up_profile(), "mine")[1] is None


@pytest.mark.parametrize(
    ("result", "solved", "opened", "earns_next"),
    [
        (level_result(0.9, 0.95, 1.0), True, False, True),
        (level_result(0.9, 0.95, 0.89), False, True, True),
        (level_result(0.9, 0.5, 0.89), False, True, False),
        (level_result(0.1, 0.5, 0.89), False, False, False),
        (level_result(0.1, 0.5, diverged=1), False, False, False),
        (level_result(0.9, 0.95, diverged=1), False, True, True),
        (level_result(0.9, 0.95, failed=1), False, True, True),
        (level_result(0.1, failed=2), False, True, False),
        (level_result(refused=1), False, False, False),
        (level_result(out_of_memory=3), False, False, False),
    ],
)
def test_a_level_needs_all_seeds_and_the_next_level_most(result: object, solved: bool, opened: bool, earns_next: bool) -> None:
    assert (result.is_solved, result.is_open, result.earns_next) == (solved, opened, earns_next)  # type: ignore[attr-defined]


def test_the_page_has_every_number_and_no_mean_over_abilities(tmp_path: Path) -> None:
    write_profile(tmp_path, made_up_profile())
    page, text = (tmp_path / "index.html").read_text(), (tmp_path / "README.md").read_text()
    others = "0 of 1 seed at 0.00075; 0 of 1 seed at 0.012"
    for words in (
        "0.990, 0.920, 0.330",
        "2 of 3 seeds [0.05, 1.00]",
        "arXiv:2312.04927",
        "it was refused",
        others,
    ):
        assert words in page and words in text
    assert (
        '<a href="#mine">mine</a>' in page
        and '<h3 id="mine">' in page
        and "| [mine](#mine) | rotary | 1/3 +1 | no result |" in text
    )
    assert all(f">{group}</th>" in page for group in ("recall", "state tracking")) and "--share: 33%" in page


def test_steps_of_seeds_that_did_not_solve_a_level_are_censored() -> None:
    level = Level("pairs 4", 0.25, 16, 100)
    assert describe_steps(level_result(0.99, 0.92, 0.33), level) == "60, > 100, > 100"
    older = replace(level_result(0.99, 0.98, 0.98), steps={}, costs={"steps": 70.0})  # a profile with the mean alone
    assert describe_steps(older, level) == "70"


def test_runs_without_a_score_are_named() -> None:
    assert describe_rate(level_result(0.99, diverged=2)).startswith("1 of 3 seeds [") and "2 diverged" in describe_rate(
        level_result(0.99, diverged=2)
    )
    assert describe_rate(level_result(refused=1)) == "1 refused; it was refused"


def test_a_profile_is_rendered_again_from_its_stored_content(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    write_profile(first, made_up_profile())
    version, loaded = load_profile(first)
    assert version == __version__ and loaded == made_up_profile()
    write_profile(again, loaded)
    assert changed_files(first, again) == []
    (first / "README.md").write_text("changed")
    assert rerender.main([str(first)]) == 0 and changed_files(first, again) == []


def test_the_committed_profile_is_that_of_its_content_or_names_its_version(tmp_path: Path) -> None:
    version, stored = load_profile(COMMITTED)
    if version == __version__:
        write_profile(tmp_path, stored)
        assert [name for name in changed_files(COMMITTED, tmp_path) if name not in RENDERED] == []
    assert f"Made by attnlab {version}" in (COMMITTED / "README.md").read_text()[:500]
    assert (
        len(stored.variants) == 28
        and sum(
            len(of.scores)
            for a in stored.abilities
            for levels in a.results.values()
            for best in levels
            for of in (best, *best.others)
        )
        == 2_700
    )


def test_a_profile_is_made_by_the_command_and_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("attnlab.extras.profile.run.BASELINES", ("dense",))
    (tmp_path / "mine.py").write_text("from attnlab.variants.dense import Dense\n\nclass Mine(Dense):\n    pass\n")
    task = "tests.support.profiles:TinyParity"
    assert main(["profile", "mine.py:Mine", "--tasks", task, "--with", "qk_norm", "--workers", "2", "--no-check"]) == 0
    output = capsys.readouterr().out
    assert (
        "TinyParity" in output and "0 of 2" in output and "report: runs/reports/profile/Mine-with-qk_norm/index.html" in output
    )
    folder = tmp_path / "runs" / "reports" / "profile" / "Mine-with-qk_norm"
    page = (folder / "README.md").read_text()
    assert (
        "attnlab profile mine.py:Mine --tasks" in page and str(tmp_path) not in page and "Profile of Mine with qk_norm" in page
    )
    quiet = ProgressDisplay(quiet=True)
    again = profile("mine.py:Mine", components=["qk_norm"], tasks=[task], check=False, display=quiet, out="again", workers=1)
    _, first = load_profile(folder)
    assert again.abilities[0].results == first.abilities[0].results
    assert set(again.positions) == {"Mine with qk_norm", "dense"} and again.variants == ("Mine with qk_norm",)
    result = again.abilities[0].results["dense"][0]
    assert (
        set(result.steps.values()) == {2} and {"parameters", "flops_per_token", "cache_bytes", "steps"} <= result.costs.keys()
    )


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["dense", "--all"],
        ["dense", "--tasks", "mqarr"],
    ],
)
def test_mistakes_on_the_command_line_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
