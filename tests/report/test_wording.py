"""Tests of verdicts as the short text of a table."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.report.answer import format_percent
from attnlab.report.wording import describe_looks, describe_verdict, format_change, format_p_value
from attnlab.stats import paired
from attnlab.stats.predict import Prediction
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import Reason, Verdict, VerdictKind, judge
from tests.stats.test_paired import BASE, LOWER

OPEN = VerdictKind.INCONCLUSIVE
NONE = VerdictKind.NO_COMPARISON
MORE = Reason.MORE_SEEDS


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (None, ""),
        (Verdict(VerdictKind.BASELINE), "baseline"),
        (Verdict(VerdictKind.WORSE), "worse"),
        (Verdict(VerdictKind.BETTER, within_margin=True), "better, by less than the margin"),
        (Verdict(VerdictKind.EQUIVALENT), "equivalent within the margin"),
        (Verdict(VerdictKind.IDENTICAL, pairs=5), "identical in all 5 seeds"),
        (Verdict(VerdictKind.WORSE, lost=((1, "diverged"),)), "worse, on the completed pairs (1 diverged)"),
        (Verdict(OPEN, Reason.ONE_SEED, pairs=1), "inconclusive: one seed, no interval"),
        (Verdict(OPEN, Reason.FEW_SEEDS, pairs=3), "inconclusive: 3 seeds are too few"),
        (
            Verdict(OPEN, MORE, pairs=4, prediction=Prediction(5, 0.612, 0.2), needed=9),
            "inconclusive: with 1 more seed 61 % differs, 20 % equivalent; 9 seeds would decide (80 %)",
        ),
        (
            Verdict(OPEN, MORE, pairs=4, prediction=Prediction(5, 0.83), needed=5),
            "inconclusive: with 1 more seed 83 % differs",
        ),
        (
            Verdict(OPEN, MORE, pairs=5, prediction=Prediction(6, 0.004, 0.995), needed=33),
            "inconclusive: with 1 more seed < 1 % differs, > 99 % equivalent; 33 seeds would decide (80 %)",
        ),
        (
            Verdict(OPEN, MORE, pairs=5, prediction=Prediction(6, 0.0, 0.0)),
            "inconclusive: only more than 1,000 seeds would decide (80 %)",
        ),
        (
            Verdict(OPEN, MORE, pairs=5, prediction=Prediction(6, 0.003, 0.006), needed=19),
            "inconclusive: 19 seeds would decide (80 %)",
        ),
        (
            Verdict(OPEN, MORE, pairs=5, prediction=Prediction(6, 0.3, 0.0)),
            "inconclusive: with 1 more seed 30 % differs, 0 % equivalent; only more than 1,000 seeds would decide (80 %)",
        ),
        (
            Verdict(OPEN, MORE, pairs=4, needed=5, constant="value"),
            "inconclusive: the same value in all 4 seeds; 5 seeds would decide if it stays the same",
        ),
        (
            Verdict(OPEN, Reason.FEW_SEEDS, pairs=3, seeds=5),
            "inconclusive: 3 seeds are too few; the baseline lacks 2 of its 5 seeds",
        ),
        (
            Verdict(OPEN, Reason.BEFORE_FIRST_LOOK, pairs=2, first_look=3),
            "inconclusive: 2 pairs of seeds, the first look is at 3",
        ),
        (
            Verdict(NONE, Reason.NO_SHARED_SEED, seeds=1, lost=((1, "failed"),), baseline_lost=((2, "diverged"),)),
            "no seed in common with the baseline (1 failed; baseline: 2 diverged)",
        ),
        (Verdict(NONE, Reason.BASELINE_MISSING), "its baseline is not in the table"),
        (Verdict(NONE, Reason.BASELINE_WITHOUT_VALUE, detail="no loss (failed)"), "its baseline has no loss (failed)"),
    ],
)
def test_each_verdict_has_a_short_text(verdict: Verdict | None, text: str) -> None:
    assert describe_verdict(verdict) == text


def test_every_reason_has_a_text() -> None:
    texts = {describe_verdict(Verdict(OPEN, reason, pairs=2)) for reason in Reason}
    assert len(texts) == len(Reason) and all(text.removeprefix("inconclusive: ") for text in texts)


def test_no_text_claims_that_there_is_no_difference() -> None:
    for values in (BASE, LOWER, {0: 2.0}, {7: 1.0}):
        assert "no difference" not in describe_verdict(judge(paired.difference(values, BASE), direction="min"))


def test_the_note_on_looks_states_their_number() -> None:
    text = describe_looks(Looks(3, 12))
    assert "from 3 to 12" in text and "10 looks" in text
    assert "at 3 and 5 seeds" in describe_looks(Looks(3, 3, (5,)))


@pytest.mark.parametrize("p", [0.0494, 0.0496, 0.04996, 0.049999, 0.05, 0.0504, 0.2, 0.001])
def test_a_p_value_is_printed_on_its_side_of_the_level(p: float) -> None:
    assert (float(format_p_value(p)) < 0.05) == (p < 0.05)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(-1e3, 1e3).filter(bool), st.floats(-1e3, 1e3))
def test_numbers_that_differ_are_printed_with_their_sign_and_order(first: float, last: float) -> None:
    assert (float(format_percent(first).removesuffix(" %").replace(",", "")) > 0) == (first > 0)
    printed = [float(text) for text in format_change(first, last).split(" to ")]
    assert abs(first - last) < 1e-11 or first == last or (printed[0] < printed[1]) == (first < last)
