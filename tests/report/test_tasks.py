"""Tests of studies of several tasks: the plan, the verdicts of terminal, report and data frame, and the pages."""

import csv
from pathlib import Path
from typing import Any

import pytest

from attnlab._util.run_state import RunState
from attnlab.cli._results import print_results, print_verdict
from attnlab.errors import UserError
from attnlab.extras.rerender import rerender
from attnlab.planning.plan import Plan, plan
from attnlab.report.conclusion import conclusions
from attnlab.report.result import verdicts
from attnlab.report.write import write_report as report
from attnlab.stats import paired
from attnlab.stats.cells import Goal
from attnlab.stats.compare import summarize_cells
from attnlab.study.comparison import comparison_of, load_info, to_json
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tracker import Tracker
from tests.support.compared import recorded
from tests.support.pages import changed_files
from tests.support.specs import changed
from tests.support.studies import write

STUDY = """\
study: both
base:
  position: learned
  model: {dim: 12, depth: 1, heads: 2, pool: max}
  train: {batch_size: 3}
  machine: {device: cpu}
grid:
  variant: [dense, no_wo, {name: no_wo, match: params}]
  setting:
    text: {task: {name: pydocs, length: 24}, train.steps: 5}
    reviews: {task: {name: imdb, length: 12}, train.epochs: 1}
seeds: 0-4
baseline: {variant: dense}
margin: {text: 0.01, reviews: 0.02}
"""
GAPS = {"no_wo": {"text": 0.05, "reviews": -0.004}, "no_wo match=params": {"text": 0.012, "reviews": 0.0}}


def planned(folder: Path, **changes: str) -> Plan:
    text = STUDY
    for old, new in changes.items():
        text = text.replace(old, new)
    return plan(write(folder, text))


def score(made: Plan, run: Any) -> dict[str, float]:
    variant, setting = str(run.cell.axes["variant"]), run.cell.axes["setting"]
    noise = 0.004 * ((run.seed * len(variant) + run.seed**2) % 7 - 3)
    gap = GAPS.get(variant, {}).get(setting, 0.0)
    metric, _ = made.metric_of(run.cell)
    return {metric: (2.0 if setting == "text" else 0.8) + gap + noise / (1 if setting == "text" else 4), "parameters": 1000.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path]:
    """Return the plan and the runs folder of a study of two tasks in MLflow, without training."""
    folder = tmp_path_factory.mktemp("tasks")
    study = planned(folder)
    tracker = Tracker(study, folder / "runs")
    tracker.log_study(to_json(comparison_of(study)))
    for run in study.runs:
        tracker.finish(tracker.start(run), RunState.COMPLETED, summary=score(study, run))
    return study, folder / "runs"


def test_each_cell_has_the_metric_of_its_task(made: tuple[Plan, Path]) -> None:
    study, _ = made
    assert study.task_axis == "setting" and study.metrics == ["bits_per_byte", "accuracy"]
    assert {study.metric_of(cell) for cell in study.cells if cell.axes["setting"] == "reviews"} == {("accuracy", "max")}
    assert study.margin == {"text": 0.01, "reviews": 0.02}
    steps = {cell.axes["setting"]: (cell.config.train.steps, cell.config.train.epochs) for cell in study.cells}
    assert steps == {"text": (5, None), "reviews": (None, 1)}
    assert not any(cell.refusal for cell in study.cells)


def test_a_metric_may_be_stated_for_a_task(tmp_path: Path) -> None:
    study = planned(tmp_path, **{"margin:": "metric: {reviews: loss}\nmargin:"})
    assert study.tasks["reviews"].metric == "loss" and study.tasks["text"].metric == "bits_per_byte"
    with pytest.raises(UserError) as caught:
        planned(tmp_path, **{"margin:": "metric: {text: accuracy}\nmargin:"})
    assert "expected bits_per_byte" in caught.value.message and "s.yaml:14" in caught.value.where
    with pytest.raises(UserError, match="estimand: expected the mean"):
        planned(tmp_path, **{"margin: {text: 0.01, reviews: 0.02}": "estimand: {name: solve_rate, threshold: 0.5}"})
    with pytest.raises(UserError, match="expected a margin for each task"):
        planned(tmp_path, **{"margin: {text: 0.01, reviews: 0.02}": "margin: 0.01"})
    shared = planned(
        tmp_path, **{"margin: {text: 0.01, reviews: 0.02}": "metric: loss"} | {"pydocs, length: 24": "imdb, length: 9"}
    )
    assert shared.tasks == {} and shared.metric == "loss"


