"""Tests of margins."""

from typing import Any

import pytest

from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.report.notes import margin_notes
from attnlab.stats.compare import summarize_cells
from attnlab.stats.verdict import Sensitivity, VerdictKind
from tests.study.test_study import study
from tests.support.specs import changed, comparison_spec


@pytest.mark.parametrize("margin", ["5 %", "5 % of steps", "a lot", 0, -1, True, [1]])
def test_another_margin_is_refused(margin: Any) -> None:
    with pytest.raises(UserError, match="margin"):
        read_study({**study(), "margin": margin})


def judged(scores: dict[str, list[float]], margin: float, **spec: Any) -> Any:
    """Return the verdict on `cell`, compared with `base`."""
    comparison = comparison_spec("s", ("kind",), **{"metric": "accuracy", "direction": "max", **spec})
    comparison = changed(comparison, baseline={"kind": "base"}, margin=margin)
    runs = [
        {"kind": kind, "seed": seed, "state": "completed", comparison.metric: value}
        for kind, values in scores.items()
        for seed, value in enumerate(values)
    ]
    cells = summarize_cells(runs, comparison)
    return next(cell.verdict for cell in cells if cell.name == "cell"), margin_notes(cells, comparison)


HIGH, LOW = [0.85, 0.76, 0.9, 0.8, 0.83], [0.76, 0.82, 0.7, 0.84, 0.72]
NEAR = [0.851, 0.759, 0.901, 0.799, 0.831]


@pytest.mark.parametrize(
    ("scores", "margin", "metric", "wide"),
    [
        ({"base": HIGH, "cell": LOW}, 0.5, "accuracy", True),
        ({"base": HIGH, "cell": LOW}, 1.0, "score", True),
        ({"base": HIGH, "cell": LOW}, 0.5, "score", False),
        ({"base": HIGH, "cell": NEAR}, 0.02, "accuracy", False),
        ({"base": [100 * x for x in HIGH], "cell": [100 * x for x in NEAR]}, 0.5, "accuracy", False),
    ],
)
def test_an_equivalence_within_a_margin_that_is_too_wide_is_marked(
    scores: dict[str, list[float]], margin: float, metric: str, wide: bool
) -> None:
    verdict, notes = judged(scores, margin, metric=metric)
    assert verdict.kind is VerdictKind.EQUIVALENT
    assert (verdict.sensitivity is Sensitivity.WIDE_MARGIN) == verdict.is_unsupported == bool(notes) == wide


def test_a_control_that_is_worse_by_more_supports_a_wide_margin() -> None:
    scores = {"base": HIGH, "cell": NEAR, "none": [0.2, 0.21, 0.22, 0.2, 0.21]}
    verdict, _ = judged(scores, 0.6, metric="accuracy", control={"kind": "none"})
    assert verdict.sensitivity is Sensitivity.SHOWN
