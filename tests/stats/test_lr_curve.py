"""Curves over a swept learning rate: optima, verdicts at the optima, and cells without one."""

import math
from typing import Any

import numpy
import pytest
from scipy import stats

from attnlab.report.sweep import sweep_warnings
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.stats.sweep import CurveProblem, LearningRateCurve, difference_at_best
from attnlab.stats.verdict import Reason, VerdictKind
from tests.support.specs import changed
from tests.support.sweeps import PATH, RATES, SPEC, sweep_record, sweep_records

WIDE = tuple(10 ** (-3.5 + i / 2) for i in range(5))


def summarize(records: list, spec=SPEC) -> dict[str, Any]:
    """Return the cells by name; not typed, because most fields of a summary are optional."""
    return {cell.name: cell for cell in summarize_cells(records, spec)}


def curve_of(cell: CellSummary) -> Any:
    assert isinstance(cell.curve, LearningRateCurve)
    return cell.curve


def verdict_of(cell: CellSummary) -> tuple[VerdictKind, Reason | None]:
    assert cell.verdict is not None
    return cell.verdict.kind, cell.verdict.reason


@pytest.mark.parametrize("rates", [RATES, WIDE])
def test_optima_of_noiseless_curves_are_exact(rates):
    cells = summarize(sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1)}, rates=rates, noise=1e-9))
    for name, rate, loss in (("dense", 3e-3, 2.0), ("no_wo", 4e-3, 2.1)):
        curve = curve_of(cells[name])
        assert curve.optimum is not None and curve.problem is None
        assert 10**curve.optimum.mean == pytest.approx(rate, rel=1e-6)
        assert cells[name].value.mean == pytest.approx(loss, abs=1e-7)
        assert curve.at(rate * 10) == pytest.approx(loss + 0.5, abs=1e-6)


@pytest.mark.parametrize("rates", [RATES, WIDE])
def test_a_curve_passes_through_the_means_and_a_seed_contributes_its_polynomial_at_the_optimum(rates):
    """Lagrange's formula gives the polynomials; no fixed point of a dense grid is below the optimum."""
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1)}, rates=rates, noise=0.02, lopsidedness=1.0)
    cells = summarize(records)
    x = numpy.log10(rates)
    for name, cell in cells.items():
        table = numpy.array([[r["bits_per_byte"] for r in records if (r["cell"], r[PATH]) == (name, rate)] for rate in rates])
        curve = curve_of(cell)
        assert [curve.at(rate) for rate in rates] == pytest.approx(table.mean(axis=1), abs=1e-9)
        assert [*cell.values.values()] == pytest.approx(lagrange(x, curve.optimum.mean) @ table, abs=1e-9)
        lowest = min(float(lagrange(x, at) @ table.mean(axis=1)) for at in numpy.linspace(x[0], x[-1], 2001))
        assert lowest - 1e-5 < cell.value.mean <= lowest


def lagrange(x, at):
    """Return the weights of the values at `x` in the interpolating polynomial at a position."""
    factors = [[(at - other) / (own - other) for other in x if other != own] for own in x]
    return numpy.prod(factors, axis=1)


@pytest.mark.parametrize("rates", [RATES, WIDE])
def test_parabolas_without_noise_have_exact_optima(rates):
    """Their higher coefficients are rounding errors."""
    losses = {rate: 0.5 * math.log10(rate / 2e-3) ** 2 for rate in rates}
    records = [sweep_record("dense", rate, seed, 2 + seed / 100 + loss) for rate, loss in losses.items() for seed in (0, 1)]
    cell = summarize(records)["dense"]
    assert cell.value.mean == pytest.approx(2.005, abs=1e-12)
    assert 10**cell.curve.optimum.mean == pytest.approx(2e-3, rel=1e-9)


