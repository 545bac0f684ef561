"""A report's inputs, stored with its page, from which the page can be rendered again without MLflow.

`report.json` has the runs, the curves that are drawn, the attention maps, and the study's comparison and calls, each once: a
line for each field of the runs. A committed report is checked by rendering it again: the page must be the one that the present
code writes. The page's tables are exported as CSV files as well.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.cost_metrics import shown_in
from attnlab._util.metrics import settled
from attnlab._version import __version__
from attnlab.errors import UserError, one_line
from attnlab.report.plots.learning import drawn_curves
from attnlab.report.wording import describe_verdict
from attnlab.stats.compare import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.joint import simultaneous_interval
from attnlab.stats.records import as_columns
from attnlab.study.comparison import StudyInfo
from attnlab.tracking.artifacts import AttentionMap

if TYPE_CHECKING:
    import pandas

PRIVATE = ("folder", "sources")  # columns with paths of one machine

FILE = "report.json"
CURVES = ("run_id", "name", "metric")  # columns that the points of one curve share
DIGITS = 6  # significant, of a point of a curve and of a number in a table: more than a page shows


def export(
    folder: Path,
    *,
    cells: Sequence[CellSummary],
    runs: pandas.DataFrame,
    spec: ComparisonSpec,
    further: Mapping[str, pandas.DataFrame] | None = None,
) -> None:
    """Write the tables of a report, each as .csv.

    `cells` has one row per cell, and another one for each comparison with a further baseline; `runs` has one row per run,
    trials included. `further` are the tables of the study's analyses, by name.
    """
    _single_typed(runs).to_csv(folder / "runs.csv", index=False)
    for name, frame in {"cells": cells_frame(cells, spec), **(further or {})}.items():
        frame.map(_settled).to_csv(folder / f"{name}.csv", index=False)


def _settled(value: Any) -> Any:
    """Round a number of a table for the file, in two steps, so that it does not depend on the processor."""
    if not isinstance(value, float) or value.is_integer():
        return value
    return float(f"{settled(value):.{DIGITS}g}")


def cells_frame(cells: Sequence[CellSummary], spec: ComparisonSpec) -> pandas.DataFrame:
    """Return the verdict table in full precision."""
    import pandas

    return pandas.DataFrame([_cell_record(cell, spec) for cell in comparisons(cells)])


def _cell_record(cell: CellSummary, spec: ComparisonSpec) -> dict[str, Any]:
    difference = cell.difference
    paired = difference.interval if difference else None
    simultaneous = simultaneous_interval(difference) if difference else None
    for_new_items = cell.for_new_items
    return {
        "cell": cell.name,
        **{axis: cell.axes[axis] for axis in spec.axes},
        **as_columns(cell.value, n="n", mean=spec.metric, sd="sd", low="low", high="high"),
        "baseline": cell.baseline,
        **as_columns(paired, n="n_paired", mean="difference", low="difference_low", high="difference_high"),
        **as_columns(simultaneous, low="simultaneous_low", high="simultaneous_high"),
        "new_items_low": for_new_items[0] if for_new_items else None,
        "new_items_high": for_new_items[1] if for_new_items else None,
        **as_columns(difference, p="p", p_holm="p_holm", p_equivalent_holm="p_equivalent_holm"),
        **spec.estimator.columns(cell),
        **as_columns(difference, effect_size="effect_size"),
        "verdict": describe_verdict(cell.verdict),
        "fragile": bool(cell.verdict and cell.verdict.fragile),
        **{m.name: cell.costs[m.name].mean if m.name in cell.costs else None for m in shown_in("cost table")},
        "outcome": cell.outcome,
        "reasons": "; ".join(cell.reasons),
    }


def _single_typed(runs: pandas.DataFrame) -> pandas.DataFrame:
    """Return the runs with one type per column: columns of mixed types, lists or dicts become text."""
    frame = runs.drop(columns=[name for name in PRIVATE if name in runs])
    for name in frame.columns:
        types = {type(value) for value in frame[name] if value is not None and value == value}
        if types & {list, dict, tuple} or (len(types) > 1 and not types <= {int, float}):
            frame[name] = [_text(value) for value in frame[name]]
    return frame


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return None if value != value else json.dumps(value, default=str)


def save(
    folder: Path, *, info: StudyInfo, runs: pandas.DataFrame, curves: pandas.DataFrame, maps: Sequence[AttentionMap]
) -> None:
    """Write the inputs of a report to `report.json` in `folder`; takes the arguments of `attnlab.report.write.write`."""
    from pydantic import TypeAdapter

    spec = info.spec.for_task(info.task) if info.task else info.spec
    content = {
        "version": __version__,
        "info": TypeAdapter(StudyInfo).dump_python(info, mode="json"),
        "columns": [name for name in runs.columns if name not in PRIVATE],
        "runs": _by_field(runs.drop(columns=[name for name in PRIVATE if name in runs])),
        "curves": _by_metric(curves, drawn_curves(curves, spec)),
        "maps": [_map_to_json(map_) for map_ in maps],
    }
    (folder / FILE).write_text(
        in_lines(content) + "\n",
        encoding="utf-8",
        errors="backslashreplace",  # a valid escape in JSON, for the bytes of a file name that are not UTF-8
    )


def rounded(curves: pandas.DataFrame) -> pandas.DataFrame:
    """Return curves as a report stores them, with `DIGITS` significant digits, so that a page repeats from what is stored."""
    return curves.assign(value=[float(f"{value:.{DIGITS}g}") for value in curves["value"]])


def load(folder: Path) -> dict[str, Any]:
    """Read what `save` wrote; the keys are the arguments of `attnlab.report.write.write`.

    Raises:
        UserError: the file is damaged.
    """
    content = read_object(folder / FILE)
    try:
        return _load(content)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, zlib.error) as error:
        version = content.get("version")
        by = "" if version == __version__ else f" by attnlab {__version__}, got some by attnlab {version}"
        message = f"expected the stored results of a report{by}: {one_line(str(error))[:300]}"
        raise UserError(message, str(folder / FILE)) from error


def stored_version(folder: Path) -> str:
    """Return the version of attnlab that wrote a report; "" if it has no `report.json`.

    Raises:
        UserError: the file is damaged.
    """
    return str(read_object(folder / FILE).get("version")) if (folder / FILE).is_file() else ""


def read_object(path: Path) -> dict[str, Any]:
    """Return what a file of a report holds, a JSON object; raise `UserError` if it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"expected the stored results of a report: {one_line(str(error))[:300]}", str(path)) from error
    if not isinstance(content, dict):
        raise UserError(f"expected the stored results of a report, a JSON object, got {type(content).__name__}", str(path))
    return content


