"""Error rates of searched and swept learning rates in a few hundred simulated studies."""

import pytest

from benchmarks.sweeps import RateDesign, simulate_rates

STUDIES = 300
MOST = 0.07 + 2 * (0.07 * 0.93 / STUDIES) ** 0.5  # 7 % plus two standard errors in this many studies


def shares(design: RateDesign) -> dict[str, float]:
    return {line.quantity: line.value for line in simulate_rates(design, STUDIES, seed=0)}


@pytest.mark.parametrize("design", [RateDesign(3, 5, apart=0.2), RateDesign(5, 5, apart=0.2, lopsided=1.0)])
def test_a_sweep_has_few_false_verdicts_and_seldom_none(design: RateDesign) -> None:
    share = shares(design)
    assert share["false"] <= MOST
    assert share["no verdict"] < 0.12


def test_a_search_has_many_false_verdicts() -> None:
    assert shares(RateDesign(0, 5, apart=0.2))["false"] > 0.2
