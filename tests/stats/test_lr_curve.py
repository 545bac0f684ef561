"""Curves over a swept learning rate: optima, verdicts at the optima, and cells without one."""

from dataclasses import replace
from typing import Any

import numpy
import pytest
from scipy import stats

from attnlab.report.sweep import sweep_warnings
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.stats.lr_curve import CurveProblem, LearningRateCurve
from attnlab.stats.verdict import Reason, VerdictKind
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


def test_three_rates_give_the_parabolas_with_one_curvature_of_ordinary_least_squares():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1), "einsum": (2e-3, 2.0)}, noise=0.02)
    cells = summarize(records)
    x = numpy.log10([r[PATH] for r in records])
    names = list(cells)
    owners = numpy.array([names.index(r["cell"]) for r in records])
    dummies = (owners[:, None] == numpy.arange(3)).astype(float)
    design = numpy.hstack([dummies, dummies * x[:, None], (x**2)[:, None]])
    *parameters, curvature = numpy.linalg.lstsq(design, [r["bits_per_byte"] for r in records], rcond=None)[0]
    for i, name in enumerate(names):
        level, slope = parameters[i], parameters[3 + i]
        assert cells[name].value.mean == pytest.approx(level - slope**2 / (4 * curvature), abs=1e-9)
        assert curve_of(cells[name]).optimum.mean == pytest.approx(-slope / (2 * curvature), abs=1e-9)
        assert curve_of(cells[name]).shape == pytest.approx((curvature,), abs=1e-8)


def test_each_seed_contributes_its_own_parabola_at_the_common_optimum():
    """To first order an optimum moves with a seed's losses as that seed's parabola does at the optimum's position."""
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (4e-3, 2.1)}, noise=0.02)
    cells = summarize(records)
    x = numpy.log10(RATES)
    design = numpy.vstack([numpy.kron(numpy.eye(2), numpy.stack([numpy.ones(3), x], axis=1)).T, numpy.tile(x**2, 2)]).T
    for seed in range(5):
        losses = [r["bits_per_byte"] for name in cells for r in records if (r["cell"], r["seed"]) == (name, seed)]
        *lines, curvature = numpy.linalg.lstsq(design, losses, rcond=None)[0]
        for i, name in enumerate(cells):
            at = curve_of(cells[name]).optimum.mean
            expected = lines[2 * i] + lines[2 * i + 1] * at + curvature * at**2
            assert cells[name].values[seed] == pytest.approx(expected, abs=1e-8)


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
    low, high = summarize(records), summarize(mirrored, replace(SPEC, direction="max"))
    assert high["no_wo"].value.mean == pytest.approx(5 - low["no_wo"].value.mean)
    assert curve_of(high["no_wo"]).optimum.mean == pytest.approx(curve_of(low["no_wo"]).optimum.mean)
    assert verdict_of(high["no_wo"]) == verdict_of(low["no_wo"])
    assert curve_of(high["no_wo"]).sensitivity.mean == pytest.approx(curve_of(low["no_wo"]).sensitivity.mean)


