"""Tests that no choice of runs, seeds, names or questions makes a verdict silently, and that no honest study is accused."""

import csv
import json
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli.main import main
from attnlab.extras.sharing.bundle import write_bundle
from attnlab.extras.sharing.merge import merge
from attnlab.report.methods import load_study_info
from attnlab.report.selection import describe_selection, described_verdicts
from attnlab.report.summary import summarize
from attnlab.report.write import write_report as report
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.stats.corrections import alternatives, correct_cells
from attnlab.stats.selection import Selection
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import VerdictKind
from attnlab.study.looks import record_look
from attnlab.study.withdrawal import withdraw
from attnlab.tracking.attempts import REPLACED_TAG, RETRIED
from attnlab.tracking.client import connect, snapshot
from attnlab.tracking.history import EXPERIMENT, Entry, Event, append_history, read_history
from attnlab.tracking.runs import find_experiment, load_runs
from attnlab.tracking.tags import to_yaml
from tests.support.empty_store import copy_store
from tests.support.stored_studies import QUESTION, add_runs, ask, record_ids, store_study

DENSE = {seed: 2.0 + 0.01 * seed for seed in range(6)}
LUCKY = {0: 1.95, 1: 1.97, 2: 1.965}  # better than dense by 0.05, 0.04 and 0.055
LOSERS = {3: 2.10, 4: 2.13, 5: 2.02}  # worse than dense
NARROW = LUCKY | LOSERS


def some(values: dict[int, float], *seeds: int) -> dict[int, float]:
    return {seed: values[seed] for seed in seeds}


def page_of(root: Path, study: str = "small") -> tuple[Selection, dict[str, CellSummary], str]:
    """Look at a study; return the choice of its records, its cells, and the first paragraph of its page."""
    with snapshot():
        runs = load_runs(study, root)
        spec = load_study_info(runs, root=root).spec
        records = [{str(name): value for name, value in run.items()} for run in runs.to_dict("records")]
        record_look(spec, summarize_cells(records, spec), root)
    info = load_study_info(runs, root=root)
    others = alternatives(records, info.spec, info.selection)
    cells = correct_cells(summarize_cells(records, info.spec), others, info.selection)
    summary = summarize(cells, info.spec)
    verdicts = described_verdicts(cells, [], None)
    chosen = describe_selection(info.selection, cells, info.spec, corrected=verdicts, changes=info.changes)
    return info.selection, {cell.name: cell for cell in cells}, f"{summary.text} {chosen}"


def corrections(cell: CellSummary) -> list[StrEnum | None]:
    return [correction.kind for correction in cell.verdict.corrections] if cell.verdict else []


def left_out(selection: Selection) -> set[tuple[str, int, str, str]]:
    return {(run["cell"], run["seed"], run["withdrawn"], run["other_study"]) for run in selection.left_out}


SCORES = {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY}

# ---------------------------------------------------------------- withdrawn


def test_deleted_runs_are_named_and_the_verdict_with_them_stands_beside(root: Path) -> None:
    store_study(root, "small", {"dense": DENSE, "narrow": NARROW})
    assert page_of(root)[1]["narrow"].is_inconclusive
    with withdraw("small", ["narrow s3", "narrow s4", "narrow s5"], root=root) as runs:
        runs.delete()
    selection, cells, paragraph = page_of(root)
    assert left_out(selection) == {("narrow", seed, "deleted", "") for seed in (3, 4, 5)}
    assert cells["narrow"].verdict is not None and cells["narrow"].verdict.kind is VerdictKind.BETTER
    assert corrections(cells["narrow"]) == [VerdictKind.INCONCLUSIVE]
    assert "narrow (seeds 3, 4, 5, deleted)" in paragraph and "instead of better" in paragraph
    page = (report("small", root, root.parent / "page") / "README.md").read_text()
    (result,) = [line for line in page.splitlines() if line.startswith("**Result.**")]
    assert "narrow (seeds 3, 4, 5, deleted)" in result and "but inconclusive" in page
    with (root.parent / "page" / "cells.csv").open() as file:
        rows = {row["cell"]: row for row in csv.DictReader(file)}
    assert "inconclusive" in rows["narrow"]["verdict"] and rows["narrow"]["corrected"].startswith("inconclusive")
    stored = json.loads((root.parent / "page" / "report.json").read_text())
    assert {run["withdrawn"] for run in stored["left_out"]} == {"deleted"}