def test_verdicts_are_corrected_over_the_study_and_everyone_shows_the_same(
    made: tuple[Plan, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, root = made
    runs = load_runs("both", root)
    spec = load_info("both", root)[0].spec
    assert [part.metric for part in spec.parts] == ["bits_per_byte", "accuracy"]
    assert [part.margin for part in spec.parts] == [0.01, 0.02]
    cells = {cell.name: cell for cell in summarize_cells(runs.to_dict("records"), spec)}
    compared = [cell.difference for cell in cells.values() if cell.difference is not None]
    expected = paired.holm([1.0 if d.no_test else d.p for d in compared])  # a withheld test counts in the correction
    assert len(compared) == 4 and sum(d.no_test is None for d in compared) >= 2
    assert [d.p_holm for d in compared] == [None if d.no_test else p for d, p in zip(compared, expected, strict=True)]
    assert cells["no_wo text"].baseline == "dense text" and cells["no_wo reviews"].baseline == "dense reviews"
    # The report
    folder = report("both", root, tmp_path / "both")
    for task in ("text", "reviews"):
        with (folder / task / "cells.csv").open() as file:
            rows = {row["cell"]: row for row in csv.DictReader(file)}
        assert set(rows) == {name for name in cells if name.endswith(task)}
        for name, row in rows.items():
            difference = cells[name].difference
            if difference is not None and difference.p_holm is not None:
                assert float(row["p_holm"]) == pytest.approx(difference.p_holm, rel=1e-5)
                assert float(row["difference"]) == pytest.approx(difference.interval.mean, rel=1e-5)
    # The terminal
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    assert comparison_of(study) == changed(spec, looks=None)
    capsys.readouterr()
    info, compared = recorded("both", root)
    print_results(info, compared)
    print_verdict(conclusions(compared))
    printed = capsys.readouterr().out
    assert (
        printed.index("both, text: bits_per_byte") < printed.index("both, reviews: accuracy") < printed.index("verdict: text")
    )
    no_wo = cells["no_wo text"].difference
    assert no_wo is not None and f"+{no_wo.interval.mean:.4f}" in printed
    answers = [line.partition(":")[2].split(":")[0].strip() for line in printed.splitlines() if line.startswith("verdict: ")]
    assert answers[:2] == ["text", "reviews"] and len(answers) > 2
    # Python
    frame = verdicts("both", root).set_index("cell")
    assert list(frame["task"]) == ["text"] * 3 + ["reviews"] * 3 and set(frame.index) == set(cells)
    assert frame.loc["no_wo text", "difference"] == no_wo.interval.mean


def test_the_pages_of_a_study_of_two_tasks(made: tuple[Plan, Path], tmp_path: Path) -> None:
    _, root = made
    folder = report("both", root, tmp_path / "both")
    text = (folder / "README.md").read_text()
    assert text.index("**Answer.**") < text.index("## text") < text.index("## reviews")
    assert "](text/forest.svg)" in text and "attnlab report both\n" in text
    assert "accuracy" not in (folder / "text" / "cells.csv").read_text().splitlines()[0]
    assert (folder / "reviews" / "runs.csv").read_text().count("reviews s") == 15
    before = tmp_path / "before" / "both"
    before.parent.mkdir()
    folder.rename(before)
    rerender(before)
    again = report("both", root, tmp_path / "both")
    for part in (".", "text", "reviews"):
        assert not changed_files(before / part, again / part)


def test_the_record_names_the_tasks_and_a_page_of_several_studies_takes_them(made: tuple[Plan, Path], tmp_path: Path) -> None:
    study, root = made
    spec = load_info("both", root)[0].spec
    assert spec.tasks == {"text": Goal("bits_per_byte", "min", 0.01), "reviews": Goal("accuracy", "max", 0.02)}
    assert spec.task_axis == "setting"
    other = plan(
        write(tmp_path, STUDY.replace("study: both", "study: other").replace("seeds: 0-4", "seeds: 5-9"), name="o.yaml")
    )
    tracker = Tracker(other, root)
    tracker.log_study(to_json(comparison_of(other)))
    for run in other.runs:
        tracker.finish(tracker.start(run), RunState.COMPLETED, summary=score(other, run))
    folder = report(["both", "other"], root, tmp_path / "page")
    text = (folder / "README.md").read_text()
    assert "## other reviews" in text and "](other/reviews/forest.svg)" in text
    assert (folder / "other" / "reviews" / "index.html").is_file()