def _load(content: Mapping[str, Any]) -> dict[str, Any]:
    import pandas
    from pydantic import TypeAdapter

    info = TypeAdapter(StudyInfo).validate_json(json.dumps(content["info"]))
    return {
        "info": info,
        "runs": pandas.DataFrame([_from_json(run) for run in _runs(content["runs"])], columns=content["columns"]),
        "curves": pandas.DataFrame(_points(content["curves"]), columns=[*CURVES, "step", "value"]),
        "maps": [_map_from_json(map_) for map_ in content["maps"]],
    }


def in_lines(content: Any, depth: int = 2) -> str:
    """Return compact JSON with a line for each entry of the outer objects, so that a difference of two files can be read."""
    if isinstance(content, dict) and content and depth:
        entries = (f"{json.dumps(name)}: {in_lines(value, depth - 1)}" for name, value in content.items())
        return "{\n" + ",\n".join(entries) + "\n}"
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _by_field(runs: pandas.DataFrame) -> dict[str, Any]:
    """Return the values of each field, None where it is absent: most fields have few values, which are stored once.

    A field is {"values": [distinct values], "runs": [index of each run's]}, without "runs" where all runs share one value,
    or a list with a value for each run, whichever is shorter.
    """
    fields = {}
    for name in runs:
        values = [_scalar(value) if value is not None and value == value else None for value in runs[name].tolist()]
        if all(value is None for value in values):
            continue
        texts = [json.dumps(value) for value in values]  # 1, 1.0 and true are equal in Python
        known = dict(zip(texts, values, strict=True))
        index = {text: i for i, text in enumerate(known)}
        short = {"values": [*known.values()], **({"runs": [index[text] for text in texts]} if len(known) > 1 else {})}
        fields[name] = min((values, short), key=lambda entry: len(json.dumps(entry)))
    return fields