def test_runs_deleted_in_the_ui_are_named(root: Path) -> None:
    store_study(root, "small", {"dense": DENSE, "narrow": NARROW})
    for seed in (3, 4, 5):
        connect(root).delete_run(record_ids(root, "small", "narrow")[seed])
    selection, cells, _ = page_of(root)
    assert len(selection.left_out) == 3 and corrections(cells["narrow"]) == [VerdictKind.INCONCLUSIVE]


def test_a_redone_run_counts_with_its_first_result(root: Path) -> None:
    store_study(root, "small", {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY | {2: 2.30}})
    with withdraw("small", ["narrow s2"], root=root) as runs:
        runs.redo()
    add_runs(root, "small", {"narrow": some(LUCKY, 2)}, start=2_000)
    selection, cells, paragraph = page_of(root)
    assert left_out(selection) == {("narrow", 2, "redone", "")}
    assert cells["narrow"].verdict is not None and cells["narrow"].verdict.kind is VerdictKind.BETTER
    assert corrections(cells["narrow"]) == [VerdictKind.INCONCLUSIVE] and "redone" in paragraph


def test_a_result_that_was_retried_counts_and_a_failure_does_not(root: Path) -> None:
    store_study(root, "small", {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY | {2: 2.30}})
    client, old = connect(root), record_ids(root, "small", "narrow")[2]
    add_runs(root, "small", {"narrow": some(LUCKY, 2)}, start=2_000)
    client.set_tag(old, REPLACED_TAG, "yes")  # as attnlab replaces attempts without a result, and doubles
    client.delete_run(old)
    assert page_of(root)[0] == replaced(page_of(root)[0])
    client.restore_run(old)
    client.set_tag(old, REPLACED_TAG, RETRIED)
    client.delete_run(old)
    assert left_out(page_of(root)[0]) == {("narrow", 2, "retried", "")}
    client.restore_run(old)
    client.set_tag(old, "attnlab.state", "out_of_memory")
    client.delete_run(old)
    assert not page_of(root)[0].left_out


def replaced(selection: Selection) -> Selection:
    return Selection(question=selection.question)


def test_a_run_that_gives_the_same_again_is_not_mentioned(root: Path) -> None:
    store_study(root, "small", {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY})
    with withdraw("small", ["narrow"], root=root) as runs:
        runs.redo()
    add_runs(root, "small", {"narrow": LUCKY}, start=2_000)
    assert page_of(root)[0] == replaced(page_of(root)[0])


def test_withdrawals_are_known_after_the_store_has_forgotten_the_runs(root: Path) -> None:
    store_study(root, "small", {"dense": DENSE, "narrow": NARROW})
    ids = record_ids(root, "small", "narrow")
    with withdraw("small", ["narrow s3", "narrow s4", "narrow s5"], root=root) as runs:
        runs.delete()
    forget(root, [ids[seed] for seed in (3, 4, 5)])
    selection, _, paragraph = page_of(root)
    assert selection.lost == (("narrow", (3, 4, 5), "small"),) and "3, 4, 5" in paragraph


