"""Strict YAML 1.2: plain values, and the line and column of each.

``1e-3`` and ``20_000`` are numbers, and ``no`` and ``off`` are strings. Duplicate keys, tags, merge keys, several documents
and aliases that contain themselves are errors. No value of a file is called or turned into an object, and limits on size,
depth and number of values bound the time to read one.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from attnlab.errors import UserError, nearest

_TAG = "tag:yaml.org,2002:"
_SCALARS = ("null", "bool", "int", "float", "str", "timestamp", "merge", "value")  # the tags to which plain text resolves
LARGEST = 2**17  # bytes of a file
MOST = 20_000  # values in a file, those of an alias counted at each use
DEEPEST = 50  # nesting of lists and mappings
_TOO_DEEP = f"expected at most {DEEPEST} lists and mappings in one another, got more"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
Loc = tuple[str | int, ...]  # keys and indices from the root down to a value, as in pydantic's errors


class Where(Protocol):
    """A function from a location to its place in a file, for example ``wo.yaml:12:5``."""

    def __call__(self, loc: Loc, /, *, key: bool = False) -> str:
        """Return the place of the value at ``loc``, or of its key if ``key`` is True."""
        ...


def constant_place(place: str) -> Where:
    """Return a ``Where`` that gives every location the same place, for example an assignment."""
    return lambda loc, /, *, key=False: place


def dotted(loc: Loc) -> str:
    """Return a location as text: ``("grid", "train.lr", 1)`` -> ``grid.train.lr[1]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".")


@dataclass(frozen=True)
class SourceMap:
    """The places of the values and keys of a file, as ``name:line:column``. Empty for a study that is a dict.

    Attributes:
        values: location -> place of the value.
        keys: location -> place of the key.
        text: the file's text; of a study that includes another file, its own.
    """

    values: dict[Loc, str] = field(default_factory=dict)
    keys: dict[Loc, str] = field(default_factory=dict)
    text: str = ""

    def at(self, loc: Loc, *, key: bool = False) -> str:
        """Return the place of ``loc``, or of the nearest value that contains it; without a file, the dotted path."""
        if not self.values:
            return dotted(loc)
        if key and loc in self.keys:
            return self.keys[loc]
        while loc not in self.values and loc:
            loc = loc[:-1]
        return self.values[loc]