def _runs(fields: Any) -> list[dict[str, Any]]:
    """Return the runs from the values of each field."""
    given = [entry if isinstance(entry, list) else entry.get("runs", [0]) for entry in fields.values()]
    runs: list[dict[str, Any]] = [{} for _ in range(max(map(len, given), default=0))]
    for name, entry in fields.items():
        values = entry if isinstance(entry, list) else [entry["values"][i] for i in entry.get("runs", [0] * len(runs))]
        for run, value in zip(runs, values, strict=True):
            if value is not None:
                run[name] = value
    return runs


def _by_metric(curves: pandas.DataFrame, metrics: Sequence[str]) -> dict[str, Any]:
    """Return the curves of some metrics: all runs, all lists of steps, each curve with the index of its run and steps."""
    drawn: dict[tuple[str, str, str], list[tuple[int, float | None]]] = {}
    of_metrics = curves.loc[curves["metric"].isin(metrics)]
    columns = (of_metrics[name].tolist() for name in (*CURVES, "step", "value"))
    for run_id, name, metric, step, value in zip(*columns, strict=True):
        drawn.setdefault((run_id, name, metric), []).append((step, _number(value)))
    runs: dict[tuple[str, str], int] = {}
    steps: dict[tuple[int, ...], int] = {}
    stored = []
    for (run_id, name, metric), points in drawn.items():
        at, values = zip(*points, strict=True)
        run, step = runs.setdefault((run_id, name), len(runs)), steps.setdefault(at, len(steps))
        stored.append([run, metric, step, values])
    return {"runs": [*runs], "steps": [*steps], "values": stored}


def _points(curves: Any) -> list[tuple[Any, ...]]:
    """Return a row for each point of the stored curves."""
    runs, steps = curves["runs"], curves["steps"]
    drawn = ((*runs[run], metric, steps[at], values) for run, metric, at, values in curves["values"])
    return [(*key, step, value) for *key, steps, values in drawn for step, value in zip(steps, values, strict=True)]


def _scalar(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    value = value.item() if hasattr(value, "item") else value
    return {"float": str(value)} if isinstance(value, float) and math.isinf(value) else value  # JSON has no infinity


def _from_json(run: Mapping[str, Any]) -> dict[str, Any]:
    import pandas

    values: dict[str, Any] = {
        name: float(value["float"]) if isinstance(value, dict) and list(value) == ["float"] else value
        for name, value in run.items()
    }
    return values | ({"started": pandas.Timestamp(values["started"])} if "started" in values else {})


def _number(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None


def _map_to_json(map_: AttentionMap) -> dict[str, Any]:
    fields: dict[str, Any] = {"words": list(map_.words), "reason": map_.reason, "run": map_.run, "cell": map_.cell}
    if map_.part:
        fields |= {"part": map_.part, "keys": list(map_.keys)}
    if map_.weights is not None:
        packed = zlib.compress(map_.weights.astype("float16").tobytes(), 9)
        fields |= {"shape": list(map_.weights.shape), "weights": base64.b64encode(packed).decode()}
    return fields


def _map_from_json(fields: Mapping[str, Any]) -> AttentionMap:
    import numpy

    weights = None
    if "weights" in fields:
        shape = [int(size) for size in fields["shape"]]
        size = 2 * math.prod(shape)  # bytes; one more is read, so that a longer content is noticed
        content = zlib.decompressobj().decompress(base64.b64decode(fields["weights"]), size + 1)
        weights = numpy.frombuffer(content, dtype="float16").reshape(shape)
    part, keys = fields.get("part", ""), tuple(fields.get("keys", ()))
    return AttentionMap(weights, tuple(fields["words"]), fields["reason"], fields["run"], fields["cell"], part, keys)
