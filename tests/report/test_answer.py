"""Tests of the answer at the top of a page on several studies."""

from pathlib import Path

import pytest

from attnlab._util.run_state import RunState
from attnlab.cli import main
from attnlab.extras.rerender import rerender
from attnlab.planning.plan import plan
from attnlab.report.answer import Answer, make_answer
from attnlab.report.summary import Strong
from attnlab.report.wording import format_p_value
from attnlab.stats.contrasts import StudyTable
from attnlab.study.comparison import comparison_of, to_json
from attnlab.tracking.tracker import Tracker
from tests.support.pages import changed_files
from tests.support.several import made_up_study
from tests.support.studies import STUDY, write


def answer_of(*tables: StudyTable) -> Answer:
    answer = make_answer(tables)
    assert answer is not None
    return answer


def strong(answer: Answer) -> list[str]:
    """Return the parts of the answer in bold."""
    return [str(part) for paragraph in answer.paragraphs for part in paragraph if isinstance(part, Strong)]


def text(answer: Answer) -> str:
    return "\n".join("".join(paragraph) for paragraph in answer.paragraphs)


def test_studies_stand_side_by_side_with_their_verdicts_and_no_mean() -> None:
    tables = [made_up_study(name, {"no_wo": gap}) for name, gap in (("a", 0.02), ("b", 0.022), ("c", 0.018))]
    answer = answer_of(*tables)
    assert strong(answer) == ["is worse"]
    assert "In all 3 studies, `no_wo` is worse than `dense`." in text(answer) and "average" not in text(answer)
    assert [row.cells[2] for row in answer.table.rows] == ["a", "b", "c"]
    shown = [format_p_value(c.difference.p_holm) for t in tables for c in t.cells if c.difference]
    assert [row.cells[4] for row in answer.table.rows] == shown, "the p-values of each study"
    (plot,) = answer.plots
    assert plot.file == "effect.svg" and all(f">{name}<" in plot.svg for name in "abc")


def test_studies_with_other_verdicts_are_named() -> None:
    apart = answer_of(made_up_study("a", {"no_wo": 0.02}), made_up_study("b", {"no_wo": -0.02}))
    assert text(apart).startswith("In a, `no_wo` is worse than `dense`; in b, `no_wo` is better than `dense`.")


def test_all_and_both_are_of_the_studies_that_compare_the_cells() -> None:
    two = [made_up_study(name, {"no_wo": 0.02}) for name in "ab"]
    answer = answer_of(*two, made_up_study("c", {"wide": 0.02}))
    assert text(answer).startswith("In both studies that compare them, `no_wo` is worse than `dense`")


def test_a_study_with_two_verdicts_on_a_contrast_names_the_cells_of_each() -> None:
    answer = answer_of(*(made_up_study(name, {"no_wo": 0.003}, heads=(1, 4), noise=0.0018) for name in "ab"))
    sentence = text(answer).partition(" Effects")[0]
    assert sentence.count(" than `dense`") == sentence.count("cannot tell") == 1, sentence
    (decided,) = [part for part in sentence.split(";") if "is worse" in part]
    (undecided,) = [part for part in sentence.split(";") if "cannot tell" in part]
    assert "In a and b (heads=4)" in decided and "in b (heads=1)" in undecided


def test_contrasts_with_a_verdict_have_the_paragraphs_and_the_others_are_named() -> None:
    cells = {"a": 0.0, "b": 0.0, "c": 0.0, "no_wo": 0.02}
    answer = answer_of(*(made_up_study(name, cells) for name in "xy"))
    assert text(answer).startswith("In both studies, `no_wo` is worse than `dense`") and len(answer.plots) == 3
    assert "c against dense" in "".join(answer.paragraphs[3]) and "no_wo" not in "".join(answer.paragraphs[3])


def test_accuracy_counts_as_error_rate() -> None:
    answer = answer_of(
        made_up_study("text", {"no_wo": 0.02}), made_up_study("reviews", {"no_wo": -0.01}, metric="accuracy", base=0.9)
    )
    effects = {row.cells[2]: float(row.cells[3].split()[0]) for row in answer.table.rows}
    assert effects["text"] == pytest.approx(1.0, abs=0.1) and effects["reviews"] == pytest.approx(10.0, abs=1.0)
    assert text(answer).startswith("In both studies, `no_wo` is worse than `dense`")
    assert any("bits per byte or error rate" in note for note in answer.notes)


def test_what_only_one_study_has_is_in_the_table_alone() -> None:
    answer = answer_of(made_up_study("a", {"no_wo": 0.02}), made_up_study("b", {"no_wo": 0.02, "basic": 0.1}))
    assert "basic" not in text(answer) and "basic" in [row.cells[0] for row in answer.table.rows]


def test_studies_without_a_comparison_have_no_answer() -> None:
    assert make_answer([made_up_study("a", {}), made_up_study("b", {})]) is None


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the runs folder of three small studies in MLflow, without training."""
    folder = tmp_path_factory.mktemp("answer")
    for i, name in enumerate("abc"):
        question = "question: Is Wo needed?\n" if name != "b" else ""
        made = plan(write(folder, question + STUDY.replace("study: s", f"study: {name}"), name=f"{name}.yaml"))
        tracker = Tracker(made, folder / "runs")
        tracker.log_study(to_json(comparison_of(made)))
        for run in made.runs:
            value = 2.0 + run.seed / 100 + (0.2 + 0.01 * i + run.seed / 1e4) * (run.cell.name == "no_wo")
            tracker.finish(tracker.start(run), RunState.COMPLETED, summary={"bits_per_byte": value, "parameters": 1000.0})
    return folder / "runs"


def test_the_page_opens_with_the_question_and_the_answer(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    out = tmp_path / "page"
    assert main.main(["report", "a", "b", "c", "--out", str(out)]) == 0
    page = (out / "index.html").read_text()
    assert page.index("Is Wo needed?") < page.index("In all 3 studies, <code>no_wo</code>") < page.index("<h2>a</h2>")
    assert (out / "effect-0.svg").is_file() and "](effect-0.svg)" in (out / "README.md").read_text()
    assert (out / "a" / "README.md").read_text().index("**Question.** Is Wo needed?") > 0
    before = tmp_path / "before"
    (out).rename(before)
    assert main.main(["report", "a", "b", "c", "--out", str(out), "--question", "Can Wo go?"]) == 0
    text = (out / "README.md").read_text()
    assert "**Question.** Can Wo go?" in text and "--question 'Can Wo go?'" in text
    rerender(before)
    assert main.main(["report", "a", "b", "c", "--out", str(tmp_path / "again" / "before")]) == 0
    assert not changed_files(before, tmp_path / "again" / "before")
