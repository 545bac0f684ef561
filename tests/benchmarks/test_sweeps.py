"""Error rates of searched and swept learning rates in a few hundred simulated studies."""

import pytest

from benchmarks.sweeps import SWEEPS, RateDesign, compared_rates

STUDIES = 300
MOST = 0.07 + 2 * (0.07 * 0.93 / STUDIES) ** 0.5  # 7 % plus two standard errors in this many studies


@pytest.mark.parametrize(
    "design", [RateDesign(3, 5, ratio=2.0), RateDesign(5, 5, apart=0.3, lopsided=1.0, ratio=1.5, diverging=0.5)]
)
def test_a_sweep_has_few_false_verdicts_and_seldom_none(design: RateDesign) -> None:
    shares = compared_rates(design, STUDIES, seed=0)
    assert shares["false"].value <= MOST
    assert shares["no verdict"].value < 0.12


def test_a_search_has_many_false_verdicts() -> None:
    assert compared_rates(RateDesign(0, 5, apart=0.2), STUDIES, seed=0)["false"].value > 0.2


def test_sweeps_are_promised_at_each_number_of_seeds_and_searches_are_not() -> None:
    promised = {setting.name for setting in SWEEPS.settings if not setting.not_promised}
    assert promised >= {"sweep 3 x 3", "sweep 3 x 5", "sweep 5 x 10"} and not any("search" in name for name in promised)
