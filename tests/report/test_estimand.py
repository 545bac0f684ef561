"""Tests of tables, pages and files of studies whose estimand is not the mean, and of fragile verdicts."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest

from attnlab.config.question import EstimandConfig
from attnlab.planning.plan import plan
from attnlab.registry import ESTIMATORS
from attnlab.report import stored
from attnlab.report.stored import cells_frame
from attnlab.report.summary import summarize
from attnlab.report.verdicts import notes, verdict_table
from attnlab.report.write import write
from attnlab.stats.cells import CellSummary, ComparisonSpec
from attnlab.stats.compare import summarize_cells
from attnlab.stats.estimators import Estimator, Words
from attnlab.stats.paired import Difference, Interval
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import VerdictKind
from attnlab.study.comparison import StudyInfo, comparison_of
from attnlab.study.plan import seed_notes
from tests.planning.test_estimand import study as planned_study
from tests.report.test_summary import ONE, study
from tests.support.pages import changed_files
from tests.support.specs import changed, comparison_spec

RATE = EstimandConfig(name="solve_rate", threshold=0.9)
SPEC = comparison_spec("recall", ("variant",), "recall", "max", {"variant": "dense"}, margin=0.4, estimand=RATE)
SOLVED = {"dense": "+++++", "gru": "-----", "no_wo": "++++-", "lstm": "+++++"}


def runs() -> list[dict[str, Any]]:
    """Return runs of four cells with five seeds each, some of which solve the task."""
    return [
        {
            "run_id": f"{variant}-{seed}",
            "name": f"{variant} s{seed}",
            "variant": variant,
            "cell": variant,
            "seed": seed,
            "state": "completed",
            "reason": "",
            "recall": (0.95 if sign == "+" else 0.2) + seed / 1000,
            "train.steps": 10,
        }
        for variant, signs in SOLVED.items()
        for seed, sign in enumerate(signs)
    ]


def table(spec: ComparisonSpec = SPEC) -> tuple[list[CellSummary], dict[str, str]]:
    cells = summarize_cells(runs(), spec)
    return cells, {row.cells[0]: " | ".join(row.cells) for row in verdict_table(cells, spec).rows}


def test_the_table_shows_how_many_seeds_solve_the_task() -> None:
    cells, rows = table()
    assert "solved 5 of 5 [0.48, 1.00]" in rows["dense"] and "solved 4 of 5 [0.28, 0.99]" in rows["no_wo"]
    assert "-1.00 [" in rows["gru"] and "worse" in rows["gru"]
    assert "recall ≥ 0.9" in [column.heading for column in verdict_table(cells, SPEC).columns]
    text = " ".join(notes(cells, SPEC))
    assert "Barnard" in text and "Holm" in text and "t-test" not in text


def test_looks_are_stated_and_widen_the_intervals() -> None:
    looked = changed(SPEC, looks=Looks(5, 8))
    cells, rows = table(looked)
    assert any("from 5 to 8" in note for note in notes(cells, looked))
    assert not any("t-test at" in note for note in notes(cells, looked))
    once, often = table()[0][0].estimate, cells[0].estimate
    assert once and often and once.low and often.low and often.low < once.low
    assert "worse" in rows["gru"]


def test_the_summary_names_the_rate() -> None:
    text = summarize(table()[0], SPEC).text
    assert "the share of seeds with recall ≥ 0.9 (higher is better)" in text
    assert "gru -1.00 [" in text and "`gru` is worse" in text
    alone = summarize(summarize_cells(runs(), changed(SPEC, baseline={})), changed(SPEC, baseline={})).text
    assert "2 cells share the best solve rate, solved 5 of 5" in alone and "dense, lstm." in alone


def test_cells_csv_has_the_estimate_with_its_interval() -> None:
    frame = cells_frame(table()[0], SPEC).set_index("cell")
    assert frame.loc["no_wo", "estimand"] == "solve_rate" and frame.loc["no_wo", "estimate"] == 0.8
    assert frame.loc["no_wo", "estimate_low"] == pytest.approx(0.2836, abs=1e-4)
    assert frame.loc["gru", "difference"] == -1.0 and frame.loc["gru", "p"] == pytest.approx(2 / 1024)
    assert frame.loc["gru", "recall"] == pytest.approx(0.202)  # the mean of the metric, without a t-interval
    assert pandas.isna(frame.loc["gru", "low"])


def test_a_page_of_solve_rates_is_written_stored_and_rendered_again(tmp_path: Path) -> None:
    info = StudyInfo(SPEC, "study: recall\n")
    curves = pandas.DataFrame(columns=["run_id", "name", "metric", "step", "value"])
    page = write(tmp_path / "a", info=info, runs=pandas.DataFrame(runs()), curves=curves)
    assert "solved 4 of 5 [0.28, 0.99]" in (tmp_path / "a" / "index.html").read_text()
    assert "the solve rate, the share of seeds with recall of at least 0.9" in page.overview
    assert "difference in solve rate" in (tmp_path / "a" / "forest.svg").read_text()
    assert "line: 0.9" in (tmp_path / "a" / "seeds.svg").read_text()
    again = stored.load(tmp_path / "a")
    assert again["info"].spec.estimand == RATE
    write(tmp_path / "b", **again)
    assert changed_files(tmp_path / "a", tmp_path / "b") == []


class GeometricMean(Estimator):
    """The geometric mean of the scores; cells are compared by the logarithm of the ratio of theirs."""

    name = "geometric_mean"
    is_mean = in_unit = False
    difference_direction = property(lambda self: self.direction)  # type: ignore[assignment]
    templates = Words(
        description="the geometric mean of {metric}",
        compared_by="{description}",
        noun="geometric mean",
        heading="geometric mean {metric}",
        difference_heading="log ratio of {metric} to",
        caption="geometric means with intervals over seeds",
    )

    def evaluate(self, cells: Sequence[CellSummary], runs: Any, looks: Looks | None) -> list[CellSummary]:
        logs = super().evaluate([replace(cell, values=_logs(cell.values)) for cell in cells], runs, looks)
        return [replace(cell, value=log.value and _exponential(log.value)) for cell, log in zip(cells, logs, strict=True)]

    def compare(self, cell: Any, baseline: Any, **options: Any) -> Difference | None:
        return super().compare(_logs(cell), _logs(baseline), **options)

    def format(self, cell: CellSummary) -> str:
        return f"{cell.value.mean:.3f}" if cell.value else cell.outcome


def _logs(scores: Mapping[int, float]) -> dict[int, float]:
    return {seed: math.log(score) for seed, score in scores.items()}


def _exponential(log: Interval) -> Interval:
    return Interval(log.n, math.exp(log.mean))


def test_an_estimator_of_a_user_works_through_plan_table_verdict_and_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ESTIMATORS._registered, "geometric_mean", GeometricMean)
    planned = plan(planned_study(estimand="geometric_mean"))
    assert comparison_of(planned).estimand.name == "geometric_mean" and seed_notes(planned) == []
    spec = changed(SPEC, estimand=planned.estimand, margin=None)
    cells, rows = table(spec)
    expected = statistics.geometric_mean(run["recall"] for run in runs() if run["cell"] == "dense")
    assert f"dense | {expected:.3f} | 5" in rows["dense"]
    verdicts = {cell.name: cell.verdict.kind for cell in cells if cell.verdict}
    assert verdicts["gru"] is VerdictKind.WORSE and verdicts["no_wo"] is VerdictKind.INCONCLUSIVE
    gru = next(cell for cell in cells if cell.name == "gru")
    assert gru.difference and gru.difference.interval.mean == pytest.approx(math.log(0.202 / 0.952), abs=1e-3)
    curves = pandas.DataFrame(columns=["run_id", "name", "metric", "step", "value"])
    page = write(tmp_path / "a", info=StudyInfo(spec, "study: recall\n"), runs=pandas.DataFrame(runs()), curves=curves)
    assert "the geometric mean of recall" in page.overview and "geometric mean recall" in (tmp_path / "a/README.md").read_text()
    assert "log ratio of recall to dense" in (tmp_path / "a/forest.svg").read_text()
    write(tmp_path / "b", **stored.load(tmp_path / "a"))
    assert changed_files(tmp_path / "a", tmp_path / "b") == []


SKEWED = [0.050, 0.052, 0.048, 0.051, 0.049, 0.001]
STEADY = [2.0, 2.1, 2.05, 1.95, 2.02, 2.07]


def test_a_fragile_verdict_is_marked_in_the_table_the_summary_and_the_file() -> None:
    values = {"dense": STEADY, "far": [a + 0.5 + b / 50 for a, b in zip(STEADY, SKEWED, strict=True)]}
    values["odd"] = [a + b for a, b in zip(STEADY, SKEWED, strict=True)]
    spec = changed(ONE, moderate=False, margin=None)
    cells = study(values, spec)
    rows = {row.cells[0]: " | ".join(row.cells) for row in verdict_table(cells, spec).rows}
    assert "worse, fragile" in rows["odd"] and "fragile" not in rows["far"]
    assert "fragile" in summarize(cells, spec).text
    frame = cells_frame(cells, spec).set_index("cell")
    assert bool(frame.loc["odd", "fragile"]) and not frame.loc["far", "fragile"]
    sound = study({name: values[name] for name in ("dense", "far")}, spec)
    assert not any("ragile" in note for note in notes(sound, spec))


def test_diverged_runs_count_and_cost_no_page(tmp_path: Path) -> None:
    records = [*runs(), *({**run, "variant": "all", "cell": "all", "run_id": f"all-{run['seed']}"} for run in runs()[:5])]
    for record in records:
        seeds = {"gru": (0, 1, 2), "no_wo": (0,), "all": range(5)}.get(record["cell"], ())
        if record["seed"] in seeds:
            record |= {"state": "diverged", "reason": "the loss became nan", "recall": None}
    spec = changed(SPEC, estimand=RATE, margin=None)
    cells = {cell.name: cell for cell in summarize_cells(records, spec)}
    assert [cell.seeds for cell in cells.values()] == [5] * 5
    curves = pandas.DataFrame(columns=["run_id", "name", "metric", "step", "value"])
    write(tmp_path, info=StudyInfo(spec, "study: recall\n"), runs=pandas.DataFrame(records), curves=curves)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "exact test of Barnard and Chan" in text
    assert all("nan" not in path.read_text(encoding="utf-8") for path in tmp_path.glob("*.svg"))
    assert stored.load(tmp_path)["info"].spec == spec


@pytest.mark.parametrize(
    ("threshold", "scale", "words"),
    [(95.0, 1, "write 0.95"), (0.95, 100, "write 95"), (0.95, 1, ""), (95.0, 100, ""), (1.0, 1, ""), (95.0, 1000, "")],
)
def test_a_threshold_in_another_unit_than_the_scores_is_noted(threshold: float, scale: float, words: str) -> None:
    spec = replace(SPEC, estimand=EstimandConfig(name="solve_rate", threshold=threshold))
    cells = summarize_cells([run | {"recall": run["recall"] * scale} for run in runs()], spec)
    noted = [note for note in notes(cells, spec) if "write" in note]
    assert (words in noted[0] and len(noted) == 1) if words else not noted
