"""Made-up studies of one question, without training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.random import RandomState

from attnlab.stats.compare import summarize_cells
from attnlab.stats.contrasts import StudyTable
from tests.support.specs import comparison_spec


def made_up_study(
    name: str,
    gaps: Mapping[str, float],
    *,
    seeds: Sequence[int] = range(5),
    metric: str = "bits_per_byte",
    base: float = 2.0,
    noise: float = 0.001,
    data: str = "",
    heads: Sequence[int] = (4,),
    **options: Any,
) -> StudyTable:
    """Return a study that compares variants with ``dense``.

    Args:
        name: of the study.
        gaps: variant -> its difference from ``dense``, in the metric.
        seeds: of every cell.
        metric: of the study.
        base: score of ``dense``.
        noise: standard deviation of a run.
        data: identity of the test data; the study's name by default.
        heads: values of a further axis; the difference is doubled with one head.
        options: further fields of the comparison.
    """
    random = RandomState(sum(name.encode()))
    runs = []
    for variant, gap in {"dense": 0.0, **gaps}.items():
        for number in heads:
            for seed in seeds:
                value = base + gap * (2 if number == 1 else 1) + random.normal(0, noise)
                cell = f"{variant} heads={number}" if len(heads) > 1 else variant
                fields = {"cell": cell, "variant": variant, "model.heads": number, "state": "completed", "seed": seed}
                runs.append({**fields, metric: value, "test": json.dumps({"data": data or name})})
    axes = ("variant", "model.heads") if len(heads) > 1 else ("variant",)
    direction = "max" if metric in ("accuracy", "score") else "min"
    spec = comparison_spec(name, axes, metric, direction, {"variant": "dense"}, **options)
    cells = summarize_cells(runs, spec)
    return StudyTable(name, spec, cells)
