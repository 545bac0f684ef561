"""Preset views of a study in the MLflow UI: a table of its cells, and one of its runs, each with charts.

A view is an experiment tag in the format that MLflow's "share" button writes. That format is undocumented, so nothing else
depends on it.
"""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnlab._util.cost_metrics import PROGRAM_COSTS, shown_in
from attnlab.tracking.record import CELL_RUN, SENTENCE_TAG, VERDICT_TAG, VIEW, tag, with_tag
from attnlab.tracking.tags import param_names

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.tracking.cells import CellRun

Chart = dict[str, Any]
NUMBERS = ("difference", "low", "high", "p", "seeds", "half_width")  # of a cell, besides the mean of the metric and costs


def cells_view(cells: Sequence[CellRun], metric: str, direction: str) -> str:
    """Return the view of the cells of a study, the best one first."""
    params = list(cells[0].params)
    every = dict.fromkeys(name for cell in cells for name in cell.metrics if not name.startswith(("simultaneous", "new_items")))
    means = [name for name in every if name not in (metric, *NUMBERS)]
    metrics = [metric, *(name for name in NUMBERS if name in every), *means]
    columns = [f"tags.`{VERDICT_TAG}`", *_metrics(metrics), *_params(params), f"tags.`{SENTENCE_TAG}`"]
    against = [{"key": name, "type": "PARAM"} for name in params]
    charts = {
        "Difference from the baseline": [_bar("difference"), *(_scatter("difference", of) for of in against)],
        "Means of all seeds": [_scatter(metric, of) for of in against],
        "Costs": [_scatter(metric, {"key": name, "type": "METRIC"}) for name in means],
    }
    return _packed(f"tags.`{CELL_RUN}` != ''", metric, direction, columns, charts)


def runs_view(plan: Plan) -> str:
    """Return the view of the runs of a study, the best one first."""
    swept = [plan.study.sweep.path] if plan.study.sweep else []
    names = param_names([*plan.cells[0].axes, *swept])
    params = [*names.values(), *(["phase"] if plan.searched else []), "seed"]
    is_program = plan.study.command is not None
    costs = [cost.name for cost in shown_in("mlflow columns") if (cost.name in PROGRAM_COSTS) == is_program]
    columns = [*_params(params), *_metrics([*plan.metrics, *costs]), f"tags.`{tag('state')}`"]
    curve = "curve" if is_program else "valid"
    charts = {
        "Learning curves": [_line(name) for name in (*(f"{curve}/{metric}" for metric in plan.metrics), "train/loss")],
        "Result": [_bar(name) for metric in plan.metrics for name in (metric, f"valid_{metric}")],
    }
    return _packed(with_tag("current", "yes"), plan.metric, plan.direction, columns, charts)


def view_tags(key: str, name: str, state: str) -> dict[str, str]:
    """Return the tag of a view, which MLflow lists under a name."""
    return {f"{VIEW}{key}": json.dumps({"name": name, "createdAt": 0, "state": state})}


def _packed(search: str, metric: str, direction: str, columns: Sequence[str], charts: Mapping[str, Sequence[Chart]]) -> str:
    """Return a view as MLflow stores it: deflated JSON in base64."""
    sections = [
        {"uuid": _id(title), "name": title, "display": True, "isReordered": True, "deleted": False, "isGenerated": False}
        for title in charts
    ]
    placed = [chart | {"metricSectionId": _id(title)} for title, shown in charts.items() for chart in shown]
    state = {
        "searchFilter": search,
        "orderByKey": f"metrics.`{metric}`",
        "orderByAsc": direction == "min",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
        "columnOrder": columns,  # MLflow puts its fixed columns after them
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": placed,
        "compareRunSections": sections,
        "isAccordionReordered": True,
        "hideEmptyCharts": True,
        "autoRefreshEnabled": True,
    }
    return f"deflate;{base64.b64encode(zlib.compress(json.dumps(state).encode(), 9)).decode()}"


def _metrics(names: Sequence[str]) -> list[str]:
    return [f"metrics.`{name}`" for name in names]


def _params(names: Sequence[str]) -> list[str]:
    return [f"params.`{name}`" for name in names]


def _id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))  # stable when the view is rewritten


def _chart(kind: str, name: str, **options: Any) -> Chart:
    return {"uuid": _id(f"{kind}/{name}"), "type": kind, "deleted": False, "isGenerated": False, **options}


def _bar(metric: str) -> Chart:
    return _chart("BAR", metric, metricKey=metric, runsCountToCompare=100)


def _scatter(metric: str, against: Mapping[str, str]) -> Chart:
    """Return a chart whose axes begin near the smallest value, unlike those of bars."""
    x, y = (against, {"key": metric, "type": "METRIC"})
    return _chart("SCATTER", f"{metric}/{against['key']}", xaxis=x, yaxis=y, runsCountToCompare=100)


def _line(metric: str) -> Chart:
    axes = {"xAxisKey": "step", "yAxisKey": "metric", "scaleType": "linear", "xAxisScaleType": "linear"}
    options = {"lineSmoothness": 0, "useGlobalXaxisKey": True, "useGlobalLineSmoothing": True, "runsCountToCompare": 100}
    return _chart("LINE", metric, metricKey=metric, selectedMetricKeys=[metric], **axes, **options)