def test_four_rates_by_hand():
    """The cubic through 4, 1, 1, 7 at -2, -1, 0, 1."""
    rates, losses = (0.01, 0.1, 1.0, 10.0), (4.0, 1.0, 1.0, 7.0)
    records = [
        sweep_record("dense", rate, seed, loss + seed) for rate, loss in zip(rates, losses, strict=True) for seed in (0, 1)
    ]
    curve = curve_of(summarize(records)["dense"])
    # f(-1) = f(0) = 1, so f = 1 + x (x + 1) (a x + b) with f(1) = 1 + 2 (a + b) = 7 and f(-2) = 1 + 2 (b - 2 a) = 4.
    a, b = 0.5, 2.5
    at = (-(a + b) + math.sqrt((a + b) ** 2 - 3 * a * b)) / (3 * a)  # a root of 3 a x^2 + 2 (a + b) x + b
    assert curve.optimum.mean == pytest.approx(at)
    assert curve.values == pytest.approx({0: 1 + at * (at + 1) * (a * at + b), 1: 2 + at * (at + 1) * (a * at + b)})
    assert curve.shape == pytest.approx((3 * a * at + a + b, a))
    assert curve.optimum.sd == pytest.approx(0), "both seeds have their optimum there"


def test_three_rates_have_no_curve():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1)}, rates=RATES[1:])
    cells = summarize(records)
    assert {curve_of(cell).problem for cell in cells.values()} == {CurveProblem.TOO_FEW_VALUES}
    assert verdict_of(cells["no_wo"])[0] is VerdictKind.NO_COMPARISON


@pytest.mark.parametrize(
    ("rates", "fitted"),
    [
        ((1e-4, 2.7e-3, 3e-3, 3.3e-3, 0.1), None),  # a polynomial through these would fall far below all losses
        ((1e-5, 1e-3, 2e-3, 4e-3, 8e-3), (1e-3, 2e-3, 4e-3, 8e-3)),
        ((1e-3, 2e-3, 4e-3, 8e-3, 1.0), (1e-3, 2e-3, 4e-3, 8e-3)),
        ((1e-3, 2e-3, 3e-3, 4e-3, 5e-3), (1e-3, 2e-3, 3e-3, 4e-3, 5e-3)),
    ],
)
def test_unevenly_spaced_rates_have_no_curve_unless_one_lies_apart(rates, fitted):
    curve = curve_of(summarize(sweep_records({"dense": (3e-3, 2.0)}, rates=rates, noise=1e-6))["dense"])
    assert curve.problem is (None if fitted else CurveProblem.UNEVEN)
    assert not fitted or curve.fitted == fitted


def test_the_difference_at_the_best_rates_tried_depends_on_the_grid():
    """The optima lie on a rate and between two; without noise, the best of a grid is worse there by 0.5 x 0.25^2."""
    cells = summarize(sweep_records({"dense": (10**-2.5, 2.0), "no_wo": (10**-2.26, 2.0)}, rates=WIDE, noise=1e-4))
    tried = difference_at_best(curve_of(cells["no_wo"]), curve_of(cells["dense"]))
    assert tried is not None and tried.interval.mean == pytest.approx(0.5 * 0.24**2, abs=1e-3)
    assert abs(cells["no_wo"].difference.interval.mean) < 1e-3


def test_differences_are_those_of_the_optima_and_paired_by_seed():
    cells = summarize(sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1)}))
    dense, no_wo = cells["dense"], cells["no_wo"]
    assert no_wo.difference.interval.mean == pytest.approx(no_wo.value.mean - dense.value.mean)
    expected = stats.ttest_rel(list(no_wo.values.values()), list(dense.values.values())).pvalue
    assert no_wo.difference.p == pytest.approx(expected)
    assert verdict_of(no_wo)[0] is VerdictKind.WORSE


def test_a_metric_to_maximize_has_curves_that_open_downwards():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1)})
    mirrored = [
        r | {"bits_per_byte": 5 - r["bits_per_byte"], "valid_bits_per_byte": 5 - r["valid_bits_per_byte"]} for r in records
    ]
    low, high = summarize(records), summarize(mirrored, changed(SPEC, direction="max"))
    assert high["no_wo"].value.mean == pytest.approx(5 - low["no_wo"].value.mean)
    assert curve_of(high["no_wo"]).optimum.mean == pytest.approx(curve_of(low["no_wo"]).optimum.mean)
    assert verdict_of(high["no_wo"]) == verdict_of(low["no_wo"])
    assert curve_of(high["no_wo"]).sensitivity.mean == pytest.approx(curve_of(low["no_wo"]).sensitivity.mean)