def read(path: Path, *, what: str) -> tuple[dict[str, Any], SourceMap]:
    """Read a YAML file that holds a mapping.

    Args:
        path: of the file.
        what: the expected content, for messages, such as ``"a study"``.

    Returns:
        The values, and their places.

    Raises:
        UserError: the file does not exist, is larger than ``LARGEST``, or is not UTF-8, not YAML or not a mapping.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)  # bounded, because a device or a pipe may never end
    except FileNotFoundError:
        raise UserError(f"expected {what}, but the file does not exist{_neighbour(path)}", str(path)) from None
    except (OSError, ValueError) as error:  # ValueError: a name that contains a NUL
        raise UserError(f"cannot read {what}: {getattr(error, 'strerror', error)}", str(path)) from None
    if len(data) > LARGEST:
        raise UserError(f"expected {what}, got a file of more than {LARGEST:,} bytes", f"{path}:1:1")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise UserError(f"expected text in UTF-8, got the byte 0x{data[error.start]:02x}", f"{path}:{line}:{column}") from None
    value, source_map = parse(text, name=str(path))
    if not isinstance(value, dict):
        actual = "an empty file" if value is None else kind(value)
        raise UserError(f"expected {what} (a mapping of keys), got {actual}", source_map.at(()))
    return value, replace(source_map, text=text)


def _neighbour(path: Path) -> str:
    """Return a suggestion for the path of a file that does not exist."""
    if not path.parent.is_dir():
        return f" (no folder {path.parent})"
    return nearest(path.name, [p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml")])


def kind(value: Any) -> str:
    """Return a value in words for "got ...": short, and in YAML's spelling."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping of keys" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse(text: str, *, name: str) -> tuple[Any, SourceMap]:
    """Parse one YAML document; return its plain values, and their places as ``name:line:column``, both counted from 1."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    reader = YAML(typ="rt", pure=True)
    reader.max_depth = DEEPEST
    try:
        reader.composer.warn_double_anchors = False  # YAML allows them: an alias refers to the nearest preceding one
        node = reader.compose(text)
    except MarkedYAMLError as error:
        raise _syntax(error, name, text) from None
    except YAMLError as error:  # a character that YAML does not allow: the error has no line
        at = getattr(error, "position", 0)
        place = f"{name}:{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"
        raise UserError("expected text, got a control character", place) from None
    except Exception as error:  # a bad escape or directive makes ruamel.yaml raise errors of any kind
        raise UserError(f"not YAML: {type(error).__name__}: {error}", f"{name}:1:1") from None
    source_map = SourceMap({(): f"{name}:1:1"})
    return (None if node is None else _build(node, (), name, source_map, ())), source_map


def _syntax(error: Any, name: str, text: str) -> UserError:
    mark = error.problem_mark or error.context_mark
    problem = str(error.problem or error.context)
    line = text.splitlines()[mark.line] if mark.line < len(text.splitlines()) else ""
    if "\t" in line[: mark.column + 1]:
        problem = "expected spaces for indentation, got a tab"
    elif "maximum depth" in problem:
        problem = _TOO_DEEP
    elif "another document" in problem:
        problem = "expected one document, got a second one after '---'"
    elif "mapping values are not allowed" in problem:
        problem = "expected no second ':' here (indentation, or quotes around a text with a colon?)"
    elif error.context_mark is not None and error.context:
        problem = f"{problem}, {error.context} that begins in line {error.context_mark.line + 1}"
    return UserError(f"not YAML: {problem}", f"{name}:{mark.line + 1}:{mark.column + 1}")


def _build(node: Any, loc: Loc, name: str, source_map: SourceMap, ancestors: tuple[Any, ...]) -> Any:
    """Return the plain value of a node of the parsed document, and add its place and those inside it to ``source_map``.

    Args:
        ancestors: the nodes that contain this one; an alias of one of them would recurse forever.
    """
    place = _place(node, name)
    source_map.values[loc] = place
    if node in ancestors:
        raise UserError("expected a value, got an alias of something that contains it", place)
    if len(loc) > DEEPEST:
        raise UserError(_TOO_DEEP, place)
    if len(source_map.values) > MOST:
        raise UserError(f"expected at most {MOST:,} values, got more (aliases of aliases?)", place)
    tag = str(node.tag).removeprefix(_TAG)
    if tag not in {"mapping": ("map",), "sequence": ("seq",)}.get(node.id, _SCALARS):
        raise UserError(f"expected a plain value, got one with the tag {str(node.tag)!r}", place)
    if node.id == "mapping":
        return _mapping(node, loc, name, source_map, (*ancestors, node))
    if node.id == "sequence":
        return [_build(child, (*loc, i), name, source_map, (*ancestors, node)) for i, child in enumerate(node.value)]
    try:
        value = scalar(tag, _text(node, place))
        if value != value:  # NaN is equal to nothing, itself included: no cell could be found again
            raise UserError(f"expected a number, got {kind(node.value)}", place)
        return value
    except ValueError:
        wanted = "a whole number of 64 bits" if tag == "int" else f"a value that fits the tag {tag!r}"
        raise UserError(f"expected {wanted}, got {kind(node.value)}", place) from None


def _mapping(node: Any, loc: Loc, name: str, source_map: SourceMap, ancestors: tuple[Any, ...]) -> dict:
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        place = _place(key_node, name)
        if key_node.id != "scalar" or key_node.tag != f"{_TAG}str":
            raise UserError(f"expected the name of a key, got {kind(key_node.value)}", place)
        key = _text(key_node, place)
        if key in mapping:
            first = source_map.keys[(*loc, key)].removeprefix(f"{name}:").split(":")[0]
            raise UserError(f"expected each key once, got {key!r} again (first in line {first})", place)
        source_map.keys[(*loc, key)] = place
        mapping[key] = _build(value_node, (*loc, key), name, source_map, ancestors)
        if mapping[key] is None and not value_node.value:  # an empty value: YAML places it in the next line
            source_map.values[(*loc, key)] = place
    return mapping


def _text(node: Any, place: str) -> str:
    """Return the text of a scalar without control characters and surrogates, which file names and records cannot hold."""
    if _CONTROL.search(node.value):
        raise UserError(f"expected text without control characters, got {kind(node.value)}", place)
    return node.value


def _place(node: Any, name: str) -> str:
    return f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def scalar(tag: str, text: str) -> str | int | float | bool | None:
    """Return the value of a scalar that YAML 1.2 resolves to ``tag``."""
    if tag == "null":
        return None
    if tag == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    number = text.replace("_", "").lower()
    if tag == "int":
        whole = int(number, 0) if number.lstrip("+-")[:2] in ("0x", "0o", "0b") else int(number)
        if not -(2**63) <= whole < 2**63:
            raise ValueError(number)
        return whole
    if tag == "float":
        return float(number.replace(".inf", "inf").replace(".nan", "nan"))
    return text  # including dates, and the words that are booleans only in YAML 1.1


def parse_assignments(items: Iterable[str]) -> dict[str, Any]:
    """Parse ``["train.steps=50", "variant=no_wo"]`` into ``{"train.steps": 50, "variant": "no_wo"}``.

    Values are YAML, and may be mappings such as ``{name: strided_sparse, stride: 16}``.

    Raises:
        UserError: not ``key=value``, a key given twice, or a value that is not YAML; its place is the assignment.
    """
    assignments: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        key = key.strip()
        if not equals or not key or not text.strip():
            raise UserError("expected key=value, such as train.steps=50", item)
        if key in assignments:
            raise UserError(f"expected each key once, got {key!r} again", item)
        try:
            assignments[key], _ = parse(text, name=item)
        except UserError as error:
            raise UserError(error.message, item) from None
    return assignments


def assignment(key: str, value: Any) -> str:
    """Return an assignment in command-line syntax, for messages."""
    return f"{key}={value if isinstance(value, str) else json.dumps(value)}"
