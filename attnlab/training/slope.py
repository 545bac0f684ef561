"""The slope of the validation curve at the end of training, from which a margin in per cent of steps is estimated."""

import math
import statistics

from attnlab._util.metrics import slope_name
from attnlab.training.result import History

MIN_POINTS = 3  # evaluations in the second half of training


def final_slopes(history: History, last: int) -> dict[str, float]:
    """Return the change of each metric on ``valid`` for each unit of the natural logarithm of the steps.

    Args:
        history: (step, metrics) of every point that was reported.
        last: the last step. The points from its half on are fitted by least squares.

    Returns:
        Summary metrics such as ``valid_bits_per_byte_slope``; none with fewer than ``MIN_POINTS`` points.
    """
    points: dict[str, dict[float, float]] = {}
    for step, metrics in history:
        for name, value in metrics.items():
            if name.startswith("valid/") and 2 * step >= last and math.isfinite(value):
                points.setdefault(name.removeprefix("valid/"), {})[math.log(step)] = value
    return {
        slope_name(name): statistics.linear_regression(list(curve), list(curve.values())).slope
        for name, curve in points.items()
        if len(curve) >= MIN_POINTS
    }
