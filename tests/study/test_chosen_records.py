"""Tests that a choice of runs, seeds or questions is one line on the page, and that an honest study has none."""

from pathlib import Path

import pytest

from attnlab.cli.main import main
from attnlab.extras.sharing.bundle import write_bundle
from attnlab.extras.sharing.merge import merge
from attnlab.report.conclusion import describe_selection
from attnlab.report.write import write_report as report
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.stats.selection import Selection
from attnlab.stats.sequential import Looks
from attnlab.study.comparison import load_info
from attnlab.study.looks import record_look, recorded_looks
from attnlab.study.withdrawal import withdraw
from attnlab.tracking.client import connect, snapshot
from attnlab.tracking.record import RETRIED
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tags import to_yaml
from tests.support.empty_store import copy_store
from tests.support.stored_studies import add_runs, ask, record_ids, store_study

DENSE = {seed: 2.0 + 0.01 * seed for seed in range(6)}
LUCKY = {0: 1.95, 1: 1.97, 2: 1.965}  # better than dense by 0.05, 0.04 and 0.055
NARROW = LUCKY | {3: 2.10, 4: 2.13, 5: 2.02}
SCORES = {"dense": {seed: DENSE[seed] for seed in range(3)}, "narrow": LUCKY}


def selection_of(root: Path, study: str = "small") -> Selection:
    return load_info(study, root)[0].selection


def looked_at(root: Path, study: str = "small") -> dict[str, CellSummary]:
    """Look at a study; return its cells."""
    with snapshot():
        runs = load_runs(study, root)
        spec = load_info(study, root)[0].spec
        records = [{str(name): value for name, value in run.items()} for run in runs.to_dict("records")]
        history = record_look(spec, summarize_cells(records, spec), recorded_looks(study, root), root)
    return {cell.name: cell for cell in summarize_cells(records, history.apply(spec))}


# ---------------------------------------------------------------- withdrawn, tried again


@pytest.mark.parametrize("in_mlflow", [False, True])
def test_deleted_runs_are_one_line_after_the_answer(root: Path, in_mlflow: bool) -> None:
    store_study(root, "small", {"dense": DENSE, "narrow": NARROW})
    if in_mlflow:
        for seed in (3, 4, 5):
            connect(root).delete_run(record_ids(root, "small", "narrow")[seed])
    else:
        with withdraw("small", ["narrow s3", "narrow s4", "narrow s5"], root=root) as runs:
            runs.delete()
    assert selection_of(root).withdrawn == (("narrow", (3, 4, 5)),)
    page = (report("small", root, root.parent / "page") / "README.md").read_text()
    (result,) = [line for line in page.splitlines() if line.startswith("**Result.**")]
    assert "seeds 3, 4, 5" not in result and page.count("narrow (seeds 3, 4, 5)") == 1


def test_redone_and_retried_runs_are_named_and_replaced_attempts_are_not(root: Path) -> None:
    store_study(root, "small", SCORES)
    with withdraw("small", ["narrow s2"], root=root) as runs:
        runs.redo()
    add_runs(root, "small", {"narrow": {2: 1.9}}, start=2_000)
    client, old = connect(root), record_ids(root, "small", "narrow")[0]
    add_runs(root, "small", {"narrow": {0: 1.9}}, start=3_000)
    client.set_tag(old, "attnlab.replaced", "yes")  # as attnlab replaces attempts without a result, and doubles
    client.delete_run(old)
    assert selection_of(root).withdrawn == (("narrow", (2,)),)
    client.restore_run(old)
    client.set_tag(old, "attnlab.replaced", RETRIED)
    client.delete_run(old)
    assert selection_of(root).withdrawn == (("narrow", (0, 2)),)


def test_a_result_after_failed_attempts_is_named(root: Path) -> None:
    """A program that crashes where its score is bad is better than itself, if it is retried until it suits."""
    store_study(root, "small", SCORES)
    assert selection_of(root) == Selection()
    for seed in (1, 2):
        connect(root).set_tag(record_ids(root, "small", "narrow")[seed], "attnlab.failures", "2")
    assert selection_of(root) == Selection(retried=(("narrow", (1, 2)),))


