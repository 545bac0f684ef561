"""Tests of the simulated error of verdicts on cells that lost seeds."""

import numpy
import pytest

from attnlab.stats.compare import summarize_cells
from attnlab.stats.verdict import VerdictKind
from benchmarks.lost_seeds import LOST_SEEDS, SCATTERS, Losses, false_verdicts, lose, scores
from tests.support.specs import comparison_spec


def verdicts(cell: numpy.ndarray, baseline: numpy.ndarray) -> int:
    """Return whether a study of these scores has a verdict, 0 or 1, as a report judges its runs."""
    spec = comparison_spec("s", ("kind",), "score", "max", {"kind": "baseline"})
    runs = [
        {
            "kind": kind,
            "cell": kind,
            "seed": seed,
            **({"state": "diverged"} if numpy.isnan(score) else {"state": "completed", "score": score}),
        }
        for kind, values in (("baseline", baseline), ("cell", cell))
        for seed, score in enumerate(values.tolist())
    ]
    verdict = summarize_cells(runs, spec)[1].verdict
    return int(verdict is not None and verdict.kind is not VerdictKind.INCONCLUSIVE)


@pytest.mark.parametrize("losses", [Losses(20, 1), Losses(20, 2, 2), Losses(20, 2)])
def test_simulated_verdicts_are_those_of_a_report(losses: Losses, scatter: str = "one scatters") -> None:
    studies, seed = 40, 3
    drawn = lose(scores(scatter, losses.seeds, studies, seed), losses, seed)
    reported = sum(verdicts(cell, baseline) for cell, baseline in drawn.transpose(1, 0, 2))
    assert false_verdicts(scatter, losses, studies, seed)["false"].happened == reported


def test_only_verdicts_that_the_rule_allows_are_false() -> None:
    for scatter in SCATTERS:
        shares = false_verdicts(scatter, Losses(10, 3), 2_000, 1)
        assert shares["false"].happened == 0 < 0.07 < shares["without the rule"].value
    assert all(setting.not_promised for setting in LOST_SEEDS.settings if setting.name == "20 seeds, 1 lost")
