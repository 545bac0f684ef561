"""Tests of a study over levels, from its file to the terminal, the page and the runs."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli._results import print_results
from attnlab.report.write import write_report as report
from attnlab.stats.compare import summarize_cells
from attnlab.stats.trend import TrendKind, summarize_trends
from attnlab.study.comparison import load_info
from attnlab.study.result import StudyResult
from attnlab.tracking.runs import load_runs
from tests.study.test_study import go, trained
from tests.support.compared import recorded

STUDY: dict[str, Any] = {
    "grid": {"variant": ["dense", "no_wo"]},
    "over": {"train.steps": [5, 10, 20]},
    "seeds": [0, 1, 2],
    "baseline": {"variant": "dense"},
    "reference_scores": False,
}


@pytest.fixture(scope="module")
def levelled(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StudyResult]:
    """Return the folder and the result of a study over training steps."""
    folder = Path(shutil.copytree(empty_store, tmp_path_factory.mktemp("levelled") / "runs"))
    return folder, go(folder, fate="shrinking", **STUDY)


def test_every_cell_is_trained_at_every_level(levelled: tuple[Path, StudyResult]) -> None:
    folder, result = levelled
    runs = load_runs("small", folder)
    assert result.ok and len(runs) == 2 * 3 * 3
    assert sorted(runs.groupby("train.steps")["seed"].apply(list)[10]) == [0, 0, 1, 1, 2, 2]


def test_terminal_page_and_runs_have_the_same_trend(
    levelled: tuple[Path, StudyResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = levelled
    runs = load_runs("small", folder)
    spec = load_info("small", folder)[0].spec
    assert spec.over == "train.steps"
    (trend,) = summarize_trends(summarize_cells(runs.to_dict("records"), spec), spec)  # type: ignore[arg-type]
    assert trend.kind is TrendKind.SHRINKS and trend.slope is not None
    print_results(*recorded("small", folder))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("trend: ")]
    text = (report("small", folder, tmp_path) / "README.md").read_text()
    row = next(row for row in text.partition("## Trend over steps")[2].splitlines() if row.startswith("| no_wo"))
    figures = [cell.strip() for cell in row.split("|")[2:-1]]
    assert figures[-1] == "shrinks" and "no_wo against dense: shrinks" in line
    assert all(figure in line for figure in figures[:4]), (figures, line)
    assert figures[3].startswith(trend.slope.interval.format(sign=True))


def test_another_level_is_trained_beside_the_others_and_a_changed_axis_is_reported(
    levelled: tuple[Path, StudyResult], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(levelled[0], tmp_path / "runs"))
    before = len(trained(folder))
    go(folder, fate="shrinking", **STUDY | {"over": {"train.steps": [5, 10, 20, 40]}})
    assert len(trained(folder)) - before == 2 * 3
    assert load_info("small", folder)[0].selection.changed == ""
    go(folder, fate="shrinking", **STUDY | {"over": None, "grid": STUDY["grid"] | STUDY["over"]})
    assert load_info("small", folder)[0].selection.changed == "over train.steps (now none)"
