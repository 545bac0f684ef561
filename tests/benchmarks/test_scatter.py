"""Tests of the measured reductions of the scatter of a paired difference."""

import re

import numpy
import pytest

from benchmarks import scatter
from tests.support.paths import REPORTS, ROOT


def made_up(shared: float, early: float, *, comparisons: int = 400) -> list[scatter.Columns]:
    """Return comparisons of three seeds whose runs share a part of their variance, and whose early losses predict the last."""
    random, groups = numpy.random.default_rng(1), []
    for _ in range(comparisons):
        common, cell, baseline, valid, other = random.standard_normal((5, 3))
        cell, baseline = (shared**0.5 * common + (1 - shared) ** 0.5 * own for own in (cell, baseline))
        difference = cell - baseline
        columns = {"cell": cell, "baseline": baseline, "difference": difference, "valid": difference.std() * valid}
        columns |= {
            f"early {share}": early * difference + (1 - early**2) ** 0.5 * difference.std() * other for share in scatter.SHARES
        }
        groups.append({name: column - column.mean() for name, column in columns.items()})
    return groups


def test_pairing_halves_the_variance_of_runs_that_share_half_of_it() -> None:
    assert scatter.pairing_ratio(made_up(0.5, 0.0)) == pytest.approx(2, rel=0.1)
    assert scatter.pairing_ratio(made_up(0.0, 0.0)) == pytest.approx(1, rel=0.1)


def test_early_losses_only_help_if_they_predict_the_difference() -> None:
    assert scatter.early_ratio(made_up(0.5, 0.3), 0.25) == 1
    near = made_up(0.5, 0.999)
    assert scatter.correlation(near, 0.25) > 0.99 and scatter.early_ratio(near, 0.25) > 2.5


def test_the_columns_of_a_committed_report_are_paired_by_seed() -> None:
    groups = list(scatter.paired_columns(REPORTS / "quickstart"))
    assert len(groups) == 6 and all(len(column) == 3 for group in groups for column in group.values())
    assert all(numpy.allclose(group["difference"], group["cell"] - group["baseline"]) for group in groups)
    assert scatter.with_error(groups, scatter.split_ratio).count("±") == 1


def test_the_documented_ratios_are_those_of_the_committed_reports() -> None:
    page = (ROOT / "docs/concepts/pairing.md").read_text(encoding="utf-8")
    printed = [re.findall(r"([\d.]+) ±", line) for line in page.splitlines() if line.startswith("| ") and "±" in line]
    for column, reports in enumerate(scatter.GROUPS.values()):
        groups = [columns for report in reports for columns in scatter.paired_columns(REPORTS / report)]
        expected = [scatter.pairing_ratio(groups), scatter.split_ratio(groups)]
        expected += [scatter.early_ratio(groups, share) for share in (0.25, 0.5, 0.9)]
        assert [row[column] for row in printed] == [f"{ratio:.2f}" for ratio in expected]