@pytest.mark.parametrize(
    ("optimum", "problem", "words"),
    [
        (0.03, CurveProblem.LARGEST_TRIED, "0.01, is the largest tried"),
        (1e-4, CurveProblem.SMALLEST_TRIED, "0.0003, is the smallest"),
    ],
)
def test_a_cell_whose_best_rate_is_at_the_edge_has_no_verdict(optimum, problem, words):
    cells = summarize(sweep_records({"dense": (3e-3, 2.0), "einsum": (3e-3, 2.0), "no_wo": (optimum, 2.1)}))
    assert curve_of(cells["no_wo"]).problem is problem
    assert cells["no_wo"].value is None
    assert verdict_of(cells["no_wo"]) == (VerdictKind.NO_COMPARISON, Reason.NO_OPTIMUM)
    assert words in cells["no_wo"].verdict.detail
    assert cells["einsum"].difference is not None


def test_a_baseline_at_the_edge_leaves_the_others_without_a_comparison():
    cells = summarize(sweep_records({"dense": (0.03, 2.0), "no_wo": (3e-3, 2.1)}))
    assert verdict_of(cells["no_wo"]) == (VerdictKind.NO_COMPARISON, Reason.BASELINE_WITHOUT_VALUE)
    assert "largest tried" in cells["no_wo"].verdict.detail


def test_the_best_rate_is_chosen_on_the_validation_split():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.0)})
    for record in records:
        if record["cell"] == "no_wo" and record[PATH] == 1e-2:
            record["valid_bits_per_byte"] = 1.0
    assert curve_of(summarize(records)["no_wo"]).problem is CurveProblem.LARGEST_TRIED


def test_a_diverged_run_bounds_the_optimum_and_loses_no_seed():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.1)}, rates=WIDE)
    for i, record in enumerate(records):
        if record["cell"] == "no_wo" and record[PATH] > 0.02 and record["seed"] in (1, 3):
            records[i] = sweep_record("no_wo", record[PATH], record["seed"], None)
    cells = summarize(records)
    curve = curve_of(cells["no_wo"])
    assert len(cells["no_wo"].values) == 5 and not cells["no_wo"].verdict.lost
    assert curve.runs.diverged == {WIDE[-1]: 2}
    assert curve.fitted == WIDE[:-1]
    assert curve.sensitivity_is_bound and not curve_of(cells["dense"]).sensitivity_is_bound
    assert cells["no_wo"].value.mean == pytest.approx(2.1 + cells["dense"].value.mean - 2.0, abs=0.05)
    assert verdict_of(cells["no_wo"])[0] is VerdictKind.WORSE


def test_a_best_rate_below_diverged_ones_needs_a_minimum_among_those_that_completed():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (0.1, 2.1)}, rates=WIDE)
    kept = [r if r["cell"] == "dense" or r[PATH] < 0.02 else sweep_record("no_wo", r[PATH], r["seed"], None) for r in records]
    assert curve_of(summarize(kept)["no_wo"]).problem is CurveProblem.NO_MINIMUM


def test_a_cell_that_diverges_at_most_rates_is_said_to_diverge():
    records = [
        record | ({"state": "diverged", "bits_per_byte": None} if record["cell"] == "no_wo" and record[PATH] > RATES[0] else {})
        for record in sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1)})
    ]
    cells = summarize(records)
    assert curve_of(cells["no_wo"]).problem is CurveProblem.TOO_FEW_VALUES
    (warning,) = sweep_warnings([*cells.values()], PATH)
    assert "diverged at 3 of its 4" in warning and "closer to its best" not in warning


def test_a_failed_run_loses_its_seed():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.1)})
    failed = next(r for r in records if (r["cell"], r["seed"], r[PATH]) == ("no_wo", 2, 1e-3))
    failed |= {"state": "failed", "bits_per_byte": None, "valid_bits_per_byte": None}
    cell = summarize(records)["no_wo"]
    assert sorted(cell.values) == [0, 1, 3, 4]
    assert cell.verdict.lost == ((1, "failed"),)


def test_a_lopsided_curve_is_fitted_by_a_higher_degree():
    rates = WIDE
    cells = summarize(sweep_records({"dense": (2.5e-3, 2.0), "no_wo": (4e-3, 2.0)}, rates=rates, lopsidedness=1.0, noise=0.003))
    curve = curve_of(cells["no_wo"])
    assert len(curve.shape) == 3 and curve.shape[1] > 0
    assert cells["no_wo"].difference.interval.low < 0 < cells["no_wo"].difference.interval.high


