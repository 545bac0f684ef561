"""Tests of the section on predictive validity and its line in the terminal."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas

from attnlab._util.user_code import load_file
from attnlab.report import write
from attnlab.report.stored import load
from attnlab.stats.compare import summarize_cells
from attnlab.study.comparison import StudyInfo
from examples.my_analysis.validity import (
    TITLE,
    format_near,
    format_share,
    summarize_agreement,
)
from tests.support.levels import made_up_levels
from tests.support.pages import changed_files

GAPS = {f"v{i}": [0.02 * i, 0.02 * i, (0.09 if i == 4 else -0.02) * i] for i in range(1, 5)}
NAMES = ("validity.py:PredictiveValidity",)
CURVES = pandas.DataFrame(columns=["run_id", "name", "metric", "step", "value"])
load_file(Path("examples/my_analysis/validity.py"))


def written(folder: Path, runs: list[dict[str, Any]], spec: Any) -> str:
    frame = pandas.DataFrame([run | {"task": "pydocs length=16"} for run in runs])
    write.write(folder, info=StudyInfo(replace(spec, analyses=NAMES)), runs=frame, curves=CURVES)
    return (folder / "README.md").read_text()


def test_the_page_counts_the_verdicts_that_keep_their_sign(tmp_path: Path) -> None:
    runs, spec = made_up_levels(GAPS)
    section = written(tmp_path, runs, spec).partition(f"## {TITLE}")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")]
    agreements = summarize_agreement(summarize_cells(runs, spec), spec)
    for row, agreement in zip(rows[1:], agreements, strict=True):
        assert row[1:5] == [str(n) for n in (agreement.cells, agreement.pairs, agreement.verdicts, agreement.kept)]
        assert row[5:7] == [format_near(agreement), format_share(agreement)]
        assert row[7:] == [str(agreement.confirmed), str(agreement.reversed)]
    assert rows[1][:5] == ["500 to 1,500", "5", "10", "10", "10"] and rows[2][4] == "4"


def test_a_page_with_the_section_is_rendered_again_from_its_stored_tables(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    written(first, *made_up_levels(GAPS))
    write.write(again, **load(first))
    assert changed_files(first, again) == [] and TITLE in (again / "index.html").read_text()
