"""The final metrics of a run: with six significant digits where MLflow shows them, and exact in a tag.

MLflow's databases have no infinity: they hold the largest float in its place, which `restored` reads as infinity again, like
every value too large for statistics.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnlab._util.metrics import is_curve

if TYPE_CHECKING:
    from mlflow.entities import Run as Record

SUMMARY_TAG = "attnlab.summary"  # the exact values, as JSON
LARGEST = 1e70  # moments of larger values overflow; MLflow writes 1.7976931348623157e308 for infinity
MAX_TAG = 8_000  # characters; MLflow rejects longer tags of a run


def split_summary(summary: Mapping[str, float]) -> tuple[dict[str, float], str]:
    """Return the metrics to log, and the text of ``SUMMARY_TAG``, which alone has infinite values; NaN is left out.

    If the exact values do not fit into a tag, the metrics are exact and complete, and the text is empty.
    """
    exact = {name: value for name, value in summary.items() if value == value}
    text = json.dumps(exact) if exact else ""
    if len(text) > MAX_TAG:
        return exact, ""
    return {name: _rounded(value) for name, value in exact.items() if math.isfinite(value)}, text


def restored(value: float) -> float:
    """Return a metric as statistics read it: infinite from `LARGEST` on, where the run counts as diverged.

    JSON has whole numbers of any size: columns of tables have floats instead of those with more than 64 bits.
    """
    if abs(value) >= LARGEST:
        return math.inf if value > 0 else -math.inf
    return value if abs(value) < 2**63 else float(value)


def final_metrics(record: Record) -> dict[str, float]:
    """Return the exact final metrics of a record."""
    metrics: dict[str, Any] = {name: value for name, value in record.data.metrics.items() if not is_curve(name)}
    metrics |= json.loads(record.data.tags.get(SUMMARY_TAG) or "{}")
    absent: dict[str, Any] = {name: value for name, value in metrics.items() if value is None}
    return {name: restored(value) for name, value in metrics.items() if value is not None} | absent


def _rounded(value: float) -> float:
    return value if float(value).is_integer() else float(f"{value:.6g}")