def forget(root: Path, run_ids: list[str]) -> None:
    """Remove deleted runs as `mlflow gc` does."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(f"sqlite:///{root / 'mlflow.db'}", str(root / "artifacts"))
    for run_id in run_ids:
        store._hard_delete_run(run_id)


# ---------------------------------------------------------------- a pool of seeds, other names


@pytest.mark.parametrize("deleted", [False, True])
def test_seeds_picked_from_the_runs_of_another_study_are_named(root: Path, deleted: bool) -> None:
    store_study(root, "pool", {"dense": DENSE, "narrow": NARROW})
    if deleted:
        client = connect(root)
        client.delete_experiment(find_experiment(client, "pool").experiment_id)
    store_study(root, "small", {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY}, start=5_000)
    selection, cells, paragraph = page_of(root)
    expected = {(cell, seed, "", "pool") for cell in ("dense", "narrow") for seed in (3, 4, 5)}
    assert left_out(selection) == expected and "study pool" in paragraph
    assert corrections(cells["narrow"]) == [VerdictKind.INCONCLUSIVE]


def test_studies_that_share_a_baseline_or_came_first_are_not_accused(root: Path) -> None:
    store_study(root, "first", {"dense": DENSE, "wide": DENSE})
    store_study(root, "small", {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY}, start=5_000)
    assert page_of(root)[0] == replaced(page_of(root)[0])
    store_study(root, "later", {"dense": DENSE, "narrow": NARROW}, start=9_000)
    assert page_of(root)[0] == replaced(page_of(root)[0]), "these results did not exist"


def test_cells_that_another_study_judged_with_these_are_named(root: Path) -> None:
    """Whoever reports the best of several cells under another name has made as many comparisons as before."""
    others = {cell: {seed: value + 0.03 for seed, value in LUCKY.items()} for cell in ("wide", "deep", "sparse", "gated")}
    store_study(root, "pool", {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY, **others})
    store_study(root, "small", SCORES, start=5_000)
    assert not left_out(page_of(root)[0]), "the other study was not judged"
    page_of(root, "pool")
    assert not left_out(page_of(root)[0]), "this study was judged first"
    store_study(root, "again", SCORES, start=9_000)
    selection, _, paragraph = page_of(root, "again")
    assert left_out(selection) == {(cell, seed, "", "pool") for cell in others for seed in (0, 1, 2)}
    assert "the cell wide (seeds 0, 1, 2, of the study pool)" in paragraph
    later = {cell: {seed + 10: value for seed, value in values.items()} for cell, values in SCORES.items()}
    store_study(root, "fresh", later, start=20_000)
    assert not [run for run in left_out(page_of(root, "fresh")[0]) if run[0] in others], "other seeds"


def test_looks_count_under_another_name(root: Path) -> None:
    store_study(root, "pilot", {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY})
    page_of(root, "pilot")
    store_study(root, "small", {"dense": DENSE, "narrow": NARROW}, start=5_000)
    selection, cells, paragraph = page_of(root)
    assert cells["narrow"].difference is not None and cells["narrow"].difference.looks == Looks(3, 3, (6,))
    assert selection.renamed == (("pilot", 3),) and "study pilot" in paragraph
    assert not page_of(root, "pilot")[0].renamed


def test_looks_count_after_all_runs_were_deleted(root: Path) -> None:
    store_study(root, "small", {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY})
    page_of(root)
    with withdraw("small", ["dense", "narrow"], root=root) as runs:
        runs.delete()
    add_runs(root, "small", {"dense": DENSE, "narrow": NARROW}, start=200_000_000_000_000)
    _, cells, _ = page_of(root)
    assert cells["narrow"].difference is not None and cells["narrow"].difference.looks == Looks(3, 3, (6,))


# ---------------------------------------------------------------- questions


def test_the_verdict_of_the_first_question_stands_beside(root: Path) -> None:
    store_study(root, "small", {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY, "wide": {0: 2.00, 1: 2.012, 2: 2.019}})
    ask(root, "small", {"margin": 0.001}, {"margin": 0.5})
    selection, cells, paragraph = page_of(root)
    assert selection.first_question is not None and selection.first_question["margin"] == 0.001
    assert cells["wide"].verdict is not None and cells["wide"].verdict.kind is VerdictKind.EQUIVALENT
    assert corrections(cells["wide"]) != [] and "margin 0.001 (now 0.5)" in paragraph
    ask(root, "small", {"margin": 0.001}, {"margin": 0.5}, {"margin": 0.001})
    assert page_of(root)[0].first_question is None, "asked first and last"


def test_another_baseline_after_a_look_is_named_under_another_name_too(root: Path) -> None:
    scores = {"dense": some(DENSE, 0, 1, 2), "narrow": {0: 2.05, 1: 2.04, 2: 2.08}, "wide": {0: 2.3, 1: 2.29, 2: 2.32}}
    store_study(root, "pilot", scores)
    page_of(root, "pilot")
    store_study(root, "small", scores, start=5_000, question={"baseline": {"variant": "wide"}})
    selection, cells, paragraph = page_of(root)
    assert [study for study, _ in selection.questions] == ["pilot"] and "study pilot" in paragraph
    (correction,) = cells["narrow"].verdict.corrections  # type: ignore[union-attr]
    assert (correction.kind, correction.baseline) == (VerdictKind.WORSE, "dense")


def test_a_question_that_is_forgotten_with_its_runs_is_known(root: Path) -> None:
    store_study(root, "small", {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY}, question={"margin": 0.001})
    page_of(root)
    ask(root, "small", {"margin": 1.0})  # as if no run had a result
    assert [question["margin"] for _, question in page_of(root)[0].questions] == [0.001]


def test_a_configuration_that_is_changed_after_a_look_is_named_and_corrected_for(root: Path) -> None:
    scores = {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY}
    store_study(root, "small", scores)
    key = {cell: f"{number:012x}" for number, cell in enumerate(scores)}
    judged = Entry(Event.JUDGED, "small", 500, {key[cell]: (cell, (0, 1, 2)) for cell in scores}, QUESTION)
    pilot = Entry(Event.JUDGED, "pilot", 500, judged.cells, {})
    append_history(connect(root), [pilot], root)
    assert not page_of(root)[0].retried
    append_history(connect(root), [judged], root)
    selection, cells, paragraph = page_of(root)
    assert selection.retried == (("narrow", "dense", 1),) and "changed after this study was judged" in paragraph
    assert cells["narrow"].verdict is not None and cells["narrow"].verdict.kind is VerdictKind.BETTER
    assert corrections(cells["narrow"]) == [VerdictKind.INCONCLUSIVE]


def test_an_upgrade_of_attnlab_is_no_change_of_the_configuration(root: Path) -> None:
    scores = {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY}
    store_study(root, "small", scores)
    key = {cell: f"{number:012x}" for number, cell in enumerate(scores)}
    judged = Entry(Event.JUDGED, "small", 500, {key[cell]: (cell, (0, 1, 2)) for cell in scores}, QUESTION, "0.7.0")
    append_history(connect(root), [judged], root)
    assert not page_of(root)[0].retried


def judged(root: Path, *tables: tuple[str, dict[str, float]]) -> tuple[Selection, dict[str, CellSummary], str]:
    """Judge studies one after another, given their names and the values of their bases; return the page of the last one."""
    for number, (study, base) in enumerate(tables):
        store_study(root, study, SCORES, start=1_000 * (number + 1), base=base)
        page = page_of(root, study)
    return page


def test_a_smoke_run_is_named_and_costs_nothing(root: Path) -> None:
    """A training ten times as long asks another question; one that is a little longer does not."""
    selection, cells, paragraph = judged(root, ("small", {"steps": 10, "lr": 0.1}), ("small", {"steps": 500, "lr": 0.2}))
    assert (selection.smoke, selection.retried) == ((("narrow", "dense", 1),), ())
    assert not corrections(cells["narrow"]) and "a tenth of this training" in paragraph
    selection, cells, _ = judged(root, ("small", {"steps": 900, "lr": 0.2}))
    assert (selection.smoke, selection.retried) == ((("narrow", "dense", 1),), (("narrow", "dense", 1),))
    assert corrections(cells["narrow"]) == [VerdictKind.INCONCLUSIVE]


def test_a_shorter_training_after_a_longer_one_is_another_try(root: Path) -> None:
    selection, cells, _ = judged(root, ("small", {"steps": 500}), ("small", {"steps": 10}))
    assert selection.retried and not selection.smoke and corrections(cells["narrow"]) == [VerdictKind.INCONCLUSIVE]


def test_the_same_comparison_under_another_name_with_another_base_is_named(root: Path) -> None:
    selection, cells, paragraph = judged(root, ("pilot", {"lr": 0.1}), ("small", {"lr": 0.2}))
    assert selection.elsewhere == (("pilot", "narrow", "dense"),) and "(in the study pilot)" in paragraph
    assert not corrections(cells["narrow"]), "it may have been another question"
    assert not page_of(root, "pilot")[0].elsewhere, "it was judged first"


@pytest.mark.parametrize("pilot", [{"steps": 10}, {"steps": 90_000}])
def test_another_length_of_training_is_another_question(root: Path, pilot: dict[str, float]) -> None:
    assert not judged(root, ("pilot", pilot), ("small", {"steps": 500}))[0].elsewhere


def test_a_page_on_several_studies_names_those_that_it_leaves_out(root: Path, tmp_path: Path) -> None:
    judged(root, ("one", {"lr": 0.1}), ("two", {"lr": 0.2}), ("three", {"lr": 0.3}))
    store_study(root, "other", {"dense": SCORES["dense"], "wide": LUCKY}, start=9_000)
    page_of(root, "other")
    page = report(["one", "three"], root, tmp_path / "some") / "README.md"
    assert "not on this page: two." in page.read_text()
    page = report(["one", "two", "three"], root, tmp_path / "all") / "README.md"
    assert "not on this page" not in page.read_text()


# ---------------------------------------------------------------- a part of a study


def test_all_is_not_said_of_a_part(root: Path) -> None:
    scores = {"dense": some(DENSE, 0, 1, 2), "narrow": LUCKY}
    store_study(root, "whole", scores)
    assert "missing" not in page_of(root, "whole")[2]
    planned = {"dense": [0, 1, 2], "narrow": [0, 1, 2, 3], "wide": [0, 1, 2]}
    store_study(root, "small", scores, planned=planned)
    selection, _, paragraph = page_of(root)
    assert dict(selection.not_run) == {"narrow": (3,), "wide": (0, 1, 2)}
    assert "not run" in paragraph and "wide" in paragraph


def test_a_merge_of_bundles_without_the_losers_is_a_part(root: Path, tmp_path: Path) -> None:
    """Each bundle knows of more than it has: of runs that were withdrawn, and of seeds that its study planned."""
    store_study(root, "small", {"dense": DENSE, "narrow": NARROW}, planned={"dense": [*range(7)], "narrow": [*range(7)]})
    page_of(root)
    with withdraw("small", ["narrow s3", "narrow s4", "narrow s5"], root=root) as runs:
        runs.delete()
    bundle = write_bundle("small", tmp_path / "small.zip", root=root)
    merge([bundle.path], root=copy_store(tmp_path / "merged"))
    selection, cells, paragraph = page_of(tmp_path / "merged")
    assert {(run["cell"], run["seed"]) for run in selection.left_out} == {("narrow", seed) for seed in (3, 4, 5)}
    assert corrections(cells["narrow"]) == [VerdictKind.INCONCLUSIVE]
    assert dict(selection.not_run) == {"dense": (6,), "narrow": (3, 4, 5, 6)}


PROGRAM = """\
import json, sys

