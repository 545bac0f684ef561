"""Tests of ``run --until-conclusive``: which cells get another seed, when it stops, and that the report agrees with it."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.report.wording import describe_verdict
from attnlab.stats.compare import CellSummary
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import Reason
from attnlab.study import adaptive
from attnlab.study.comparison import load_info
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.run import run
from attnlab.tracking.runs import load_runs
from tests.study.test_study import QUIET, study, trained
from tests.support.compared import recorded

GRID = {"variant": ["dense", "no_wo", "narrow", "wide"], "position": ["learned"]}


class _Lines(ProgressDisplay):
    """A display that stores its lines instead of printing them."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def print(self, text: str) -> None:
        self.lines.append(text)


def asked(**changes: Any) -> dict[str, Any]:
    """Return a study whose cells differ in spread by a factor of 50, so that they must not borrow from each other."""
    settings = {"grid": GRID, "seeds": [0, 1, 2], "baseline": {"variant": "dense"}, "margin": 0.1, "moderate": False}
    return study(**settings | changes)


def go(root: Path, fate: str = "settling", **changes: Any) -> tuple[dict[str, CellSummary], Looks, list[str]]:
    """Return the cells, the looks and the lines about inconclusive cells of a call; without futility stopping by default."""
    keys = ("max_seeds", "only", "retry", "futility")
    options = {"futility": 0, **{key: changes.pop(key) for key in keys if key in changes}}
    show = _Lines()
    fates = {"root": root, "display": show, "train": f"tests.support.study_fakes:{fate}"}
    adaptive.run_until_conclusive(asked(**changes), run=run, **fates, **options)
    info, compared = recorded("small", root)
    assert info.spec.looks is not None
    return (
        {row.name.split()[0]: row for row in compared.cells},
        info.spec.looks,
        [line for line in show.lines if "still inconclusive" in line or "no more seeds" in line],
    )


def report_of(root: Path) -> dict[str, CellSummary]:
    return {cell.name.split()[0]: cell for cell in recorded("small", root)[1].cells}


