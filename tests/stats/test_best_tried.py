"""Cells at the best of the learning rates tried: values, verdicts, what has none, and the seeds that choose."""

from typing import Any

import pytest
from scipy import stats

from attnlab.config.question import ClaimConfig
from attnlab.extras.claims.ruling import gather
from attnlab.report.sweep import sweep_warnings
from attnlab.report.wording import describe_verdict
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.stats.paired import NoTest
from attnlab.stats.verdict import Reason, VerdictKind
from tests.support.specs import changed
from tests.support.sweeps import PATH, RATES, SPEC, sweep_record, sweep_records

WIDE = tuple(10 ** (-3.5 + i / 2) for i in range(5))


def summarize(records: list, spec=SPEC) -> dict[str, Any]:
    """Return the cells by name; not typed, because most fields of a summary are optional."""
    return {cell.name: cell for cell in summarize_cells(records, spec)}


def verdict_of(cell: CellSummary) -> tuple[VerdictKind, Reason | None]:
    assert cell.verdict is not None
    return cell.verdict.kind, cell.verdict.reason


def test_cells_are_compared_at_their_best_rates_paired_by_seed():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (1e-3, 2.1)})
    cells = summarize(records)
    dense, no_wo = cells["dense"], cells["no_wo"]
    assert (dense.curve.best, no_wo.curve.best) == (3e-3, 1e-3)
    assert dense.values == {r["seed"]: r["bits_per_byte"] for r in records if (r["cell"], r[PATH]) == ("dense", 3e-3)}
    assert no_wo.difference.interval.mean == pytest.approx(no_wo.value.mean - dense.value.mean)
    assert no_wo.difference.p == pytest.approx(stats.ttest_rel([*no_wo.values.values()], [*dense.values.values()]).pvalue)
    assert verdict_of(no_wo)[0] is VerdictKind.WORSE


def test_a_metric_to_maximize_has_its_best_rate_at_the_top():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (1e-3, 2.1)})
    mirrored = [
        r | {"bits_per_byte": 5 - r["bits_per_byte"], "valid_bits_per_byte": 5 - r["valid_bits_per_byte"]} for r in records
    ]
    low, high = summarize(records), summarize(mirrored, changed(SPEC, direction="max"))
    assert high["no_wo"].value.mean == pytest.approx(5 - low["no_wo"].value.mean)
    assert verdict_of(high["no_wo"]) == verdict_of(low["no_wo"])
    assert high["no_wo"].curve.crossed == pytest.approx({s: 5 - v for s, v in low["no_wo"].curve.crossed.items()})
    assert high["no_wo"].curve.sensitivity.mean == pytest.approx(low["no_wo"].curve.sensitivity.mean)


@pytest.mark.parametrize(("optimum", "words"), [(0.03, "0.01, is the largest tried"), (1e-4, "0.0003, is the smallest")])
def test_a_cell_whose_best_rate_is_at_the_edge_has_no_verdict(optimum: float, words: str):
    cells = summarize(sweep_records({"dense": (3e-3, 2.0), "einsum": (3e-3, 2.0), "no_wo": (optimum, 2.1)}))
    assert cells["no_wo"].value is None
    assert verdict_of(cells["no_wo"]) == (VerdictKind.NO_COMPARISON, Reason.NO_BEST)
    assert words in cells["no_wo"].verdict.detail
    assert cells["einsum"].difference is not None


def test_a_baseline_at_the_edge_leaves_the_others_without_a_comparison():
    cells = summarize(sweep_records({"dense": (0.03, 2.0), "no_wo": (3e-3, 2.1)}))
    assert verdict_of(cells["no_wo"]) == (VerdictKind.NO_COMPARISON, Reason.BASELINE_WITHOUT_VALUE)
    assert "largest tried" in cells["no_wo"].verdict.detail


def test_the_best_rate_is_chosen_on_the_validation_split():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.0)})
    for record in records:
        if record["cell"] == "no_wo" and record[PATH] == 1e-3:
            record["valid_bits_per_byte"] = 1.0
    assert summarize(records)["no_wo"].curve.best == 1e-3


def test_a_rate_with_a_diverged_run_is_worse_than_any_other_and_loses_no_seed():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.1)}, rates=WIDE)
    for i, record in enumerate(records):
        if record["cell"] == "no_wo" and record[PATH] > 3e-3 and record["seed"] in (1, 3):
            records[i] = sweep_record("no_wo", record[PATH], record["seed"], None)
    cells = summarize(records)
    curve = cells["no_wo"].curve
    assert curve.best == WIDE[1] and len(cells["no_wo"].values) == 5 and not cells["no_wo"].verdict.lost
    assert curve.runs.diverged == dict.fromkeys(WIDE[2:], 2)
    assert curve.crossed == curve.values, "seed 1 does not choose the rate at which it alone diverged"
    assert curve.sensitivity_is_bound and not cells["dense"].curve.sensitivity_is_bound


