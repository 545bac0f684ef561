"""Tests of the answer at the top of a page on several studies."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from attnlab._util.run_state import RunState
from attnlab.cli import main
from attnlab.extras.rerender import rerender
from attnlab.planning.plan import plan
from attnlab.report.answer import Answer, make_answer
from attnlab.report.summary import Strong
from attnlab.stats.contrasts import StudyTable, combine
from attnlab.tracking.tracker import Tracker
from tests.support.pages import changed_files
from tests.support.several import made_up_study
from tests.support.studies import STUDY, write


def answer_of(*tables: StudyTable) -> Answer:
    answer = make_answer(combine(tables))
    assert answer is not None
    return answer


def strong(answer: Answer) -> list[str]:
    """Return the parts of the answer in bold."""
    return [str(part) for paragraph in answer.paragraphs for part in paragraph if isinstance(part, Strong)]


def text(answer: Answer) -> str:
    return "\n".join("".join(paragraph) for paragraph in (*answer.paragraphs, *answer.details))


def test_three_studies_have_a_mean_a_prediction_and_the_same_numbers_in_the_table() -> None:
    answer = answer_of(*(made_up_study(name, {"no_wo": gap}) for name, gap in (("a", 0.02), ("b", 0.022), ("c", 0.018))))
    assert strong(answer) == ["On average over 3 studies, no_wo is worse", "is worse"]
    assert "In all 3 studies, `no_wo` is worse than `dense`." in text(answer)
    assert "of the bits per byte" in text(answer) and "further study" in text(answer)
    *rows, mean = answer.table.rows
    assert [row.cells[2] for row in rows] == ["a", "b", "c"] and mean.cells[2] == "mean of 3 studies"
    assert mean.cells[3].split()[0] in text(answer) and mean.kind == "baseline"
    (plot,) = answer.plots
    assert plot.file == "effect.svg" and plot.svg.count("<polygon") == 1 and "mean of 3 studies" in plot.svg


def test_two_studies_have_no_mean_but_a_sign() -> None:
    both = answer_of(made_up_study("a", {"no_wo": 0.02}), made_up_study("b", {"no_wo": 0.02}))
    assert text(both).startswith("In both studies, `no_wo` is worse than `dense`.") and "the same sign" in text(both)
    apart = answer_of(made_up_study("a", {"no_wo": 0.02}), made_up_study("b", {"no_wo": -0.02}))
    assert text(apart).startswith("In a, `no_wo` is worse than `dense`; in b, `no_wo` is better than `dense`.")
    assert "opposite signs" in text(apart)
    assert all("mean" not in row.cells[2] for row in apart.table.rows)


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


def test_an_effect_of_zero_has_no_sign() -> None:
    answer = answer_of(made_up_study("a", {"no_wo": 0.02}), made_up_study("b", {"no_wo": 0.0}, noise=0.0))
    assert "the same sign" not in text(answer) and "no opposite signs" in text(answer)


def test_an_inconclusive_mean_is_shown_with_the_interval_that_agrees() -> None:
    gaps = {"a": 0.01, "b": 0.02, "c": 0.013}
    answer = answer_of(*(made_up_study(name, {"no_wo": gap, "basic": 0.0}) for name, gap in gaps.items()))
    assert "The mean effect of no_wo against dense over 3 studies is inconclusive" in strong(answer)
    sentence = "".join(answer.paragraphs[0])
    assert "over the page -" in sentence  # the 95 % interval of this mean alone excludes zero
    row = next(row for row in answer.table.rows if row.cells[:3] == ["no_wo", "dense", "mean of 3 studies"])
    assert "page: ±" in row.cells[3] and row.cells[-1].startswith("inconclusive")


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


def test_the_control_and_what_only_one_study_has_are_named() -> None:
    answer = answer_of(
        made_up_study("a", {"no_wo": 0.02, "none": 0.5}, control={"variant": "none"}),
        made_up_study("b", {"no_wo": 0.02, "basic": 0.1, "none": 0.0}, control={"variant": "none"}),
        made_up_study("c", {"no_wo": 0.02}),
    )
    control = "".join(answer.paragraphs[-1])
    assert "worse in a" in control and "not found worse in b" in control and "no control in c" in control
    assert "`basic` is worse than `dense`" in "".join(answer.details[-1])


def test_studies_that_count_as_one_are_named() -> None:
    tables = [made_up_study(name, {"no_wo": 0.02}, data="enwik8") for name in ("short", "long")]
    answer = answer_of(*tables, made_up_study("reviews", {"no_wo": 0.02}))
    assert any(note.startswith("short and long have data and seeds in common") for note in answer.notes)
    assert "needs 3 independent studies, and there are 2" in text(answer)


def test_copies_of_a_study_under_other_names_count_as_one() -> None:
    copies = [replace(made_up_study("a", {"no_wo": 0.02}), name=name) for name in "abc"]
    for i, copy in enumerate(copies):
        cells = [replace(cell, test=json.dumps({"data": f"file {i}"})) for cell in copy.cells]
        copies[i] = replace(copy, cells=cells)
    answer = answer_of(*copies)
    assert "needs 3 independent studies, and there is 1" in text(answer) and "mean" not in strong(answer)[0]
    answer = answer_of(*copies[:2], *(made_up_study(name, {"no_wo": 0.02}) for name in "de"))
    assert "On average over 3 studies" in strong(answer)[0]


def test_solved_tasks_with_equal_scores_are_no_copies() -> None:
    solved = [made_up_study(name, {"no_wo": -0.5}, metric="accuracy", base=0.75, noise=0.0) for name in "abc"]
    assert "no mean" in text(answer_of(*solved)) and not any("count as one" in note for note in answer_of(*solved).notes)


def test_studies_without_a_comparison_have_no_answer() -> None:
    assert make_answer(combine([made_up_study("a", {}), made_up_study("b", {})])) is None


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the runs folder of three small studies in MLflow, without training."""
    folder = tmp_path_factory.mktemp("answer")
    for i, name in enumerate("abc"):
        question = "question: Is Wo needed?\n" if name != "b" else ""
        made = plan(write(folder, question + STUDY.replace("study: s", f"study: {name}"), name=f"{name}.yaml"))
        tracker = Tracker(made, folder / "runs")
        tracker.log_study()
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