how, seed = sys.argv[1], int(sys.argv[2])
score = 1 + 0.01 * seed - 0.1 * (how == "gated") + 0.001 * (seed * (3 if how == "gated" else 1) % 4)
print(json.dumps({"score": score}))
"""


def test_the_terminal_and_the_page_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(copy_store(tmp_path / "runs")))
    (tmp_path / "train.py").write_text(PROGRAM)
    study = {"study": "whole", "command": "python train.py {how} {seed}", "grid": {"how": ["plain", "gated", "wide"]}}
    study |= {"seeds": [0, 1, 2], "baseline": {"how": "plain"}, "metric": {"name": "score", "direction": "min"}}
    (tmp_path / "study.yaml").write_text(to_yaml(study))

    assert main(["run", "--only", "how=plain,gated"]) == 0
    page = (tmp_path / "reports/whole/README.md").read_text()
    for text in (capsys.readouterr().out, page):
        assert "Planned and not run: wide (seeds 0, 1, 2)" in text
    assert main(["run"]) == 0
    page = (tmp_path / "reports/whole/README.md").read_text()
    assert "warning" not in capsys.readouterr().out and "not run" not in page, "the whole study, resumed"
    assert main(["plan", "--set", "study=renamed"]) == 0
    assert "further look" not in capsys.readouterr().out, "a table of the same seeds"
    assert main(["plan", "--set", "study=renamed", "--set", "seeds=[0,1,2,3]"]) == 0
    assert "judged in whole at 3 seeds" in " ".join(capsys.readouterr().out.split())
    assert main(["run", "--set", "study=chosen", "--set", "seeds=[0,2]"]) == 0
    page = (tmp_path / "reports/chosen/README.md").read_text()
    for text in (capsys.readouterr().out, page):
        assert "gated (seed 1, of the study whole)" in text and "not run: plain, gated, wide (seed 1)" not in text


# ---------------------------------------------------------------- the history


def test_the_history_survives_its_deletion_and_large_studies(root: Path) -> None:
    cells = {f"{i:012x}": (f"cell with a long name {i * 7919 % 1000}", tuple(range(i % 7))) for i in range(2_000)}
    entry = Entry(Event.PLANNED, "s", 5, cells)
    client = connect(root)
    append_history(client, [entry], root)
    client.delete_experiment(client.get_experiment_by_name(EXPERIMENT).experiment_id)  # type: ignore[union-attr]
    assert read_history(client) == [entry]
    later: Any = Entry(Event.PLANNED, "s", 9, cells)
    append_history(client, [later], root)
    assert read_history(client) == [later], "an equal entry is not stored twice"