# ---------------------------------------------------------------- left out, not run


def test_seeds_that_the_plan_no_longer_contains_are_named(root: Path) -> None:
    store_study(root, "small", {"dense": DENSE, "narrow": NARROW})
    store_study(root, "small", SCORES, start=5_000)
    assert selection_of(root).left_out == (("dense", (3, 4, 5)), ("narrow", (3, 4, 5)))


def test_a_cell_that_the_plan_no_longer_contains_is_named(root: Path) -> None:
    store_study(root, "small", SCORES | {"wide": LUCKY})
    store_study(root, "small", SCORES, start=5_000)
    assert selection_of(root).left_out == (("wide", (0, 1, 2)),)


def test_what_is_planned_and_not_run_is_named(root: Path) -> None:
    store_study(root, "small", SCORES, planned={"dense": [0, 1, 2], "narrow": [0, 1, 2, 3], "wide": [0]})
    selection = selection_of(root)
    assert selection == Selection(not_run=(("narrow", (3,)), ("wide", (0,))))
    assert describe_selection(selection) == ["Planned and not run: narrow (seed 3); wide (seed 0)."]


PROGRAM = """\
import json, sys
how, seed = sys.argv[1:]
print(json.dumps({"score": int(seed) * (3 if how == "gated" else 1) % 4}))
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
    for words, expected in (
        (["--only", "how=plain,gated"], "Planned and not run: wide (seeds 0, 1, 2)"),
        ([], ""),
        (["--set", "seeds=[0,2]"], "gated, plain, wide (seed 1)"),
    ):
        assert main(["run", *words]) == 0
        texts = [capsys.readouterr().out, (tmp_path / "runs/reports/whole/README.md").read_text()]
        assert main(["verdict", "whole"]) == 0
        for text in (*texts, capsys.readouterr().out):
            assert expected in text and ("not run" in text or "left out" in text) == bool(expected)


# ---------------------------------------------------------------- questions


def test_a_question_that_differs_from_the_first_one_is_named(root: Path) -> None:
    store_study(root, "small", SCORES)
    ask(root, "small", {"margin": 0.001}, {"margin": 0.5})
    assert selection_of(root).changed == "margin 0.001 (now 0.5)"
    ask(root, "small", {"margin": 0.001}, {"margin": 0.5, "baselines": [{"variant": "narrow"}]})
    assert selection_of(root).changed == "baseline variant dense (now variant narrow), margin 0.001 (now 0.5)"


def test_a_margin_that_is_set_back_is_the_stated_one(root: Path) -> None:
    store_study(root, "small", SCORES)
    ask(root, "small", {"margin": 0.001}, {"margin": 0.5}, {"margin": 0.001})
    assert selection_of(root) == Selection()


# ---------------------------------------------------------------- looks, bundles


@pytest.mark.parametrize("redo", [False, True])
def test_looks_count_after_all_runs_were_withdrawn(root: Path, redo: bool) -> None:
    store_study(root, "small", SCORES)
    looked_at(root)
    with withdraw("small", ["dense", "narrow"], root=root) as runs:
        runs.redo() if redo else runs.delete()
    add_runs(root, "small", {"dense": DENSE, "narrow": NARROW}, start=200_000_000_000_000)
    difference = looked_at(root)["narrow"].difference
    assert difference is not None and difference.looks == Looks(3, 3, (6,))


def test_a_bundle_has_the_plan_the_looks_and_the_withdrawn_runs(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the runs' program used no file
    store_study(root, "small", {"dense": DENSE, "narrow": NARROW}, planned={"dense": [*DENSE], "narrow": [*NARROW, 6]})
    looked_at(root)
    with withdraw("small", ["narrow s5"], root=root) as runs:
        runs.delete()
    write_bundle("small", tmp_path / "small.zip", root=root)
    merged = copy_store(tmp_path / "merged")
    merge([tmp_path / "small.zip"], root=merged)
    for folder in (root, merged):
        selection = selection_of(folder)
        assert selection.withdrawn == (("narrow", (5,)),) and selection.not_run == (("narrow", (6,)),)
        assert load_info("small", folder)[0].spec.looks == Looks(6, 6)
