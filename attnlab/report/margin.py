"""Notes on a margin: one that is too wide, and one that is stated in per cent of training steps."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab._util.metrics import is_share
from attnlab.stats.compare import CellSummary, ComparisonSpec
from attnlab.stats.margin import has_wide_margin


def margin_notes(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    """Return a note on a margin that is too wide for the scores, and one on the value of a margin in per cent of steps."""
    return [*_on_width(cells, spec), *_on_share(spec)]


def _on_width(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    if spec.margin is None or not has_wide_margin(cells, spec):
        return []
    scores = [score for cell in cells for score in cell.values.values()]
    points = (
        f" A margin of {spec.margin:g} percentage points would be {spec.margin / 100:g}."
        if is_share(spec.metric) and max(map(abs, scores)) <= 1
        else ""
    )
    return [
        f"The margin of {spec.margin:g} is too wide: the scores in {spec.metric} are between {min(scores):.4g} and "
        f"{max(scores):.4g}, so nearly every cell would be equivalent.{points}"
    ]


def _on_share(spec: ComparisonSpec) -> list[str]:
    if spec.goal.margin_share is None:
        return []
    name = f"the margin of {100 * spec.goal.margin_share:g} % of steps"
    if spec.margin is None:
        return [
            f"{name[0].upper()}{name[1:]} has no value: no run of the baseline has a validation curve that improves in the "
            "second half of training. Without it, no cell can be equivalent."
        ]
    start = f"{name[0].upper()}{name[1:]} is {spec.margin:.3g} in {spec.metric}"
    return [
        f"{start}: the slope of the baseline's validation curve over the logarithm of the steps, in the second half of "
        f"training (the mean over its seeds), times the logarithm of {1 + spec.goal.margin_share:g}. The tests count its error."
        " Caution: trainings of different lengths can differ by more than the slope within one training suggests. The margin "
        "is then narrow, and verdicts of equivalent are rarer."
    ]
