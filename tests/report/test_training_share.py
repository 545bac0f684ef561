"""Tests of the section on differences as a share of training."""

from pathlib import Path

import pandas

from attnlab.report import write
from attnlab.report.methods import StudyInfo
from attnlab.report.stored import load
from attnlab.report.training_share import describe_share
from attnlab.stats.compare import summarize_cells
from attnlab.stats.training_share import summarize_shares
from attnlab.stats.trend import summarize_trends
from tests.support.levels import made_up_levels
from tests.support.pages import changed_files
from tests.support.synthetic import INFO, made_up

NO_CURVES = pandas.DataFrame(columns=["run_id", "name", "metric", "step", "value"])


def section_of(text: str) -> str:
    return text.partition("## Share of training")[2].partition("\n## ")[0]


def test_the_page_has_the_shares_and_says_what_a_curve_does_not_show(tmp_path: Path) -> None:
    runs, curves = made_up()
    write.write(tmp_path, info=INFO, runs=runs, curves=curves)
    section = section_of((tmp_path / "README.md").read_text())
    assert "| dense learned reaches the score of no_wo learned in |" in section
    assert "decaying learning rate" in section and "validation curve of bits_per_byte" in section
    assert "trainings of" not in section


def test_a_page_over_training_steps_reads_them_from_its_trainings(tmp_path: Path) -> None:
    runs, spec = made_up_levels({"no_wo": [-0.1] * 3, "wide": [0.1] * 3})
    first, again = tmp_path / "first", tmp_path / "again"
    write.write(first, info=StudyInfo(spec), runs=pandas.DataFrame(runs), curves=NO_CURVES)
    section = section_of((first / "README.md").read_text())
    rows = {row.split("|")[1].strip(): row.split("|")[2].strip() for row in section.splitlines() if row.startswith("| ")}
    assert rows["no_wo reaches the score of dense in"].startswith("0.33 [0.3")
    assert rows["dense reaches the score of wide in"].startswith("0.34 [0.3")
    assert "no_wo reaches the score of dense in 0.33 [" in section.partition("| ")[0]
    assert "between trainings of 500, 1,500, 4,500 steps" in section and "decaying learning rate" not in section
    write.write(again, **load(first))
    assert changed_files(first, again) == []


def test_a_page_without_curves_has_no_section_on_shares(tmp_path: Path) -> None:
    write.write(tmp_path, info=INFO, runs=made_up()[0], curves=NO_CURVES)
    assert "Share of training" not in (tmp_path / "README.md").read_text()


def test_a_share_in_one_sentence_and_its_bound() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.1] * 3, "fast": [-1.0] * 3})
    cells = summarize_cells(runs, spec)
    no_wo, fast = summarize_shares(cells, runs, NO_CURVES, spec=spec, trends=summarize_trends(cells, spec))
    sentence = describe_share(no_wo)
    assert sentence.startswith("no_wo reaches the score of dense in 0.33 [") and "] of the steps, 0.33 [" in sentence
    assert sentence.endswith("of the training time")
    assert "in at most 0.11 of the steps" in describe_share(fast)
