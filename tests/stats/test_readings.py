"""Tests of sweeps whose two readings part: the fitted optimum, and the best rate tried."""

import numpy
import pytest

from attnlab.extras.claims.ruling import gather
from attnlab.report.sweep import sweep_warnings
from attnlab.report.wording import describe_verdict
from attnlab.stats.compare import summarize_cells
from attnlab.stats.paired import NoTest, correct
from attnlab.stats.paired import difference as paired_difference
from attnlab.stats.sweep import SweptRuns, fit_curves, readings_part
from attnlab.stats.verdict import Reason, VerdictKind
from tests.support.specs import changed
from tests.support.sweeps import PATH, SPEC


def records(last: float, *, worse: float = 0.0) -> list[dict]:
    """Return runs at four rates a factor of 2 apart of two cells, of which one is worse, and by more at the last rate."""
    random = numpy.random.RandomState(0)
    rows = []
    for variant in ("dense", "no_wo"):
        for i, rate in enumerate((0.0025, 0.005, 0.01, 0.02)):
            for seed in range(7):
                excess = (worse + last * (i == 3)) * (variant == "no_wo")
                value = 2 + 0.46 * (0.301 * (i - 1.7)) ** 2 + excess + random.normal(0, 0.004)
                fields = {"variant": variant, "cell": variant, "seed": seed, "state": "completed", "phase": "sweep"}
                rows.append({**fields, "params": {PATH: rate}, "bits_per_byte": value, "valid_bits_per_byte": value})
    return rows


@pytest.mark.parametrize(("last", "worse", "margin"), [(0.3, 0.0, None), (0.3, 0.015, 0.01)])
def test_a_cell_that_differs_at_the_last_rate_has_no_verdict(last: float, worse: float, margin: float) -> None:
    """By the fit alone, equal cells would be different, and a loss beyond the margin equivalent."""
    spec = changed(SPEC, margin=margin)
    cells = summarize_cells(records(last, worse=worse), spec)
    (cell,) = [cell for cell in cells if cell.difference]
    assert cell.difference is not None and cell.difference.no_test is NoTest.READINGS
    assert cell.verdict is not None and (cell.verdict.kind, cell.verdict.reason) == (VerdictKind.INCONCLUSIVE, Reason.READINGS)
    assert "fitted optima" in describe_verdict(cell.verdict) and len(sweep_warnings(cells, PATH)) == 1


def test_readings_that_agree_keep_the_verdict() -> None:
    cells = summarize_cells(records(0.0, worse=0.03), SPEC)
    assert [cell.verdict.kind for cell in cells if cell.difference and cell.verdict] == [VerdictKind.WORSE]
    assert sweep_warnings(cells, PATH) == []


def test_the_court_gives_the_reason() -> None:
    from attnlab.config.question import ClaimConfig

    claim = ClaimConfig(sentence="a", source="b", cell={"variant": "no_wo"}, direction="equivalent")
    (evidence,) = gather(claim, summarize_cells(records(0.3, worse=0.015), changed(SPEC, margin=0.01)), margin=0.01)
    assert evidence.outcome == "inconclusive" and evidence.reason == NoTest.READINGS.value


@pytest.mark.parametrize(("excess", "worse"), [(0.1, 0.0), (0.3, 0.0), (0.3, 0.015)])
def test_both_readings_together_keep_the_level_where_the_fit_alone_does_not(excess: float, worse: float) -> None:
    """Cells that differ at the last rate only; a verdict of better, or of equivalent where more than the margin is lost."""
    random = numpy.random.RandomState(1)
    alone = both = 0
    for _ in range(120):
        distances = 0.301 * (numpy.arange(4) - 1.5 - random.uniform(-0.5, 0.5))
        curves = []
        for of_cell in (0.0, 1.0):
            losses = 0.46 * distances**2 + of_cell * (worse + excess * (numpy.arange(4) == 3))
            runs = losses[:, None] + 0.004 * random.standard_normal((4, 7))
            values = {0.0025 * 2**i: dict(enumerate(row)) for i, row in enumerate(runs.tolist())}
            curves.append(SweptRuns(values, {rate: sum(row.values()) / 7 for rate, row in values.items()}))
        base, cell = fit_curves(dict(zip("ab", curves, strict=True)), direction="min").values()
        (difference,) = correct([paired_difference(cell.values, base.values, margin=0.01)])
        assert difference is not None
        wrong = difference.conclusion == "lower" or (worse > 0.01 and difference.conclusion == "equivalent")
        alone += wrong
        both += wrong and not readings_part(difference, cell, base)
    assert both <= 0.1 * 120 < 0.4 * 120 < alone
