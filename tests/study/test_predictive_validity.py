"""Test of predictive validity, from the file of a study to the terminal and the page."""

from pathlib import Path

import pytest

from attnlab.cli._results import print_results
from attnlab.report.result import compare_result
from attnlab.report.write import write_report as report
from tests.study.test_study import go


def test_terminal_and_page_count_the_same(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = go(
        root,
        fate="crossing",
        grid={"variant": ["wide", "dense", "narrow", "convolution", "fixed_sparse"], "position": ["learned"]},
        over={"train.steps": [5, 10]},
        seeds=[0, 1],
        baseline={"variant": "dense"},
        reference_scores=False,
    )
    assert result.ok
    print_results(result, compare_result(result))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("predictive validity: ")]
    folder = report("small", root, tmp_path / "report")
    rows = (folder / "README.md").read_text().partition("## Predictive validity")[2].splitlines()
    figures = [cell.strip() for cell in next(row for row in rows if row.startswith("| 5 to 10 |")).split("|")[2:-1]]
    cells, pairs, verdicts, kept, share = figures[:5]
    assert (cells, pairs) == ("5", "10")
    assert f"{kept} of {verdicts} verdicts on 10 pairs of 5 cells" in line and share in line
    assert 0 < int(kept) < int(verdicts), "narrow changes its place"
