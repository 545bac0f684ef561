"""Tests of the simulation of moderated t-tests: against the tests of a report, and its bound."""

import numpy
import pytest

from attnlab.stats import paired
from benchmarks.moderation import BOUND, PROMISED, QUANTITIES, Setting, draw, holm, simulated_lines, t_tests
from benchmarks.moderation_page import moderation_section
from benchmarks.simulate import Line, until_conclusive


@pytest.mark.parametrize("setting", [Setting("equal", 2, 6), Setting("one cell x4", 3, 3), Setting("baseline x2", 5, 10)])
@pytest.mark.parametrize("moderated", [True, False])
def test_the_tests_are_those_of_a_report(setting: Setting, moderated: bool) -> None:
    differences = draw(setting, tables=20, seed=3)
    tests = t_tests(differences, moderated=moderated)
    zero = dict.fromkeys(range(setting.seeds), 0.0)
    for table, p, corrected in zip(differences.tolist(), tests.p, holm(tests.p), strict=True):
        compared = [paired.difference(dict(enumerate(gaps)), zero) for gaps in table]
        judged = paired.correct(paired.moderate(compared) if moderated else compared)
        assert [d and d.p for d in judged] == pytest.approx(list(p))
        assert [d and d.p_holm for d in judged] == pytest.approx(list(corrected))


@pytest.mark.parametrize("spread", PROMISED)
@pytest.mark.parametrize(("seeds", "comparisons"), [(2, 3), (2, 6), (3, 3), (3, 5), (5, 3)])
def test_the_promised_bound_holds(spread: str, seeds: int, comparisons: int) -> None:
    tests = t_tests(draw(Setting(spread, seeds, comparisons), tables=40_000, seed=7), moderated=True)
    false = (holm(tests.p) < 0.05).any(1).mean()
    assert false < BOUND + 3 * 0.0012  # three Monte-Carlo standard errors


@pytest.mark.parametrize(("shift", "margin"), [(0.0, None), (2.0, 2.0)])
def test_moderated_looks_err_at_most_as_often_as_promised(shift: float, margin: float | None) -> None:
    options = {"first": 3, "last": 8, "shift": shift, "margin": margin, "moderated": True}
    outcome = until_conclusive("normal", **options, studies=400, seed=5)  # type: ignore[arg-type]
    wrong = outcome.equal if margin else outcome.differ
    assert wrong.value < 0.05 + 2 * 0.011  # two Monte-Carlo standard errors
    assert outcome.covered.value > 0.95


def test_a_prior_of_four_would_break_the_bound_with_two_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.moderation.prior_degrees_of_freedom", lambda pairs, comparisons: 4)
    tests = t_tests(draw(Setting("baseline x2", 2, 6), tables=40_000, seed=7), moderated=True)
    assert (holm(tests.p) < 0.05).any(1).mean() > 0.08


def test_the_section_names_the_worst_settings() -> None:
    lines = simulated_lines(Setting("equal", 3, 3), 100, 0) + simulated_lines(Setting("baseline x4", 2, 6), 100, 0)
    assert [line.quantity for line in lines[: len(QUANTITIES)]] == list(QUANTITIES)
    assert {line.studies for line in lines} == {1_000} and all(0 <= line.value <= 1 for line in lines)
    gain = {line.quantity: line.value for line in lines if line.noise == "equal"}
    assert gain["power"] > gain["power, plain t"] + 0.2
    section = moderation_section(lines)
    assert "(equal, 3 seeds, 3 comparisons)" in section and "(baseline x4, 2 seeds, 6 comparisons)" in section
    broken = Line("moderated", "one cell x2", "3 seeds, 3 comparisons", "false", 0.09, 0.001, 1)
    assert "broken by one cell x2 (9.0% at 3 seeds, 3 comparisons)" in moderation_section([*lines, broken])
    assert numpy.isclose(gain["covered"], 0.95, atol=0.03)
