"""The note on a margin that is stated in per cent of training steps."""

from __future__ import annotations

from attnlab.stats.compare import ComparisonSpec


def margin_notes(spec: ComparisonSpec) -> list[str]:
    """Return a note on the value of a margin in per cent of steps; none on a margin in the metric's unit."""
    if spec.margin_share is None:
        return []
    name = f"the margin of {100 * spec.margin_share:g} % of steps"
    if spec.margin is None:
        return [
            f"{name[0].upper()}{name[1:]} has no value: no run of the baseline has a validation curve that improves in the "
            "second half of training. Without it, no cell can be equivalent."
        ]
    start = f"{name[0].upper()}{name[1:]} is {spec.margin:.3g} in {spec.metric}"
    return [
        f"{start}: the slope of the baseline's validation curve over the logarithm of the steps, in the second half of "
        f"training (the median over its runs), times the logarithm of {1 + spec.margin_share:g}. Caution: "
        "trainings of different lengths can differ by more than the slope within one training suggests. The margin is then "
        "narrow, and verdicts of equivalent are rarer."
    ]
