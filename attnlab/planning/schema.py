"""The JSON Schema of a study file with the names of all registered classes and their options, for completion in an editor.

``attnlab.config.schema`` describes the keys alone, because it imports no class.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import PydanticUserError, TypeAdapter

from attnlab._util.options import options_of
from attnlab.config.reader import read_study
from attnlab.config.schema import json_schema
from attnlab.config.types import WITH
from attnlab.planning import samplers
from attnlab.planning.resolve import import_files
from attnlab.registry import COMPONENTS, OPTIMIZERS, POSITIONS, TASKS, VARIANTS

KINDS = {  # key of a study -> definition of its values
    "task": "task",
    "variant": "variant",
    "layers": "variant",
    "pattern": "variant",
    "position": "position",
    WITH: "component",
    "factors": "component",
    "optimizer": "optimizer",
    "sampler": "sampler",
    "pruner": "pruner",
}
OPTUNA = ("sampler", "pruner")


def study_schema() -> dict[str, Any]:
    """Return the schema of a study in which every name is a known class, and its options are the constructor's arguments.

    The classes of a user are known once their file is imported. A name with a colon (``cosine.py:Cosine``) may have any
    options.
    """
    known = {registry.kind.split()[0]: registry for registry in (TASKS, VARIANTS, POSITIONS, COMPONENTS, OPTIMIZERS)}
    classes = {kind: {name: registry.get(name) for name in registry.names()} for kind, registry in known.items()}
    classes |= {kind: samplers.classes(kind) for kind in OPTUNA}
    schema = json_schema()
    schema["$defs"] |= {kind: _definition(kind, named) for kind, named in classes.items()}
    schema["$defs"]["positions"] = {"anyOf": [*_names(classes["position"]), {"$ref": "#/$defs/position"}]}
    component = [*_names(classes["component"]), {"$ref": "#/$defs/component"}]
    schema["$defs"]["components"] = {"anyOf": [*component, {"type": "array", "items": {"anyOf": component}}]}
    _refer(schema, "", classes)
    return schema


def schema_text(study: str | Path | None = None) -> str:
    """Return the schema as the text of a file.

    Args:
        study: a study file; the files that its ``imports`` names are imported first, so that their classes are known.
    """
    if study is not None:
        import_files(read_study(study))
    return json.dumps(study_schema(), indent=1) + "\n"


def _names(classes: dict[str, type]) -> list[dict[str, Any]]:
    """Return the alternatives for a name: a known one, or a path."""
    return [{"enum": list(classes)}, {"type": "string", "pattern": ":"}]


def _definition(kind: str, classes: dict[str, type]) -> dict[str, Any]:
    """Return the schema of ``{name: ..., option: ...}``."""
    extra: dict[str, Any] = {"name": {}}
    if kind == "variant":
        extra |= {"match": {}, "position": {"$ref": "#/$defs/positions"}, WITH: {"$ref": "#/$defs/components"}}
    cases = [
        {
            "if": {"properties": {"name": {"const": name}}, "required": ["name"]},
            "then": {"properties": {**extra, **_options(kind, cls)}, "additionalProperties": False},
        }
        for name, cls in classes.items()
    ]
    return {"type": "object", "required": ["name"], "properties": {"name": {"anyOf": _names(classes)}}, "allOf": cases}


def _options(kind: str, cls: type) -> dict[str, Any]:
    """Return option -> schema, with its type and default where JSON can say them."""
    parameters = options_of(cls) if kind not in OPTUNA else samplers.options_of(cls)
    try:
        hints = get_type_hints(cls.__init__)
    except NameError:  # a type that is imported for type checkers only
        hints = {}
    return {name: _option(hints.get(name), parameter.default) for name, parameter in parameters.items()}


def _option(hint: Any, default: Any) -> dict[str, Any]:
    try:
        schema = TypeAdapter(hint).json_schema() if hint is not None else {}
    except PydanticUserError:  # a type that only Python code can make
        schema = {}
    try:
        json.dumps(default)
    except TypeError:  # no default, or one that a study cannot write
        return schema
    return {**schema, "default": default}


def _refer(node: Any, key: str, classes: dict[str, dict[str, type]]) -> None:
    """Let every value that names a class, below the key ``key``, refer to the definition of its kind."""
    if isinstance(node, list):
        for item in node:
            _refer(item, key, classes)
    if not isinstance(node, dict):
        return
    kind, alternatives = KINDS.get(key), node.get("anyOf", [])
    if kind and any(_is_named(item) for item in alternatives):
        others = [item for item in alternatives if not _is_named(item) and item.get("type") != "string"]
        node["anyOf"] = [*_names(classes[kind]), {"$ref": f"#/$defs/{kind}"}, *others]
    for name, value in node.items():
        if name == "properties":
            for path, field in value.items():
                _refer(field, path.rpartition(".")[2], classes)
        else:
            _refer(value, key, classes)


def _is_named(schema: dict[str, Any]) -> bool:
    """Return True for the schema of an object with a name."""
    return schema.get("required") == ["name"]
