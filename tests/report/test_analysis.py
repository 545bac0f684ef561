"""Tests of analyses: those of users, by each of the three doors, and what the hubs make of them."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
from ruamel.yaml import YAML

from attnlab import registry
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.registry import ANALYSES, register_analysis
from attnlab.report import Analysis, PageSection, Results, Table, TableRow
from attnlab.report.analysis import analyze, built_in
from attnlab.report.page import make_page, write_page
from attnlab.report.section import Column
from attnlab.report.summary import Summary, summarize
from attnlab.stats.compared import compare_cells
from tests.report.test_rendering import INFO, SPEC, made_up
from tests.support.paths import ROOT
from tests.support.studies import STUDY

EXAMPLE = ROOT / "examples" / "my_analysis"


def results() -> Results:
    records: list[dict[str, Any]] = made_up()[0].to_dict("records")  # type: ignore[assignment]
    return Results(compare_cells(records, SPEC))


def asking(*names: str) -> Results:
    return Results(replace(results().compared, spec=replace(SPEC, analyses=names)))


class Counted(Analysis[int]):
    """Counts cells, in every place."""

    def estimate(self, results: Results) -> int:
        return len(results.cells)

    def lines(self, estimate: int, results: Results) -> list[str | Table]:
        return [f"{estimate} cells counted", Table([Column("cells")], [TableRow([str(estimate)])])]

    def section(self, estimate: int, results: Results) -> PageSection:
        return PageSection("Counted", [f"{estimate} cells"])

    def summarize(self, summary: Summary, estimate: int, results: Results) -> Summary:
        return replace(summary, open=[*summary.open, f" Counted: {estimate}."])

    def frames(self, estimate: int, results: Results) -> dict[str, pandas.DataFrame]:
        return {"counted": pandas.DataFrame({"cells": [estimate]})}


class Broken(Counted):
    """Raises an exception."""

    def estimate(self, results: Results) -> int:
        raise ZeroDivisionError("in the analysis")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ANALYSES, "_registered", {})
    register_analysis("counted")(Counted)
    register_analysis("broken")(Broken)


def test_every_built_in_analysis_has_a_condition_and_a_class() -> None:
    spec = SimpleNamespace(further=[1], over="train.steps", factorial=1, sweep="train.lr")
    everything: Any = SimpleNamespace(spec=spec, curves=[], records=[{"loss_at/8": 1.0}], stages=[1])
    assert built_in(everything) == ANALYSES.names()
    assert all(issubclass(ANALYSES.get(name), Analysis) for name in ANALYSES.names())


@pytest.mark.usefixtures("registered")
def test_it_is_shown_in_every_place(tmp_path: Path) -> None:
    found = analyze(asking("counted"))
    number = len(results().cells)
    text, table = found.lines()
    assert text == f"{number} cells counted" and isinstance(table, Table)
    runs, curves = made_up()
    page = make_page(replace(INFO, spec=replace(INFO.spec, analyses=("counted",))), runs=runs, curves=curves)
    assert "Counted" in [section.title for section in page.sections] and f"Counted: {number}." in page.summary.text
    write_page(tmp_path, page, runs=runs)
    assert pandas.read_csv(tmp_path / "counted.csv")["cells"].tolist() == [number]
    assert "counted.csv" in (tmp_path / "index.html").read_text()


@pytest.mark.usefixtures("registered")
def test_one_that_fails_or_is_not_imported_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    cells = asking("broken", "away.py:Away", "os:getcwd", "counted")
    found = analyze(cells)
    assert [type(analysis) for _, analysis, _ in found.found] == [Counted]
    assert "in the analysis" in caplog.text and "away.py:Away" in caplog.text and "os:getcwd" in caplog.text
    assert found.summarize(summarize(cells.cells, SPEC)) != summarize(cells.cells, SPEC)


def test_a_study_enters_no_module_of_an_analysis_that_it_does_not_have() -> None:
    code = (
        "import sys; from tests.report.test_analysis import results; from attnlab.report.analysis import analyze; "
        "analyze(results()); print([m for m in ('trend', 'factorial', 'sweep', 'lengths', 'stages') "
        "if f'attnlab.report.{m}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def study(**changes: Any) -> dict[str, Any]:
    return {**YAML().load(STUDY), **changes}


def test_a_path_is_checked_when_the_study_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    assert plan(study(analyses=["ranks.py:RankCorrelation"])).study.analyses == ["ranks.py:RankCorrelation"]
    assert ANALYSES.imported("ranks.py:RankCorrelation") is not None
    words = {"ranks.py:RankCorelation": "did you mean", "rank": "unknown analysis", "trend": "that you wrote"}
    for wrong, word in {**words, "subprocess:Popen": "subclass"}.items():
        with pytest.raises(UserError, match=word) as error:
            plan(study(analyses=[wrong]))
        assert "analyses" in str(error.value.where)


def test_the_example_is_short() -> None:
    assert len((EXAMPLE / "ranks.py").read_text().splitlines()) < 80
    assert registry.ANALYSES.kind == "analysis"