@pytest.mark.parametrize(
    ("optimum", "problem", "words"),
    [
        (0.03, CurveProblem.LARGEST_TRIED, "0.01, is the largest tried"),
        (1e-4, CurveProblem.SMALLEST_TRIED, "0.001, is the smallest"),
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
    assert "diverged at 2 of its 3" in warning and "closer to its best" not in warning


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
    assert len(curve.shape) > 1 and curve.fit_p is not None and curve.fit_p > 0.05
    assert cells["no_wo"].difference.interval.low < 0 < cells["no_wo"].difference.interval.high


def test_a_cell_of_another_shape_has_no_verdict_and_does_not_spoil_the_others():
    records = sweep_records({"dense": (3e-3, 2.0), "einsum": (4e-3, 2.1)}, noise=0.005)
    records += sweep_records({"basic": (3e-3, 3.0)}, curvature=2.0, noise=0.005, random_seed=1)
    cells = summarize(records)
    assert curve_of(cells["basic"]).problem is CurveProblem.MISFIT
    assert verdict_of(cells["basic"]) == (VerdictKind.NO_COMPARISON, Reason.NO_OPTIMUM)
    assert verdict_of(cells["einsum"])[0] is VerdictKind.WORSE
    assert curve_of(cells["einsum"]).shape[0] == pytest.approx(0.5, abs=0.05)


def test_two_curves_of_different_shapes_have_no_verdict():
    records = sweep_records({"dense": (3e-3, 2.0)}, noise=0.005)
    records += sweep_records({"basic": (3e-3, 3.0)}, curvature=2.0, noise=0.005, random_seed=1)
    cells = summarize(records)
    assert {curve_of(cell).problem for cell in cells.values()} == {CurveProblem.MISFIT}


def test_cells_with_other_tests_have_curves_of_their_own():
    records = sweep_records({"dense": (3e-3, 2.0)}, noise=0.005)
    records += sweep_records({"basic": (3e-3, 3.0)}, curvature=2.0, noise=0.005, random_seed=1)
    for record in records:
        record["test"] = '{"task": "a"}' if record["cell"] == "dense" else '{"task": "b"}'
    cells = summarize(records)
    assert curve_of(cells["basic"]).shape[0] == pytest.approx(2.0, abs=0.1)
    assert curve_of(cells["dense"]).shape[0] == pytest.approx(0.5, abs=0.1)


def test_identical_cells_are_identical_at_their_optima():
    records = sweep_records({"dense": (3e-3, 2.0)}, seeds=8)
    copies = [record | {"cell": "einsum", "variant": "einsum"} for record in records]
    cell = summarize([*records, *copies])["einsum"]
    assert verdict_of(cell)[0] is VerdictKind.IDENTICAL


def test_sensitivity_is_the_mean_excess_loss_over_the_rates():
    """Between rates the loss is interpolated linearly: half of the loss one decade away, for three rates two decades apart."""
    rates = (1e-4, 1e-3, 1e-2)
    cells = summarize(sweep_records({"dense": (1e-3, 2.0), "no_wo": (1e-3, 2.1)}, rates=rates, noise=1e-9, curvature=0.5))
    assert curve_of(cells["no_wo"]).sensitivity.mean == pytest.approx(0.25, abs=1e-6)


def test_one_seed_has_an_optimum_without_an_interval():
    cell = summarize(sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.1)}, seeds=1))["no_wo"]
    assert cell.value.n == 1 and cell.value.low is None
    assert verdict_of(cell) == (VerdictKind.INCONCLUSIVE, Reason.ONE_SEED)


def test_a_curve_that_is_flat_but_for_noise_has_no_optimum():
    records = [
        sweep_record(v, rate, seed, 2.1 if (rate, seed) == (RATES[1], 0) else 2.0, valid_bits_per_byte=2.0)
        for v in ("dense", "no_wo")
        for rate in RATES
        for seed in range(3)
    ]
    assert {curve_of(cell).problem for cell in summarize(records).values()} == {CurveProblem.NO_MINIMUM}


@pytest.mark.parametrize(("rates", "apart", "lopsidedness"), [(RATES, 0.0, 0.0), (WIDE, 0.2, 0.0), (WIDE, 0.2, 1.0)])
def test_equal_optima_seldom_differ(rates, apart, lopsidedness):
    """5 % of the studies are expected to; more than 10 % of 200 is improbable at that rate (p = 0.001)."""
    wrong = judged = 0
    for study in range(200):
        middle = 3e-3 * 10 ** (-0.1 + 0.2 * (study % 5) / 4)
        optima = {"dense": (middle * 10 ** (-apart / 2), 2.0), "no_wo": (middle * 10 ** (apart / 2), 2.0)}
        records = sweep_records(optima, rates=rates, lopsidedness=lopsidedness, noise=0.02, random_seed=study)
        cell = summarize(records)["no_wo"]
        judged += cell.difference is not None
        wrong += verdict_of(cell)[0] in (VerdictKind.BETTER, VerdictKind.WORSE)
    assert judged > 120
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
