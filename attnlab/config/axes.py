"""Values of an axis: short labels, equality, and selection by a label or a name."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from attnlab._util.text import escape_controls
from attnlab.config.types import WITH
from attnlab.config.yaml import kind
from attnlab.errors import UserError, nearest

Label = str | int | float | bool
LAYERS = "model.layers"  # the axis whose values are patterns of variants


def text(value: Any) -> str:
    """Return a value on one line: ``strided_sparse stride=16``, ``0.9,0.98``, ``true``; a path shows only its class.

    The components of a variant follow its options: ``dense with qk_norm, gate per=head``; an empty list is ``none``. Control
    characters are escaped: names of cells are made of such texts.
    """
    if isinstance(value, dict):
        if set(value) == {"from"}:  # of init
            return text(value["from"])
        name, components = value.get("name"), value.get(WITH)
        parts = [escape_controls(name.rpartition(":")[2])] if isinstance(name, str) else []
        parts += [f"{escape_controls(str(k))}={text(v)}" for k, v in value.items() if k not in ("name", WITH)]
        if components:
            parts += [WITH, ", ".join(_item_texts(components if isinstance(components, list) else [components]))]
        return " ".join(parts)
    if isinstance(value, list):
        return ",".join(_item_texts(value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else escape_controls(str(value))


def _item_texts(items: list[Any]) -> list[str]:
    return [text({"name": item} if isinstance(item, str) else item) for item in items]


def pattern_text(names: Sequence[str]) -> str:
    """Return the names of the entries of a pattern on one line: ``[gru x2, dense]``."""
    runs = [(f"({name})" if ", " in name else name, len(list(group))) for name, group in groupby(names)]
    return f"[{', '.join(name if count == 1 else f'{name} x{count}' for name, count in runs)}]"


def layers_text(value: Any) -> str:
    """Return a value of ``model.layers``, as a study writes it, on one line."""
    if isinstance(value, dict) and "pattern" in value:
        match = value.get("match")
        return layers_text(value["pattern"]) + (f" match={text(match)}" if match else "")
    return pattern_text(_item_texts(value)) if isinstance(value, list) else text(value)


def labels(values: Sequence[Any], *, axis: str = "") -> list[Label]:
    """Return a label for each value: scalars as they are, paths by their class unless two labels would be equal.

    Args:
        axis: the axis of the values; patterns of ``model.layers`` have short labels.
    """
    result: list[Label] = []
    for value in values:
        if isinstance(value, str):
            result.append(text({"name": value}))
        elif axis == LAYERS:
            result.append(layers_text(value))
        else:
            result.append(value if isinstance(value, int | float) else text(value))
    if len(set(map(str, result))) < len(result):
        result = [
            escape_controls(value) if isinstance(value, str) else value if isinstance(value, int | float) else json.dumps(value)
            for value in values
        ]
    return result


def label_text(label: Any) -> str:
    """Return a label as it is compared: equal numbers have one text, because a column with 0 and 0.1 has 0.0."""
    if isinstance(label, float) and label.is_integer() and abs(label) < 2**53:
        label = int(label)
    return str(label).lower() if isinstance(label, bool) else str(label)


def canonical(value: Any) -> str:
    """Return a text that is equal for equal values: ``dense`` and ``{name: dense}``, 1 and 1.0, but not 1 and true."""
    if isinstance(value, dict) and set(value) in ({"name"}, {"from"}):
        value = next(iter(value.values()))
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53:
        value = float(value)  # beyond 2**53, two integers may have one float
    return json.dumps(value, sort_keys=True, default=str)


def pick(axis: str, values: Sequence[Any], wanted: Any, *, place: str) -> list[int]:
    """Return the indices of the values that match ``wanted``: the equal one, else those with that label, else that name.

    Raises:
        UserError: no value matches; at ``place``.
    """
    written = [str(label) for label in labels(values, axis=axis)]
    tests = (
        lambda i: canonical(values[i]) == canonical(wanted),
        lambda i: written[i] == (layers_text(wanted) if axis == LAYERS else text(wanted)),
        lambda i: isinstance(wanted, str) and wanted in _names(values[i]),
    )
    for test in tests:
        matches = [i for i in range(len(values)) if test(i)]
        if matches:
            return matches
    near = nearest(wanted, written) if isinstance(wanted, str) else ""
    raise UserError(f"{axis}: expected one of {', '.join(written)}, got {kind(wanted)}{near}", place)


def _names(value: Any) -> list[str]:
    """Return the names of a value without its options: the full name, and the class name alone."""
    name = value.get("name") if isinstance(value, dict) else value
    return [name, name.rpartition(":")[2]] if isinstance(name, str) else []
