"""The JSON Schema of a study file, for completion and checks in an editor.

``python -m attnlab.config.schema > ablations/study.schema.json`` writes it; a study names it in its first line:
``# yaml-language-server: $schema=study.schema.json``. ``attnlab plan`` checks more than an editor can.
"""

import json
from typing import Any

from attnlab.config.checks import UNSEARCHABLE
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import LAYERS
from attnlab.config.validation import FILLED_IN


def json_schema() -> dict[str, Any]:
    """Return the schema of a study: the fields of a run in ``base``, every dotted path in ``grid``, ``over``, ``space``.

    The base and the grid of a study with ``command`` have their own names.
    """
    study = StudyConfig.model_json_schema()
    run = RunConfig.model_json_schema()
    definitions = run.pop("$defs")
    fields = {name: field for name, field in run["properties"].items() if name not in FILLED_IN}
    for definition in definitions.values():
        definition.pop("required", None)  # the grid may set what the base leaves out
    part = {"type": "object", "properties": fields, "additionalProperties": False}
    study["properties"]["stages"] |= {"additionalProperties": part}
    axes = _axes(fields, definitions)
    axes["machine"] = _axis(fields["machine"])
    study["properties"]["grid"]["properties"] = {LAYERS: True}  # its levels are lists, not mappings as of other axes
    training = {"base": {**part, "default": {}}, "grid": {"type": "object", "properties": axes}}
    study |= {"if": {"required": ["command"]}, "then": _of_commands(), "else": {"properties": training}}
    study["properties"]["over"]["anyOf"][0] |= {"properties": axes}
    searched = [path for path in axes if "." in path and path.partition(".")[0] not in UNSEARCHABLE]
    space = study["$defs"]["SearchConfig"]["properties"]["space"]
    space |= {"properties": {path: {"$ref": "#/$defs/Dimension"} for path in searched}}
    study["$defs"] |= definitions
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **study, "title": "attnlab study"}


def _of_commands() -> dict[str, Any]:
    """Return what the schema of a study with ``command`` adds."""
    value = {"type": ["string", "number", "boolean"]}
    values = {"type": "object", "additionalProperties": value}
    axis = {"anyOf": [{"type": "array", "items": value}, {"type": "object", "additionalProperties": values}]}
    metric = {"name": {"type": "string"}, "direction": {"enum": ["min", "max"]}}
    question = {"type": "object", "properties": metric, "required": list(metric), "additionalProperties": False}
    parts = {"base": values, "grid": {"type": "object", "additionalProperties": axis}, "metric": question}
    return {"properties": parts, "required": ["grid", "metric"]}


def _axes(fields: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return dotted path -> the schema of an axis over it, for every field in ``fields`` and every field of a section in it."""
    axes: dict[str, Any] = {}
    for name, field in fields.items():
        axes[name] = _axis(field)
        section = definitions.get(str(field.get("$ref", "")).rpartition("/")[2], {})
        axes |= {f"{name}.{inner}": _axis(schema) for inner, schema in section.get("properties", {}).items()}
    patterns = axes[LAYERS]["items"]
    axes[LAYERS] = {"anyOf": [axes[LAYERS], {"type": "object", "minProperties": 1, "additionalProperties": patterns}]}
    return axes


def _axis(field: dict[str, Any]) -> dict[str, Any]:
    items = {key: value for key, value in field.items() if key != "default"}
    return {"type": "array", "minItems": 1, "items": items}


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=1))
