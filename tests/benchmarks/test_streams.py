"""Tests of simulated streams of proposals, and of the documentation that repeats their figures."""

import pytest

from benchmarks.streams import GAINS, KINDS, NULL, RULES, SOUND, STREAMS, keep_lower, look_then_fresh, simulate
from benchmarks.validity import OUT, read_results
from tests.support.paths import ROOT


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_fresh_seeds_after_a_look_keep_few_false_proposals_and_a_lower_score_many(spread: float) -> None:
    sound, careless = (simulate(rule, GAINS, spread, 200, seed=1) for rule in (look_then_fresh, keep_lower))
    assert sound["false"].value < 0.05 < 0.4 < careless["false"].value  # type: ignore[union-attr]
    assert sound["found 0.02"].value > 0.85 and sound["runs"] < 5 * 200  # type: ignore[union-attr,operator]


def test_the_documentation_has_the_figures_of_the_simulation() -> None:
    text = (ROOT / "docs/how-to/loop.md").read_text(encoding="utf-8")
    results = [result for result in read_results(ROOT / OUT / "validity.csv") if result.simulation == STREAMS.name]
    found = {(result.group, result.setting, result.quantity): result.value for result in results}
    for rule in RULES:
        kept, false, large, small, runs = (
            found[next(iter(KINDS)), rule, name] for name in ("kept", "false", "found 0.02", "found 0.01", "runs")
        )
        assert f"| {rule} | {kept:.0f} | {false:.0%} | {large:.0%}, {small:.0%} | {runs:,.0f} |".replace("%", " %") in text
    assert f"with the fourth rule {found[NULL, SOUND, 'kept']:.1f} of 200" in text