@pytest.fixture(scope="module")
def conclusive(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a study that was run until it was conclusive or had six seeds."""
    folder = Path(shutil.copytree(empty_store, tmp_path_factory.mktemp("conclusive") / "runs"))
    folder.joinpath("said.txt").write_text("\n".join(go(folder, max_seeds=6)[2]))
    return folder


def test_seeds_are_added_where_a_verdict_is_open_and_nowhere_else(conclusive: Path) -> None:
    cells = report_of(conclusive)
    assert {name: sorted(row.values) for name, row in cells.items()} == {
        "dense": [0, 1, 2, 3, 4, 5],  # the baseline of the inconclusive cell
        "no_wo": [0, 1, 2],  # much worse after three
        "narrow": [0, 1, 2, 3, 4],  # equivalent after five
        "wide": [0, 1, 2, 3, 4, 5],  # never conclusive: too noisy
    }
    kinds = {name: row.verdict.kind for name, row in cells.items() if row.verdict}
    assert kinds == {"dense": "baseline", "no_wo": "worse", "narrow": "equivalent", "wide": "inconclusive"}
    assert cells["wide"].verdict is not None and cells["wide"].verdict.needed
    lines = conclusive.joinpath("said.txt").read_text().splitlines()
    assert [lines[i].partition(": ")[2] for i in (0, -1)] == ["narrow learned, wide learned", "wide learned"]
    assert lines[0].startswith("3 seeds") and lines[-1].startswith("5 seeds")


def test_a_second_call_trains_nothing_and_reports_the_same(conclusive: Path) -> None:
    before = report_of(conclusive)
    again, looks, _ = go(conclusive, max_seeds=6)
    written = report_of(conclusive)
    assert looks == Looks(3, 6) and written == before
    assert len(trained(conclusive)) == len(set(trained(conclusive))) == 20
    for name, row in again.items():
        assert (written[name].verdict, written[name].difference) == (row.verdict, row.difference)
        assert written[name].values == row.values


def test_adding_seeds_resumes_where_it_stopped(root: Path) -> None:
    run(asked(), root=root, display=QUIET, train="tests.support.study_fakes:settling")
    go(root, max_seeds=4)
    rows, looks, _ = go(root, max_seeds=6)
    assert looks == Looks(3, 4, (5, 6)) and len(rows["wide"].values) == 6, "the last two were not announced"
    _, looks, _ = go(root, max_seeds=4)
    assert looks == Looks(3, 4, (5, 6)), "looks that were taken are not taken back"
    assert len(trained(root)) == len(set(trained(root))) == 21, "a look that was not announced is too strict for narrow"


def test_a_seed_that_diverged_is_no_pair_and_the_verdict_says_so(root: Path) -> None:
    rows, _, _ = go(root, "settling_or_diverging", max_seeds=5)
    row = rows["no_wo"]
    assert sorted(row.values) == [0, 2] and row.difference is not None and row.difference.interval.n == 2
    assert row.verdict is not None and (row.verdict.reason, row.verdict.lost) == (Reason.LOSSES, ((1, "diverged"),))
    assert (rows["wide"].outcome, rows["wide"].verdict, rows["wide"].value) == ("diverged", None, None)
    assert row.states == {"completed": 2, "diverged": 1}, "no more seeds: 5 could not make up for the one that is lost"
    seeds = {run["seed"] for run in load_runs("small", root).to_dict("records") if run["variant"] == "wide"}
    assert seeds == {0, 1, 2}, "no hope: no more seeds"


def test_a_futile_comparison_receives_no_more_seeds_and_table_and_report_say_so(root: Path) -> None:
    options = {"max_seeds": 12, "grid": {**GRID, "variant": ["dense", "wide"]}, "margin": None}
    cells, looks, lines = go(root, futility=0.1, **options)
    assert looks == Looks(3, 12) and len(cells["wide"].values) == len(cells["dense"].values) == 5
    verdict = cells["wide"].verdict
    assert verdict is not None and verdict.kind == "inconclusive" and verdict.futility is not None
    assert (verdict.futility.pairs, verdict.futility.seeds) == (5, 12) and verdict.futility.probability < 0.1
    assert "wide learned against dense learned" in lines[-1] and "12" in lines[-1]
    assert report_of(root)["wide"].verdict == verdict and "futility" in describe_verdict(verdict)
    again, _, lines = go(root, futility=0.1, **options)
    assert again["wide"].verdict == verdict and len(trained(root)) == 10
    assert not any("no more seeds" in line for line in lines), "it is recorded already"
    cells, looks, _ = go(root, **{**options, "max_seeds": 6})
    assert looks == Looks(3, 12) and len(cells["wide"].values) == 6, "the rule is not binding, and costs no look"
    assert cells["wide"].verdict is not None and cells["wide"].verdict.futility is None
    assert report_of(root)["wide"].verdict == cells["wide"].verdict


def test_a_searched_study_adds_seeds_to_what_it_confirms(root: Path) -> None:
    search = {"trials": 2, "seed": 6, "space": {"train.lr": {"low": 1e-4, "high": 1e-2, "log": True}}}
    config = asked(search=search, confirm={"seeds": [4, 5]})
    del config["seeds"]
    config["grid"] = {**GRID, "variant": ["dense", "wide"]}
    fates = {"root": root, "display": QUIET, "train": "tests.support.study_fakes:settling"}
    result = adaptive.run_until_conclusive(config, run=run, max_seeds=3, **fates)
    confirmed = [row.seed for row in result.rows if row.phase == "confirm" and row.cell.startswith("wide")]
    assert confirmed == [4, 5, 7] and load_info("small", root)[0].spec.looks == Looks(2, 3), "6 is the seed of the search"
    assert sum(row.phase == "search" for row in result.rows) == 4


def test_a_study_with_seeds_auto_adds_them_by_itself(root: Path) -> None:
    config = asked(grid={**GRID, "variant": ["dense", "no_wo", "wide"]}, seeds="auto", max_seeds=5)
    read = read_study(config)
    assert (read.seeds, read.max_seeds) == ([0, 1, 2], 5) and read_study(asked(seeds="auto")).max_seeds == adaptive.MAX_SEEDS
    result = run(config, root=root, display=QUIET, train="tests.support.study_fakes:settling")
    cells = report_of(root)
    assert {name: row.seeds for name, row in cells.items()} == {"dense": 5, "no_wo": 3, "wide": 5}
    assert len(result.rows) == 13 and len(trained(root)) == 13
    spec = load_info("small", root)[0].spec
    assert spec.looks == Looks(3, 5), "the looks are announced"
    again, listed = plan(asked(seeds="auto")), plan(asked(seeds="auto"), sets={"seeds": "0-1"})
    assert again.study.max_seeds == 12 and listed.study.max_seeds is None and listed.seeds == [0, 1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"baseline": None}, "expected a 'baseline'"),
        ({"max_seeds": 2}, "expected at least the 3 seeds"),
    ],
)
def test_seeds_auto_needs_verdicts_that_seeds_can_be_added_for(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected) as caught:
        read_study(asked(seeds="auto") | changes)
    assert "seeds" in str(caught.value.where)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"baseline": None}, "expected a 'baseline'"),
        ({"max_seeds": 2}, "expected at least the 3 seeds"),
        ({"futility": 1.0}, "--futility: expected a probability"),
    ],
)
def test_studies_that_cannot_become_conclusive_are_refused(root: Path, changes: dict[str, Any], expected: str) -> None:
    most = {"max_seeds": changes.pop("max_seeds", 5), "futility": changes.pop("futility", 0.1)}
    with pytest.raises(UserError, match=expected):
        adaptive.run_until_conclusive(plan(asked() | changes), run=run, root=root, **most)


RATES = (1e-3, 3e-3, 1e-2, 3e-2)


def swept_grid(root: Path) -> dict[str, set[tuple[float, int]]]:
    """Return the learning rates and seeds of each cell's runs."""
    grid: dict[str, set[tuple[float, int]]] = {}
    for row in load_runs("small", root).to_dict("records"):
        grid.setdefault(row["cell"].split()[0], set()).add((row["train.lr"], row["seed"]))
    return grid


def test_seeds_are_added_to_all_cells_of_a_sweep_which_share_its_grid(root: Path) -> None:
    """With seed 3, the best value of no_wo is the smallest: the grid grows in every cell and for every seed."""
    grid = {**GRID, "variant": ["dense", "no_wo", "wide"]}
    options = {"grid": grid, "sweep": {"train.lr": list(RATES)}, "fate": "swept_and_settling", "max_seeds": 4, "margin": 0.001}
    before, looks, lines = go(root, **options)
    assert looks == Looks(3, 4) and lines == ["3 seeds, still inconclusive: no_wo learned"]
    kinds = {name: row.verdict.kind for name, row in before.items() if row.verdict}
    assert kinds == {"dense": "baseline", "no_wo": "inconclusive", "wide": "worse"}
    grids = swept_grid(root)
    rates = {rate for rate, _ in grids["no_wo"]}
    assert min(rates) < min(RATES) and {*RATES} < rates, "it was extended below"
    assert all(runs == {(rate, seed) for rate in rates for seed in range(4)} for runs in grids.values())
    reported = report_of(root)
    assert {name: (row.value, row.verdict) for name, row in reported.items()} == {
        name: (row.value, row.verdict) for name, row in before.items()
    }
    count = len(trained(root))
    after, looks, _ = go(root, **options)
    assert after == before and looks == Looks(3, 4) and len(trained(root)) == count == 3 * 4 * len(rates)


def test_a_sweep_that_does_not_enclose_an_optimum_gets_no_more_seeds(root: Path) -> None:
    sweep = {"train.lr": [0.4, 0.8, 1.6], "extensions": 1}
    cells, _, lines = go(root, "swept", grid={**GRID, "variant": ["dense", "wide"]}, sweep=sweep, max_seeds=5)
    verdict = cells["wide"].verdict
    assert verdict is not None and verdict.reason is Reason.NO_BEST
    seeds = {seed for _, seed in swept_grid(root)["wide"]}
    assert seeds == {0, 1, 2} and not any("still inconclusive" in line for line in lines)
