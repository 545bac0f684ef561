"""Tests that a study's question (metric, direction, baseline, margin) is read back from its record, in its latest form."""

import statistics
from pathlib import Path
from typing import Any

from attnlab import load_runs
from attnlab._util.run_state import RunState
from attnlab.config.question import EstimandConfig
from attnlab.planning.plan import plan
from attnlab.report.page import make_page
from attnlab.report.write import write_report as report
from attnlab.stats.compare import CellSummary
from attnlab.study.comparison import StudyInfo, comparison_of, load_info, to_json
from attnlab.study.run import run
from attnlab.tracking.runs import load_curves
from attnlab.tracking.tracker import Tracker
from tests.study.test_study import QUIET, study
from tests.support.compared import recorded
from tests.support.studies import STUDY, write

TASK = """
from attnlab.tasks.pydocs import PyDocs

class Recall(PyDocs):
    metric, direction = "exact_match", "max"
"""


def run_study(root: Path, fate: str, **changes: Any) -> tuple[list[CellSummary], StudyInfo]:
    """Run the study; return the rows of the table that `attnlab run` prints, and the study's information for its report."""
    run({**study(), **changes}, root=root, display=QUIET, train=f"tests.support.study_fakes:{fate}")
    source, compared = recorded("small", root)
    return [*compared.cells], source


def test_the_direction_is_that_of_the_study_s_own_task(root: Path, tmp_path: Path) -> None:
    (tmp_path / "recall.py").write_text(TASK)
    base = {**study()["base"], "task": {"name": f"{tmp_path / 'recall.py'}:Recall", "length": 16}}
    table, source = run_study(root, "exact_match", base=base, seeds=[0, 1, 2], baseline={"variant": "dense"})
    assert (source.spec.metric, source.spec.direction) == ("exact_match", "max")
    assert table[1].verdict is not None and table[1].verdict.kind == "better"

    (tmp_path / "recall.py").unlink()  # the question is known without the study file
    assert load_info("small", root)[0].spec == source.spec


def test_the_page_answers_what_was_asked_last_and_says_what_was_asked_before(root: Path, tmp_path: Path) -> None:
    first, source = run_study(root, "settling", baseline={"variant": "dense"}, margin=0.01)
    assert source.selection.changed == "" and first[1].verdict is not None and first[1].verdict.kind == "worse"

    table, source = run_study(root, "settling", baseline={"variant": "no_wo"}, margin=5.0)
    spec = source.spec
    assert (spec.baseline, spec.margin) == ({"variant": "no_wo"}, 5.0)
    change = "baseline variant dense (now variant no_wo), margin 0.01 (now 5)"
    assert source.selection.changed == change
    page = make_page(source, runs=load_runs("small", root), curves=load_curves("small", root))
    assert [row.verdict for row in page.cells] == [row.verdict for row in table]
    assert table[0].verdict is not None
    assert table[0].verdict.kind == "better" and table[0].verdict.within_margin
    assert change not in page.summary.text and any(change in line for line in page.warnings)

    _, source = run_study(root, "settling", baseline={"variant": "dense"}, margin=0.01)
    assert source.selection.changed == "", "the one stated first"
    assert "stated first" not in (report("small", root, out=tmp_path / "page") / "README.md").read_text()


def test_terminal_page_and_files_compare_by_the_recorded_estimand(root: Path) -> None:
    options = {"baseline": {"variant": "dense"}, "seeds": [0, 1, 2]}
    means, source = run_study(root, "settling", **options)
    assert source.spec.estimator.is_mean
    middle = statistics.median(value for cell in means for value in cell.values.values())
    table, source = run_study(root, "settling", **options, estimand={"name": "solve_rate", "threshold": middle})
    assert source.spec.estimand == EstimandConfig(name="solve_rate", threshold=middle)
    assert f"estimand mean (now solve_rate at {middle:g})" in source.selection.changed
    page = make_page(source, runs=load_runs("small", root), curves=load_curves("small", root))
    fields = [(cell.estimate, cell.difference, cell.verdict) for cell in table]
    assert [(cell.estimate, cell.difference, cell.verdict) for cell in page.cells] == fields
    assert fields[0][0] is not None and 0 < sum(cell.estimate.solved or 0 for cell in table if cell.estimate) < 6
    _, source = run_study(root, "settling", **options)
    assert source.selection.changed == ""


def test_the_yaml_of_the_page_is_that_of_the_newest_run(root: Path, tmp_path: Path) -> None:
    for seed, comment in enumerate(("# as it was", "# as it is")):
        made = plan(write(tmp_path, f"{comment}\n{STUDY}"))
        with Tracker(made, root) as tracker:
            tracker.log_study(to_json(comparison_of(made)))
            tracker.finish(tracker.start(made.runs[seed]), RunState.COMPLETED, summary={"bits_per_byte": 3.0})
    assert load_info("s", root)[0].yaml.startswith("# as it is\n")


def test_a_study_without_results_may_change_its_question(root: Path) -> None:
    failing = {"grid": {"variant": ["wide", "no_wo"]}, "baseline": {"variant": "wide"}}
    run_study(root, "by_variant", **failing, margin=0.01)
    assert run_study(root, "settling", **failing, margin=0.02)[1].selection.changed == ""
