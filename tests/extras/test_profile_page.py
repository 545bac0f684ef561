"""Tests of the page of a profile: its words, plots and tables, and that it can be rendered again."""

import csv
from dataclasses import replace
from math import comb
from pathlib import Path

import pytest

from attnlab._version import __version__
from attnlab.cli.main import main
from attnlab.extras import rerender
from attnlab.extras.profile.make import profile
from attnlab.extras.profile.page import describe_ability, describe_profile, describe_reach, make_page
from attnlab.extras.profile.results import Ability, Outcome
from attnlab.extras.profile.write import FILE, load_profile, write_index, write_profile
from attnlab.report.page import RENDERED
from attnlab.study.execution.progress import ProgressDisplay
from tests.support.pages import changed_files
from tests.support.paths import ROOT
from tests.support.profiles import level_result, made_up_profile

COMMITTED = sorted(path.parent for path in (ROOT / "reports" / "profile").glob(f"*/{FILE}"))


def statement(task: str, variant: str) -> str:
    ability = next(ability for ability in made_up_profile().abilities if ability.task == task)
    return "".join(describe_ability(ability, variant))


def test_statements_follow_from_the_seeds() -> None:
    mine = statement("mqar", "mine")
    assert mine.startswith("solves it with all seeds at pairs 4 (3 of 3 seeds [0.20, 1.00])")
    assert "is not shown to solve it at pairs 8 (2 of 3 seeds [0.05, 1.00])" in mine
    others = "0 of 1 seed at learning rate 0.00075; 0 of 1 seed at learning rate 0.012"
    numbers = f"0 of 3 seeds [0.00, 0.80], accuracy 0.210 to 0.340, chance 0.06; {others}"
    assert mine.endswith(f"solves it with no seed at pairs 16 in 100 steps ({numbers})")
    hardest = (
        "solves it with all seeds up to pairs 16 (3 of 3 seeds [0.20, 1.00] at learning rate 0.012), the hardest level tested"
    )
    assert statement("mqar", "dense") == hardest
    assert statement("parity", "mine") == "has no result at pairs 4: it was refused"
    assert "2 diverged" in statement("parity", "lstm")


def test_reach_is_the_last_level_that_all_seeds_solve() -> None:
    mqar, parity = made_up_profile().abilities
    reach = {name: describe_reach(mqar, name) for name in mqar.results}
    assert reach == {"mine": "up to pairs 4 (pairs 8: 2 of 3)", "dense": "all levels", "lstm": "no level"}
    assert describe_reach(parity, "mine") == "no result"
    assert describe_reach(parity, "dense").startswith("no level (pairs 4: 2 of 3")


@pytest.mark.parametrize(
    ("result", "outcome", "earns_next"),
    [
        (level_result(0.9, 0.95, 1.0), Outcome.SOLVED, True),
        (level_result(0.9, 0.95, 0.89), Outcome.OPEN, True),
        (level_result(0.9, 0.5, 0.89), Outcome.OPEN, False),
        (level_result(0.1, 0.5, 0.89), Outcome.NOT_SOLVED, False),
        (level_result(0.1, 0.5, diverged=1), Outcome.NOT_SOLVED, False),
        (level_result(0.9, 0.95, diverged=1), Outcome.OPEN, True),
        (level_result(0.9, 0.95, failed=1), Outcome.OPEN, True),
        (level_result(0.1, failed=2), Outcome.OPEN, False),
        (level_result(refused=1), Outcome.NO_RESULT, False),
        (level_result(out_of_memory=3), Outcome.NO_RESULT, False),
    ],
)
def test_an_outcome_needs_all_seeds_and_the_next_level_most(result: object, outcome: Outcome, earns_next: bool) -> None:
    assert (result.outcome, result.earns_next) == (outcome, earns_next)  # type: ignore[attr-defined]


def test_the_page_has_every_number_and_no_mean_over_abilities(tmp_path: Path) -> None:
    write_profile(tmp_path, made_up_profile())
    page = (tmp_path / "index.html").read_text()
    for text in ("0.990, 0.920, 0.330", "2 of 3 seeds [0.05, 1.00]", "arXiv:2312.04927", "it was refused", "mqar.yaml"):
        assert text in page and text in (tmp_path / "README.md").read_text()
    assert page.count("<svg") == 2 and "rotary" in page and "60 of 100" in page and "<small>(1 to 3)" in page
    scores = [row for row in csv.DictReader((tmp_path / "runs.csv").open())]
    mine = [float(row["score"]) for row in scores if row["variant"] == "mine"]
    assert f"{sum(mine) / len(mine):.2f}" not in page and f"{sum(mine) / len(mine):.3f}" not in page
    solved = [(row["lr"], row["solved"]) for row in scores if row["variant"] == "mine"]
    best = [("0.003", solves) for solves in "111110000"]
    assert solved == [*best, ("0.00075", "0"), ("0.012", "0")]
    assert [row.cells[0] for row in make_page(made_up_profile()).overview.rows] == ["mqar", "parity"]


@pytest.mark.parametrize(
    ("seeds", "says"),
    [
        (3, "With 3 seeds, 3 of 3 are compatible with every rate from 0.20, and 0 of 3 with every rate up to 0.80."),
        (5, "With 5 seeds, 5 of 5 are compatible with every rate from 0.38, and 0 of 5 with every rate up to 0.62."),
    ],
)
def test_the_notes_state_what_the_number_of_seeds_can_show(seeds: int, says: str) -> None:
    notes = " ".join(make_page(replace(made_up_profile(), seeds=seeds)).notes)
    assert says in notes and f"is solved by all seeds with probability 1/{2**seeds}," in notes