def test_cells_of_different_shapes_are_compared():
    records = sweep_records({"dense": (3e-3, 2.0)}, noise=0.005)
    records += sweep_records({"basic": (3e-3, 2.1)}, curvature=2.0, noise=0.005, random_seed=1)
    cells = summarize(records)
    assert curve_of(cells["basic"]).shape[0] == pytest.approx(2.0, abs=0.1)
    assert curve_of(cells["dense"]).shape[0] == pytest.approx(0.5, abs=0.1)
    assert verdict_of(cells["basic"])[0] is VerdictKind.WORSE
    assert cells["basic"].difference.interval.mean == pytest.approx(0.1, abs=0.03)


def test_identical_cells_are_identical_at_their_optima():
    records = sweep_records({"dense": (3e-3, 2.0)}, seeds=8)
    copies = [record | {"cell": "einsum", "variant": "einsum"} for record in records]
    cell = summarize([*records, *copies])["einsum"]
    assert verdict_of(cell)[0] is VerdictKind.IDENTICAL


def test_sensitivity_is_the_mean_excess_loss_over_the_rates():
    """Between rates the loss is interpolated linearly: here between 2, 0.5, 0 and 0.5 above the optimum, one decade apart."""
    rates = (1e-5, 1e-4, 1e-3, 1e-2)
    cells = summarize(sweep_records({"dense": (1e-3, 2.0), "no_wo": (1e-3, 2.1)}, rates=rates, noise=1e-9, curvature=0.5))
    assert curve_of(cells["no_wo"]).sensitivity.mean == pytest.approx((0.25 + 0.25 + 1.25) / 3, abs=1e-6)


def test_one_seed_has_an_optimum_without_an_interval():
    cell = summarize(sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.1)}, seeds=1))["no_wo"]
    assert cell.value.n == 1 and cell.value.low is None
    assert verdict_of(cell) == (VerdictKind.INCONCLUSIVE, Reason.ONE_SEED)


def test_a_curve_that_falls_to_its_edge_on_the_test_split_has_no_minimum():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (0.1, 2.1)})
    for record in records:
        record["valid_bits_per_byte"] = 2.0 + (record[PATH] != RATES[2])
    assert curve_of(summarize(records)["no_wo"]).problem is CurveProblem.NO_MINIMUM


@pytest.mark.parametrize(("rates", "apart", "lopsidedness"), [(RATES, 0.0, 0.0), (WIDE, 0.3, 1.0)])
def test_equal_optima_of_unequal_curvature_seldom_differ(rates, apart, lopsidedness):
    """5 % of the studies are expected to; more than 10 % of 200 is improbable at that rate (p = 0.001)."""
    wrong = judged = 0
    for study in range(200):
        middle = 2.5e-3 * 10 ** (-0.1 + 0.2 * (study % 5) / 4)
        noisy = {"rates": rates, "lopsidedness": lopsidedness, "noise": 0.02}
        records = sweep_records({"dense": (middle * 10 ** (-apart / 2), 2.0)}, **noisy, random_seed=2 * study)
        records += sweep_records(
            {"no_wo": (middle * 10 ** (apart / 2), 2.0)}, **noisy, curvature=1.0, random_seed=2 * study + 1
        )
        cell = summarize(records)["no_wo"]
        judged += cell.difference is not None
        wrong += verdict_of(cell)[0] in (VerdictKind.BETTER, VerdictKind.WORSE)
    assert judged > 150
    assert wrong <= 0.1 * judged


def test_a_cell_with_one_score_at_every_rate_is_compared_by_it():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1), "none": (3e-3, 8.0)})
    records = [r | ({"bits_per_byte": 8.0, "valid_bits_per_byte": 8.0} if r["cell"] == "none" else {}) for r in records]
    cells, without = summarize(records), summarize([r for r in records if r["cell"] != "none"])
    none = cells["none"]
    assert curve_of(none).is_flat and curve_of(none).problem is None and set(none.values.values()) == {8.0}
    assert none.verdict.kind is VerdictKind.WORSE
    assert none.difference.interval.mean == pytest.approx(8.0 - cells["dense"].value.mean)
    assert cells["no_wo"].values == without["no_wo"].values, "a flat cell has no part in the shape of the others"
    diverged = [r | {"state": "diverged"} if r["cell"] == "none" and r[PATH] == RATES[-1] else r for r in records]
    assert not curve_of(summarize(diverged)["none"]).is_flat
