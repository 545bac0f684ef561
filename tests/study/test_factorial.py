"""A factorial study from its file to its table, its runs and its page."""

from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.report.write import write_report as report
from attnlab.stats.factorial import estimate_effects
from attnlab.study.adaptive import run_until_conclusive
from attnlab.study.run import run
from attnlab.tracking.runs import load_runs
from tests.config.test_factors import FACTORS
from tests.study.test_study import QUIET
from tests.support.compared import recorded
from tests.support.studies import write

STUDY = FACTORS.replace("design: full", "design: fractional").replace(
    "  train:", "  evaluate: {valid_limit: 300, test_limit: 300}\n  machine: {device: cpu, threads: 1}\n  train:"
)


def test_a_half_fraction_from_yaml_to_table(root: Path, tmp_path: Path) -> None:
    path = write(tmp_path, STUDY)
    options = {"root": root, "display": QUIET, "train": "tests.support.study_fakes:settling"}
    result = run(path, reference_scores=False, **options)
    assert result.ok and len(result.rows) == 8
    info, compared = recorded(result.plan.study.study, root)
    effects = estimate_effects(compared.cells, info.spec)
    assert effects is not None and [effect.name for effect in effects.main] == [
        "no_wo",
        "rotary instead of learned",
        "ff_mult=2 instead of 4",
    ]

    runs = load_runs("parts", root)
    columns = runs[["factor.no_wo", "factor.position", "factor.model.ff_mult"]]
    assert set(columns.to_numpy().ravel()) == {0, 1} and columns.sum().tolist() == [4, 4, 4]
    for i, effect in enumerate(effects.main):
        on = columns.iloc[:, i] == 1
        difference = runs[on]["bits_per_byte"].mean() - runs[~on]["bits_per_byte"].mean()
        assert effect.difference.interval.mean == pytest.approx(difference)

    folder = report("parts", root=root, out=tmp_path / "page")
    text = (folder / "README.md").read_text()
    assert "## Effects" in text and "no_wo (+ rotary × ff_mult=2)" in text
    again = run(path, reference_scores=False, **options)
    assert [row.summary for row in again.rows] == [row.summary for row in result.rows], "finished runs are not repeated"


def test_seeds_are_not_added_to_some_cells_of_a_design(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected no 'factors'"):
        run_until_conclusive(plan(write(tmp_path, STUDY)), run=run, root=tmp_path / "runs")
