"""Every key of a study file, read from the classes that validate it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import Named
from attnlab.config.validation import FILLED_IN

NAMED = "a name, or {name: ..., option: ...}"


def config_keys() -> Iterator[tuple[str, str, str]]:
    """Yield (path, default, description) of each key, in the order of the classes; `base` holds the keys of a run."""
    for name, field in StudyConfig.model_fields.items():
        yield from _section("base.", RunConfig) if name == "base" else _key(name, field)


def _section(prefix: str, section: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    for name, field in section.model_fields.items():
        if name not in FILLED_IN or section is not RunConfig:
            yield from _key(f"{prefix}{field.alias or name}", field)


def _key(path: str, field: FieldInfo) -> Iterator[tuple[str, str, str]]:
    types = [field.annotation, *get_args(field.annotation)]
    types += [get_args(type_)[0] for type_ in types if get_origin(type_) is Annotated]
    models = [type_ for type_ in types if isinstance(type_, type) and issubclass(type_, BaseModel)]
    named = [model for model in models if issubclass(model, Named)]
    if models and not named:
        suffix = {list: "[]", dict: ".PATH"}.get(get_origin(field.annotation), "")
        yield from _section(f"{path}{suffix}.", models[0])
        return
    choices = [str(choice) for type_ in types if get_origin(type_) is Literal for choice in get_args(type_)]
    if choices and bool in types:
        choices = ["true", "false", *choices]
    words = [", ".join(choices) or (NAMED if named else ""), field.description or ""]
    default = "required" if field.is_required() else _format_default(field.default)
    yield path, default, "; ".join(word for word in words if word)


def _format_default(value: Any) -> str:
    return value.label if isinstance(value, Named) else json.dumps(value)
