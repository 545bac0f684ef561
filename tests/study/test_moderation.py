"""Tests of moderated t-tests in a study, from its YAML to its page."""

from pathlib import Path

import pytest

from attnlab import load_runs
from attnlab.cli._results import print_results
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.report.page import make_page
from attnlab.report.stored import load
from attnlab.stats.compare import summarize_cells
from attnlab.stats.verdict import VerdictKind
from attnlab.study.run import run
from attnlab.tracking.runs import load_curves
from tests.study.test_study import QUIET, study
from tests.support.compared import recorded
from tests.support.paths import REPORTS
from tests.tracking.test_questions import run_study

TABLE = {
    "grid": {"variant": ["dense", "no_wo", "narrow", "wide"]},
    "seeds": [0, 1, 2],
    "baseline": {"variant": "dense"},
    "margin": 0.5,
}


@pytest.mark.parametrize("moderate", [True, False])
def test_terminal_page_and_loaded_runs_agree(root: Path, moderate: bool, capsys: pytest.CaptureFixture[str]) -> None:
    config = {**study(), **TABLE, "moderate": moderate}
    run(config, root=root, display=QUIET, train="tests.support.study_fakes:settling_evenly")
    info, compared = recorded("small", root)
    print_results(info, compared)
    text = " ".join(capsys.readouterr().out.split())
    runs = load_runs("small", root)
    page = make_page(info, runs=runs, curves=load_curves("small", root))
    tables = [
        compared.cells,
        summarize_cells(runs.to_dict("records"), info.spec),  # type: ignore[arg-type]
        page.cells,
    ]
    terminal, loaded, shown = ([(cell.name, cell.difference, cell.verdict) for cell in cells] for cells in tables)
    assert terminal == loaded == shown
    for _, difference, _ in terminal[1:]:
        assert difference is not None and difference.interval.half_width is not None
        assert (difference.interval.prior is not None) is moderate
        assert f"± {difference.interval.format_half_width()}" in text
    sentences = [note for note in page.notes if "moderated t-test" in note]
    assert len(sentences) == moderate


def test_turning_it_off_after_results_is_a_change_of_the_comparison(root: Path) -> None:
    assert not run_study(root, "settling", **TABLE)[1].selection.changed
    _, source = run_study(root, "settling", **TABLE, moderate=False)
    assert source.selection.changed == "moderate true (now false)" and not source.spec.moderate
    _, source = run_study(root, "settling", **TABLE)
    assert source.selection.changed == "" and source.spec.moderate


def test_a_mistake_is_one_line() -> None:
    with pytest.raises(UserError, match="moderate") as error:
        read_study({**study(), **TABLE, "moderate": "often"})
    assert "\n" not in str(error.value)


def test_the_quickstart_reaches_every_verdict_with_three_seeds() -> None:
    page = make_page(**load(REPORTS / "quickstart"))
    verdicts = {cell.name: cell.verdict.kind for cell in page.cells if cell.verdict}
    assert page.info.spec.moderate, "a page that was stored before the field existed has the default"
    assert {cell.difference.interval.n for cell in page.cells if cell.difference} == {3}
    assert verdicts["no_wo"] is VerdictKind.EQUIVALENT
    assert {verdicts[name] for name in ("basic", "narrow")} == {VerdictKind.WORSE}
    assert {verdicts[name] for name in ("fixed_sparse", "strided_sparse", "wide")} == {VerdictKind.BETTER}
