"""Tests of the error rates of verdicts with fixed and with added seeds (``benchmarks.validity`` simulates more)."""

import pytest

from benchmarks import table_tests
from benchmarks.fixed_seeds import KNOWN, false_verdicts, kept_promise
from benchmarks.looks import MARGIN, Added, added_by_hand, until_conclusive

STUDIES = 10_000
MOST = 0.05 + 3 * (0.05 * 0.95 / STUDIES) ** 0.5  # 5 % plus three standard errors in this many studies


@pytest.mark.parametrize("noise", ["normal", "t3", "contaminated", "skewed"])
@pytest.mark.parametrize("n", [3, 12])
def test_at_most_one_table_in_twenty_has_a_false_verdict(noise: str, n: int) -> None:
    shares = false_verdicts(noise, n, STUDIES, seed=1)
    assert shares["false"].value <= MOST and shares["false equivalence"].value <= MOST
    assert shares["covered"].value >= 1 - MOST


def test_one_table_without_holm_would_break_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_tests, "holm", lambda p: p)
    shares = false_verdicts("normal", 5, STUDIES, seed=1)
    assert shares["false"].value > MOST and shares["false equivalence"].value > MOST


@pytest.mark.parametrize("margin", [None, MARGIN])
def test_the_looks_together_err_once_in_twenty_and_uncorrected_ones_do_not(margin: float | None) -> None:
    correct, careless = (until_conclusive(Added(margin=margin, corrected=c), 4_000, seed=3) for c in (True, False))
    most = 0.05 + 3 * (0.05 * 0.95 / 4_000) ** 0.5
    assert correct["false"].value <= most < careless["false"].value  # type: ignore[union-attr]
    assert correct["covered"].value >= 1 - most > careless["covered"].value  # type: ignore[union-attr]
    assert correct["seeds"] > careless["seeds"] >= 3  # type: ignore[operator]


@pytest.mark.parametrize("margin", [None, MARGIN])
def test_seeds_added_by_hand_err_in_at_most_five_and_a_half_of_a_hundred_tables(margin: float | None) -> None:
    correct, careless = (added_by_hand(Added(first=5, margin=margin, corrected=c), 4_000, seed=3) for c in (True, False))
    most = 0.055 + 3 * (0.055 * 0.945 / 4_000) ** 0.5
    assert correct["false"].value <= most < careless["false"].value
    assert correct["covered"].value >= 1 - most > careless["covered"].value


@pytest.mark.parametrize("known", [known for known in KNOWN if known[2] == 1])
def test_the_number_of_seeds_named_settles_four_studies_in_five(known: tuple[float, float | None, int]) -> None:
    power = kept_promise(*known, STUDIES, seed=4)["power"]
    assert 0.8 - 3 * power.error <= power.value < 0.9