def test_a_cell_that_diverges_at_each_rate_has_no_value():
    records = sweep_records({"dense": (3e-3, 2.0)}) + [
        sweep_record("no_wo", rate, seed, None) for rate in RATES for seed in (0, 1)
    ]
    cells = summarize(records)
    assert verdict_of(cells["no_wo"])[1] is Reason.NO_BEST
    (warning,) = sweep_warnings([*cells.values()], PATH)
    assert "diverged at each learning rate; add smaller" in warning


def test_a_failed_run_at_the_best_rate_loses_its_seed():
    records = sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.1)})
    failed = next(r for r in records if (r["cell"], r["seed"], r[PATH]) == ("no_wo", 2, 3e-3))
    failed |= {"state": "failed", "bits_per_byte": None, "valid_bits_per_byte": None}
    cell = summarize(records)["no_wo"]
    assert sorted(cell.values) == [0, 1, 3, 4]
    assert cell.verdict.lost == ((1, "failed"),)


def test_identical_cells_are_identical():
    records = sweep_records({"dense": (3e-3, 2.0)}, seeds=8)
    cell = summarize([*records, *(record | {"cell": "einsum", "variant": "einsum"} for record in records)])["einsum"]
    assert verdict_of(cell)[0] is VerdictKind.IDENTICAL


def test_a_cell_with_one_score_at_every_rate_has_a_verdict():
    records = sweep_records({"dense": (3e-3, 2.0), "none": (3e-3, 8.0)})
    records = [r | ({"bits_per_byte": 8.0, "valid_bits_per_byte": 8.0} if r["cell"] == "none" else {}) for r in records]
    assert verdict_of(summarize(records)["none"])[0] is VerdictKind.WORSE


def test_one_seed_has_a_value_without_an_interval():
    cell = summarize(sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.1)}, seeds=1))["no_wo"]
    assert cell.value.n == 1 and cell.value.low is None
    assert verdict_of(cell) == (VerdictKind.INCONCLUSIVE, Reason.ONE_SEED)


def test_sensitivity_is_the_mean_excess_loss_over_the_rates():
    """Between rates the loss is interpolated linearly: here between 2, 0.5, 0 and 0.5 above the best, one decade apart."""
    rates = (1e-5, 1e-4, 1e-3, 1e-2)
    cells = summarize(sweep_records({"dense": (1e-3, 2.0), "no_wo": (1e-3, 2.1)}, rates=rates, noise=1e-9, curvature=0.5))
    assert cells["no_wo"].curve.sensitivity.mean == pytest.approx((0.25 + 0.25 + 1.25) / 3, abs=1e-6)


# ---------------------------------------------------------------- the seeds that choose


def near_tie(baseline: tuple[float, float, float]) -> list[dict]:
    """Return runs of a cell with two good rates: the third is best, but by the third seed alone, which is bad at the second."""
    of_rates = {RATES[0]: (9, 9, 9), RATES[1]: (0, 0, 3), RATES[2]: (1, 1, 0.9), RATES[3]: (9, 9, 9)}
    others = {rate: baseline if rate == RATES[2] else (9, 9, 9) for rate in RATES}
    return [
        sweep_record(cell, rate, seed, 2 + 0.1 * score)
        for cell, scores in (("dense", others), ("no_wo", of_rates))
        for rate, of_rate in scores.items()
        for seed, score in enumerate(of_rate)
    ]


@pytest.mark.parametrize(("baseline", "margin"), [((0.8, 0.81, 0.7), None), ((1.02, 1, 0.91), 0.02)])
def test_a_verdict_that_depends_on_the_seeds_that_choose_is_withheld(baseline, margin: float | None):
    cells = summarize(near_tie(baseline), changed(SPEC, margin=margin))
    cell = cells["no_wo"]
    assert cell.curve.best == RATES[2] and cell.curve.values == pytest.approx({0: 2.1, 1: 2.1, 2: 2.09})
    assert cell.curve.crossed == pytest.approx({0: 2.1, 1: 2.1, 2: 2.3}), "the others of seed 2 choose the second rate"
    assert cell.difference.no_test is NoTest.CHOICE and cell.difference.interval.low is None
    assert verdict_of(cell) == (VerdictKind.INCONCLUSIVE, Reason.CHOICE)
    assert "seeds that choose" in describe_verdict(cell.verdict) and len(sweep_warnings([*cells.values()], PATH)) == 1
    claim = ClaimConfig(sentence="a", source="b", cell={"variant": "no_wo"}, direction="equivalent")
    (evidence,) = gather(claim, [*cells.values()], margin=margin)
    assert evidence.outcome == "inconclusive" and evidence.reason == NoTest.CHOICE.value


def test_a_clear_choice_keeps_the_verdict():
    cells = summarize(sweep_records({"dense": (3e-3, 2.0), "no_wo": (3e-3, 2.05)}, noise=0.005))
    assert cells["no_wo"].curve.crossed == cells["no_wo"].curve.values
    assert verdict_of(cells["no_wo"])[0] is VerdictKind.WORSE and sweep_warnings([*cells.values()], PATH) == []
