"""Every key of a study file, read from the classes that check it: `attnlab list config`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from attnlab.cli.printing import show
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import Named
from attnlab.config.validation import FILLED_IN

NAMED = "a name, or {name: ..., option: ...}"


def print_keys() -> None:
    """Print a line a key: its path, its default, and what it is."""
    show(["key", "default", "what it is"], list(keys()), every=True)


def keys() -> Iterator[tuple[str, str, str]]:
    """Each key as (path, default, what it is), in the order of the classes; `base` holds those of a run."""
    for name, field in StudyConfig.model_fields.items():
        yield from _of("base.", RunConfig) if name == "base" else _key(name, field)


def _of(prefix: str, section: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    for name, field in section.model_fields.items():
        if name not in FILLED_IN or section is not RunConfig:
            yield from _key(f"{prefix}{name}", field)


def _key(path: str, field: FieldInfo) -> Iterator[tuple[str, str, str]]:
    parts = [field.annotation, *get_args(field.annotation)]
    parts += [get_args(part)[0] for part in parts if get_origin(part) is Annotated]
    classes = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    named = [each for each in classes if issubclass(each, Named)]
    if classes and not named:
        many = {list: "[]", dict: ".PATH"}.get(get_origin(field.annotation), "")
        yield from _of(f"{path}{many}.", classes[0])
        return
    choices = [str(choice) for part in parts if get_origin(part) is Literal for choice in get_args(part)]
    words = [", ".join(choices) or (NAMED if named else ""), field.description or ""]
    yield path, "needed" if field.is_required() else _written(field.default), "; ".join(word for word in words if word)


def _written(value: Any) -> str:
    return value.label if isinstance(value, Named) else json.dumps(value)