def test_the_plot_has_a_dot_for_each_seed_and_lines_of_chance_and_threshold() -> None:
    mqar = make_page(made_up_profile()).sections[0].plot
    assert mqar.count("<circle") == 3 * (3 + 3 + 1)  # levels of mine, dense and lstm
    assert mqar.count('stroke-dasharray="3 3"') == 3 and "2/3 [0.05, 1.00]" in mqar
    parity = make_page(made_up_profile()).sections[1].plot
    assert ">1 refused<" in parity and ">1/1, 2 diverged<" in parity


def test_profiles_have_a_page_on_all_of_them(tmp_path: Path) -> None:
    first, second = (
        made_up_profile(),
        replace(made_up_profile(), name="dense", variant="dense", abilities=made_up_profile().abilities[:1]),
    )
    for stored in (first, second):
        write_profile(tmp_path / stored.name, stored)
    write_index(tmp_path)
    assert "| mine | rotary | 1 of 3, 1 open | no result |" in (tmp_path / "README.md").read_text()
    assert "| dense | rotary | 3 of 3 |  |" in (tmp_path / "README.md").read_text()
    page = (tmp_path / "index.html").read_text()
    assert 'href="mine/index.html"' in page
    (tmp_path / "index.html").unlink()
    assert rerender.main([str(tmp_path)]) == 0 and (tmp_path / "index.html").read_text() == page


def test_the_summary_names_what_a_variant_can_and_cannot_do() -> None:
    words = ["".join(sentence) for sentence in describe_profile(made_up_profile())]
    assert words == ["All seeds of mine solve a part of the levels of mqar (up to pairs 4).", "Without a result: parity."]


@pytest.mark.parametrize(
    ("scores", "ability"),
    [
        ([1.0] * 7, Ability.CAN),
        ([1.0] * 6, Ability.OPEN),
        ([0.1] * 7, Ability.CANNOT),
        ([0.1] * 3, Ability.OPEN),
        ([1.0] * 5 + [0.1], Ability.OPEN),
    ],
)
def test_words_about_a_variant_need_an_interval_that_excludes_one_half(scores: list[float], ability: Ability) -> None:
    result = level_result(*scores)
    assert result.ability is ability
    profile = made_up_profile()
    mqar = replace(profile.abilities[0], results={"mine": (result,)})
    words = "".join(describe_ability(mqar, "mine"))
    assert ("with all seeds" in words or "with no seed" in words or "not shown" in words) is (ability is Ability.OPEN)


def test_identical_variants_seldom_have_opposite_abilities() -> None:
    """At a solve rate of one half, three seeds show no ability, and eight do in less than 1 % of variants."""
    for seeds, most in ((3, 0.0), (8, 0.01)):
        shown = [k for k in range(seeds + 1) if level_result(*[1.0] * k, *[0.1] * (seeds - k)).ability is not Ability.OPEN]
        assert sum(comb(seeds, k) for k in shown) / 2**seeds <= most


def test_a_profile_is_rendered_again_from_its_stored_content(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    write_profile(first, made_up_profile())
    version, loaded = load_profile(first)
    assert version == __version__ and loaded == made_up_profile()
    write_profile(again, loaded)
    assert changed_files(first, again) == []
    (first / "README.md").write_text("changed")
    assert rerender.main([str(first)]) == 0 and changed_files(first, again) == []


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda path: path.name)
def test_a_committed_profile_is_that_of_its_content_or_names_its_version(folder: Path, tmp_path: Path) -> None:
    version, stored = load_profile(folder)
    if version == __version__:
        write_profile(tmp_path, stored)
        assert [name for name in changed_files(folder, tmp_path) if name not in RENDERED] == []
    assert f"Made by attnlab {version}" in (folder / "README.md").read_text()[:500]


def test_a_profile_is_made_by_the_command_and_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("attnlab.extras.profile.make.BASELINES", ("dense",))
    (tmp_path / "mine.py").write_text("from attnlab.variants.dense import Dense\n\nclass Mine(Dense):\n    pass\n")
    task = "tests.support.profiles:TinyParity"
    assert main(["profile", "mine.py:Mine", "--tasks", task, "--with", "qk_norm", "--workers", "2", "--no-check"]) == 0
    output = capsys.readouterr().out
    assert (
        "TinyParity: Mine with qk_norm solves it with no seed at length 8 in 2 steps (0 of 3 seeds" in output
        and "report: reports/profile/" in output
    )
    folder = tmp_path / "reports" / "profile" / "Mine-with-qk_norm"
    study = (folder / "TinyParity.yaml").read_text()
    assert "../../../mine.py:Mine" in study and str(tmp_path) not in study
    page = (folder / "README.md").read_text()
    assert "accuracy on valid, computed every 50 steps, reaches 0.995" in " ".join(page.split())
    assert "attnlab profile mine.py:Mine --with qk_norm" in page and str(tmp_path) not in page
    quiet = ProgressDisplay(quiet=True)
    again = profile("mine.py:Mine", components=["qk_norm"], tasks=[task], check=False, display=quiet, out="again", workers=1)
    _, first = load_profile(folder)
    assert again.abilities[0].results == first.abilities[0].results
    assert set(again.positions) == {"Mine with qk_norm", "dense"}
    result = again.abilities[0].results["dense"][0]
    assert result.seeds == 3 and {"parameters", "flops_per_token", "cache_bytes", "steps"} <= result.costs.keys()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["dense", "--all"],
        ["dense", "--quick", "--tasks", "mqar"],
        ["--all", "--with", "gate"],
        ["dense", "--tasks", "mqarr"],
    ],
)
def test_mistakes_on_the_command_line_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
