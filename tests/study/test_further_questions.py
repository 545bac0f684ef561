"""Tests of studies with several questions about the same cells, from the YAML to the page."""

from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest

import attnlab
from attnlab import load_runs, verdicts
from attnlab._util.run_state import RunState
from attnlab.cli._results import print_results
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.report.conclusion import conclusions, verdicts_frame
from attnlab.report.page import make_page, write_page
from attnlab.report.stored import load
from attnlab.report.write import write_report
from attnlab.stats import paired
from attnlab.stats.cells import ComparisonSpec, Goal, comparisons
from attnlab.stats.compare import summarize_questions
from attnlab.study.comparison import load_info
from attnlab.study.run import run
from attnlab.tracking.runs import load_curves
from tests.study.test_study import QUIET, study
from tests.support.compared import recorded

TABLE = {
    "grid": {"variant": ["dense", "no_wo", "narrow"]},
    "seeds": [0, 1, 2, 3],
    "baseline": {"variant": "dense"},
    "margin": 0.5,
}
ON_VALID = [{"metric": "valid_bits_per_byte", "margin": 0.2}]


def trained(root: Path, **changes: Any) -> Any:
    config = {**study(), **TABLE, "questions": ON_VALID, **changes}
    return run(config, root=root, display=QUIET, train="tests.support.study_fakes:two_scores")


def test_each_question_has_its_verdicts_in_python_terminal_and_page(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(root)
    compared = recorded("small", root)[1]
    frame = verdicts_frame(compared).set_index(["metric", "cell"])
    assert frame["verdict"].to_dict() == {
        ("bits_per_byte", "dense"): "",
        ("bits_per_byte", "no_wo"): "worse",
        ("bits_per_byte", "narrow"): "equivalent",
        ("valid_bits_per_byte", "dense"): "",
        ("valid_bits_per_byte", "no_wo"): "equivalent",
        ("valid_bits_per_byte", "narrow"): "better",
    }
    print_results(trained(root), compared)
    text = " ".join(capsys.readouterr().out.split())
    assert "dense valid bits per byte (lower is better)" in text and "corrects the verdicts of all questions" in text
    (sentence,) = conclusions(compared)
    assert "In valid bits per byte: `narrow` is better than `dense`; `no_wo` is as good, within 0.2" in sentence

    pandas.testing.assert_frame_equal(verdicts("small", root).set_index(["metric", "cell"]), frame)
    info = load_info("small", root)[0]
    page = make_page(info, runs=load_runs("small", root), curves=load_curves("small", root))
    (section,) = [section for section in page.sections if section.title == "Further questions"]
    assert section.table
    assert [row.cells[-1] for row in section.table.rows] == ["baseline", "equivalent within the margin", "better"]
    assert [plot.file for plot in section.plots] == ["question-1.svg"]


def test_a_stored_page_has_the_questions(root: Path, tmp_path: Path) -> None:
    trained(root)
    folder = tmp_path / "page"
    write_report("small", root, folder)
    stored = load(folder)
    write_page(tmp_path / "again", make_page(**stored), runs=stored["runs"])
    for name in ("README.md", "questions.csv"):
        assert (tmp_path / "again" / name).read_text() == (folder / name).read_text()
    assert pandas.read_csv(folder / "questions.csv")["cell"].tolist() == ["dense", "no_wo", "narrow"]


def test_the_verdicts_of_all_questions_are_corrected_together(root: Path) -> None:
    trained(root)
    compared = recorded("small", root)[1]
    tables = [compared.cells, *(asked.cells for asked in compared.further)]
    differences = [row.difference for cells in tables for row in comparisons(cells) if row.difference]
    assert {difference.comparisons for difference in differences} == {4}
    assert [d.p_holm for d in differences] == [d.p_holm for d in paired.correct(differences) if d]
    trained(root, questions=[])
    alone = [row.difference for row in recorded("small", root)[1].cells]
    assert alone[1] and tables[0][1].difference and alone[1].p_holm < tables[0][1].difference.p_holm  # type: ignore[operator]


def test_a_question_that_is_added_after_results_is_a_change_of_the_comparison(root: Path) -> None:
    trained(root, questions=[])
    verdicts("small", root)
    trained(root)
    info = load_info("small", root)[0]
    assert info.selection.changed == "questions none (now valid bits per byte (margin 0.2))"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"questions": [{"metric": "bits_per_byte"}]}, "questions: expected each metric once, got 'bits_per_byte' again"),
        ({"questions": [*ON_VALID, *ON_VALID]}, "expected each metric once, got 'valid_bits_per_byte' again"),
        ({"questions": [{"metric": "valid_bits"}]}, "unknown metric 'valid_bits' .did you mean 'valid_bits_per_byte'"),
        (
            {"base": study()["base"] | {"task": "imdb"}, "margin": None}
            | {"questions": [{"metric": "valid_accuracy", "margin": 1.5}]},
            "margin: expected less than 1, the whole range of valid_accuracy, got 1.5",
        ),
        ({"questions": [{"metric": "tokens_per_s", "margin": 0}]}, "margin: expected a number greater than 0, got 0"),
        ({"baseline": None, "margin": None}, "questions: expected 'baseline'"),
        (
            {"sweep": {"train.lr": [1e-3, 2e-3, 4e-3]}},
            "questions: expected none in a study with 'sweep': a sweep chooses its rate",
        ),
        (
            {"grid": {}, "factors": ["qk_norm", "gate"], "baseline": None},
            "questions: expected none in a study with 'factors': the effects",
        ),
        ({"estimand": {"name": "solve_rate", "threshold": 1.0}, "margin": None}, "expected 'estimand: mean' with 'questions'"),
        (
            {"command": "python train.py", "metric": {"name": "x", "direction": "min"}},
            "questions: expected none in a study with 'command'",
        ),
    ],
)
def test_what_cannot_be_asked_is_one_line(changes: dict[str, Any], message: str) -> None:
    config = {**study(), **TABLE, "questions": ON_VALID, **changes}
    with pytest.raises(UserError, match=message) as error:
        attnlab.plan({name: value for name, value in config.items() if value not in ({}, None)})
    assert "\n" not in str(error.value)


def test_questions_of_several_tasks_are_refused() -> None:
    grid = {"task": [{"name": "pydocs"}, {"name": "parity"}], "variant": ["dense", "no_wo"]}
    with pytest.raises(UserError, match="questions: expected none: the values of 'task'"):
        read_study({**study(), **TABLE, "questions": ON_VALID, "margin": None, "grid": grid})


def test_false_verdicts_of_two_questions_stay_within_five_per_cent() -> None:
    """Three cells without a difference, by two metrics that do not depend on each other: the hardest case for one level."""
    numbers, tables = numpy.random.default_rng(0), 400
    spec = ComparisonSpec("null", ("variant",), "a", "min", baselines=({"variant": "0"},), further=(Goal("b", "min"),))
    false = 0
    for _ in range(tables):
        scores = numbers.standard_normal((4, 5, 2))
        runs = [
            {"variant": str(cell), "seed": seed, "state": RunState.COMPLETED, "a": a, "b": b}
            for cell, of_cell in enumerate(scores)
            for seed, (a, b) in enumerate(of_cell)
        ]
        cells = [row for table in summarize_questions(runs, spec) for row in comparisons(table)]
        false += any(row.difference is not None and row.difference.is_significant for row in cells)
    assert false / tables < 0.05 + 2.5 * (0.05 * 0.95 / tables) ** 0.5
