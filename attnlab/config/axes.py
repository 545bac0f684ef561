"""Values of an axis: their short labels, when two are the same, and which of them a word means."""

import json
from collections.abc import Sequence
from typing import Any

from attnlab.config.yaml import kind
from attnlab.errors import UserError, nearest

Label = str | int | float | bool


def text(value: Any) -> str:
    """A value on one line: ``strided_sparse stride=16``, ``0.9,0.98``, ``true``; of a path only the class."""
    if isinstance(value, dict):
        name = value.get("name")
        named = [name.rpartition(":")[2]] if isinstance(name, str) else []
        return " ".join([*named, *(f"{k}={text(v)}" for k, v in value.items() if k != "name")])
    if isinstance(value, list):
        return ",".join(map(text, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


def labels(values: Sequence[Any]) -> list[Label]:
    """A label for each value: scalars as they are, paths by their class unless two would look the same."""
    found: list[Label] = []
    for value in values:
        if isinstance(value, str):
            found.append(text({"name": value}))
        else:
            found.append(value if isinstance(value, int | float) else text(value))
    if len(set(map(str, found))) < len(found):
        found = [value if isinstance(value, str | int | float) else json.dumps(value) for value in values]
    return found


def canonical(value: Any) -> str:
    """The same for two ways to write a value: ``dense``, ``{name: dense}``; 1, 1.0; but not 1, true."""
    if isinstance(value, dict) and set(value) == {"name"}:
        value = value["name"]
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53:
        value = float(value)  # beyond that not every whole number has a float of its own
    return json.dumps(value, sort_keys=True, default=str)


def pick(axis: str, values: Sequence[Any], wanted: Any, *, place: str) -> list[int]:
    """Which values of an axis ``wanted`` means: the one it equals, else those of that label or name.

    Raises:
        UserError: none.
    """
    written = [str(label) for label in labels(values)]
    tests = (
        lambda i: canonical(values[i]) == canonical(wanted),
        lambda i: written[i] == text(wanted),
        lambda i: isinstance(wanted, str) and wanted in _names(values[i]),
    )
    for test in tests:
        found = [i for i in range(len(values)) if test(i)]
        if found:
            return found
    near = nearest(wanted, written) if isinstance(wanted, str) else ""
    raise UserError(f"{axis}: expected one of {', '.join(written)}, got {kind(wanted)}{near}", place)


def _names(value: Any) -> list[str]:
    """What a value may be called without its options."""
    name = value.get("name") if isinstance(value, dict) else value
    return [name, name.rpartition(":")[2]] if isinstance(name, str) else []
