"""A report's inputs, stored with its page, from which the page can be rendered again without MLflow.

`report.json` has the runs, the curves that are drawn, the attention maps, and the study's comparison and calls. A committed
report is checked by rendering it again: the page must be the one that the present code writes.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.files import require_no_pipe
from attnlab._version import __version__
from attnlab.errors import UserError, one_line
from attnlab.report.export import PRIVATE
from attnlab.report.methods import StudyInfo
from attnlab.report.plots.learning import drawn_curves
from attnlab.tracking.artifacts import AttentionMap

if TYPE_CHECKING:
    import pandas

FILE = "report.json"
CURVES = ("run_id", "name", "metric")  # columns that the points of one curve share


def save(
    folder: Path, *, info: StudyInfo, runs: pandas.DataFrame, curves: pandas.DataFrame, maps: Sequence[AttentionMap]
) -> None:
    """Write the inputs of a report to `report.json` in `folder`; takes the arguments of `attnlab.report.write.write`."""
    from pydantic import TypeAdapter

    spec = info.spec.for_task(info.task) if info.task else info.spec
    drawn: dict[tuple[str, str, str], list[tuple[int, float | None]]] = {}
    columns = (curves[name].tolist() for name in (*CURVES, "step", "value"))
    names = drawn_curves(curves, spec)
    for run_id, name, metric, step, value in zip(*columns, strict=True):
        if metric in names:
            drawn.setdefault((run_id, name, metric), []).append((step, _number(value)))
    content = {
        "version": __version__,
        "info": TypeAdapter(StudyInfo).dump_python(replace(info, selection=replace(info.selection, left_out=())), mode="json"),
        "left_out": [_to_json(run) for run in info.selection.left_out],
        "columns": [name for name in runs.columns if name not in PRIVATE],
        **_factored([_to_json(run) for run in runs.to_dict("records")]),
        "curves": [[*key, *zip(*points, strict=True)] for key, points in drawn.items()],
        "maps": [_map_to_json(map_) for map_ in maps],
    }
    (folder / FILE).write_text(
        json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n",
        encoding="utf-8",
        errors="backslashreplace",  # a valid escape in JSON, for the bytes of a file name that are not UTF-8
    )


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
    require_no_pipe(path)
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
    points = [
        (*key, step, value) for *key, steps, values in content["curves"] for step, value in zip(steps, values, strict=True)
    ]
    shared = dict(content.get("shared", {}))
    selection = replace(info.selection, left_out=tuple(_from_json(run) for run in content["left_out"]))
    return {
        "info": replace(info, selection=selection),
        "runs": pandas.DataFrame([_from_json({**shared, **run}) for run in content["runs"]], columns=content["columns"]),
        "curves": pandas.DataFrame(points, columns=[*CURVES, "step", "value"]),
        "maps": [_map_from_json(map_) for map_ in content["maps"]],
    }


def _to_json(run: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a run without absent values and without paths of one machine."""
    known: Iterable[tuple[str, Any]] = (
        (str(name), value) for name, value in run.items() if name not in PRIVATE and value is not None and value == value
    )
    return {name: _scalar(value) for name, value in known}


def _factored(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields that all runs share, and each run without them: most of a configuration is the same in all runs."""
    texts = [{name: json.dumps(value) for name, value in run.items()} for run in runs]  # 1, 1.0 and true are equal in Python
    first = texts[0] if texts else {}
    common = {name for name, text in first.items() if all(other.get(name) == text for other in texts)}
    shared = {name: value for name, value in runs[0].items() if name in common} if runs else {}
    return {"shared": shared, "runs": [{name: value for name, value in run.items() if name not in common} for run in runs]}


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
