"""Tests of a study with a control, from its YAML to its page."""

import shutil
from pathlib import Path

import pytest

from attnlab import load_runs
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.report.page import make_page
from attnlab.stats.verdict import Sensitivity, VerdictKind
from attnlab.tracking.relocation import relocate_artifacts
from attnlab.tracking.runs import load_curves
from tests.study.test_study import study
from tests.support.empty_store import copy_store
from tests.tracking.test_questions import run_study

GRID = {"variant": ["dense", "no_wo", "narrow", "wide"]}
SEEDS = [0, 1, 2, 3, 4, 5]
CONTROLLED = {"grid": GRID, "seeds": SEEDS, "baseline": {"variant": "dense"}, "margin": 0.5}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with the study, trained without a control."""
    folder = copy_store(tmp_path_factory.mktemp("control") / "runs")
    run_study(folder, "settling", **CONTROLLED)
    return folder


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    """A copy of the folder, whose study then only has to be judged."""
    folder = Path(shutil.copytree(finished, tmp_path / "runs"))
    relocate_artifacts(folder, writable=True)
    return folder


@pytest.mark.parametrize(("control", "shown"), [("no_wo", Sensitivity.SHOWN), ("wide", Sensitivity.NOT_SHOWN)])
def test_terminal_and_page_agree_on_what_the_control_shows(root: Path, control: str, shown: Sensitivity) -> None:
    table, source = run_study(root, "settling", **CONTROLLED, control={"variant": control})
    assert source.spec.control == {"variant": control}
    verdicts = {cell.name: cell.verdict for cell in table}
    assert verdicts["narrow"] is not None and verdicts["narrow"].kind is VerdictKind.EQUIVALENT
    assert verdicts["narrow"].sensitivity is shown
    page = make_page(source, runs=load_runs("small", root), curves=load_curves("small", root))
    assert {cell.name: cell.verdict for cell in page.cells} == verdicts
    texts = [text for row in page.table.rows for text in row.cells if row.cells[0] == "narrow"]
    assert any("but the control was not found worse" in text for text in texts) == (shown is Sensitivity.NOT_SHOWN)


def test_a_control_that_is_named_after_results_is_a_change_of_the_comparison(root: Path) -> None:
    _, source = run_study(root, "settling", **CONTROLLED, control={"variant": "no_wo"})
    assert source.selection.changed == "control none (now variant no_wo)"
    _, source = run_study(root, "settling", **CONTROLLED)
    assert source.selection.changed == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"control": "none"}, "expected the axes of one cell"),
        ({"control": {}}, "expected the axes of one cell"),
        ({"control": [{"variant": "no_wo"}]}, "expected the axes of one cell"),
        ({"control": {"position": "none"}}, "is not an axis of the grid"),
        ({"control": {"variant": "none"}}, "the control is trained as a cell of the grid"),
        ({"control": {"variant": "dense"}}, "expected another value than the baseline"),
        ({"control": {"variant": "no_wo"}, "baseline": None}, "expected 'baseline'"),
        ({"control": {"variant": "no_wo"}, "baseline": [{"variant": "dense"}, {"variant": "no_wo"}]}, "another value than"),
    ],
)
def test_a_mistake_in_the_control_is_one_line(changes: dict, words: str) -> None:
    with pytest.raises(UserError, match="control") as error:
        read_study({**study(), **CONTROLLED, **changes})
    assert words in str(error.value) and "\n" not in str(error.value)


def test_the_control_is_named_by_its_label() -> None:
    grid = {"variant": ["dense", {"name": "none", "position": "none"}], "train.lr": [1e-3, 1e-2]}
    read = read_study({**study(), **CONTROLLED, "grid": grid, "control": {"variant": "none"}})
    assert read.control == {"variant": "none position=none"}


def test_a_control_that_mixes_nothing_takes_any_position_scheme() -> None:
    grid = {"variant": ["dense", "none"], "position": ["learned", "rotary", "alibi"]}
    base = {**study(), **CONTROLLED, "grid": grid, "control": {"variant": "none"}}
    base["base"] = {key: value for key, value in base["base"].items() if key != "position"}
    planned = plan(base)
    assert [cell.refusal for cell in planned.cells] == [None] * 5 and not any("control" in note for note in planned.notes)
    assert planned.doubles == {"none alibi": "none rotary"}, "no pair of positions that a scheme could act on"


def test_the_plan_notes_a_cell_without_a_control() -> None:
    grid = {"variant": ["dense", "none"], "position": ["learned", "rotary"]}
    base = {**study(), **CONTROLLED, "grid": grid, "control": {"variant": "none"}}
    base["base"] = {key: value for key, value in base["base"].items() if key != "position"}
    skip = [{"where": {"variant": "none", "position": "learned"}, "because": "a test"}]
    notes = [note for note in plan({**base, "skip": skip}).notes if "control" in note]
    assert any("'dense learned' has no control" in note and "not in the grid" in note for note in notes)
