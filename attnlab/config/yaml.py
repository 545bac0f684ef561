"""Strict YAML 1.2: plain values, and where in the file each of them stands.

``1e-3`` and ``20_000`` are numbers, ``no`` and ``off`` are strings, a duplicate key is an error. So are tags,
merge keys, several documents and aliases that contain themselves: a study has no need of them. Nothing in a file
is ever called or made into an object, and none can take more than a moment to read.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnlab.errors import UserError, nearest

_TAG = "tag:yaml.org,2002:"
_SCALARS = ("null", "bool", "int", "float", "str", "timestamp", "merge", "value")  # what plain text resolves to
LARGEST = 2**17  # bytes of a file
MOST = 20_000  # values in a file, those of an alias counted where it stands
DEEPEST = 50  # lists and mappings in one another
_TOO_DEEP = f"expected at most {DEEPEST} lists and mappings in one another, got more"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
Loc = tuple[str | int, ...]


def dotted(path: Loc) -> str:
    """``("grid", "train.lr", 1)`` -> ``grid.train.lr[1]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


@dataclass(frozen=True)
class SourceMap:
    """Where each value and each key stands; of something that came from no file, its dotted path."""

    values: dict[Loc, str] = field(default_factory=dict)
    keys: dict[Loc, str] = field(default_factory=dict)

    def at(self, path: Loc, *, key: bool = False) -> str:
        """The place of ``path``, or of the nearest thing around it that is written down."""
        if not self.values:
            return dotted(path)
        known = path
        if key and known in self.keys:
            return self.keys[known]
        while known not in self.values and known:
            known = known[:-1]
        return self.values[known]


def read(path: Path, *, what: str) -> tuple[dict[str, Any], SourceMap]:
    """A YAML file that holds a mapping.

    Args:
        what: what it should be, for messages: ``"a study"``.

    Raises:
        UserError: the file is not there, is not UTF-8, is not YAML, or holds no mapping.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)  # a device or a pipe has no end
    except FileNotFoundError:
        raise UserError(f"expected {what}, but there is no such file{_neighbour(path)}", str(path)) from None
    except (OSError, ValueError) as error:  # the latter: a name with a NUL in it
        raise UserError(f"expected {what} that can be read: {getattr(error, 'strerror', error)}", str(path)) from None
    if len(data) > LARGEST:
        raise UserError(f"expected {what}, got a file of more than {LARGEST:,} bytes", f"{path}:1:1")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise UserError(f"expected text in UTF-8, got the byte 0x{data[error.start]:02x}", f"{path}:{line}:{column}") from None
    value, places = parse(text, name=str(path))
    if not isinstance(value, dict):
        came = "an empty file" if value is None else kind(value)
        raise UserError(f"expected {what} (a mapping of keys), got {came}", places.at(()))
    return value, places


def _neighbour(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (nor a folder {path.parent})"
    return nearest(path.name, [p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml")])


def kind(value: Any) -> str:
    """A value in words for "got ...": short, and in YAML's spelling."""
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
    """One YAML document as plain values, with the place of each as ``name:line:column`` (counted from 1)."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    reader = YAML(typ="rt", pure=True)
    reader.max_depth = DEEPEST
    try:
        reader.composer.warn_double_anchors = False  # that is allowed: the nearest before an alias counts
        node = reader.compose(text)
    except MarkedYAMLError as error:
        raise _syntax(error, name, text) from None
    except YAMLError as error:  # a character that YAML does not allow: it comes without a line
        at = getattr(error, "position", 0)
        place = f"{name}:{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"
        raise UserError("expected text, got a control character", place) from None
    except Exception as error:  # for a bad escape or directive ruamel.yaml raises whatever it runs into
        raise UserError(f"not YAML: {type(error).__name__}: {error}", f"{name}:1:1") from None
    places = SourceMap({(): f"{name}:1:1"})
    return (None if node is None else _build(node, (), name, places, ())), places


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


def _build(node: Any, path: Loc, name: str, places: SourceMap, around: tuple[Any, ...]) -> Any:
    """The plain value of a node of the parsed document; fills ``places`` on the way."""
    place = _place(node, name)
    places.values[path] = place
    if node in around:
        raise UserError("expected a value, got an alias of something that contains it", place)
    if len(path) > DEEPEST:
        raise UserError(_TOO_DEEP, place)
    if len(places.values) > MOST:
        raise UserError(f"expected at most {MOST:,} values, got more (aliases of aliases?)", place)
    tag = str(node.tag).removeprefix(_TAG)
    if tag not in {"mapping": ("map",), "sequence": ("seq",)}.get(node.id, _SCALARS):
        raise UserError(f"expected a plain value, got one with the tag {str(node.tag)!r}", place)
    if node.id == "mapping":
        return _mapping(node, path, name, places, (*around, node))
    if node.id == "sequence":
        return [_build(child, (*path, i), name, places, (*around, node)) for i, child in enumerate(node.value)]
    try:
        return scalar(tag, _text(node, place))
    except ValueError:
        wanted = "a whole number of 64 bits" if tag == "int" else f"a value that fits the tag {tag!r}"
        raise UserError(f"expected {wanted}, got {kind(node.value)}", place) from None


def _mapping(node: Any, path: Loc, name: str, places: SourceMap, around: tuple[Any, ...]) -> dict:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        place = _place(key_node, name)
        if key_node.id != "scalar" or key_node.tag != f"{_TAG}str":
            raise UserError(f"expected the name of a key, got {kind(key_node.value)}", place)
        key = _text(key_node, place)
        if key in found:
            first = places.keys[(*path, key)].removeprefix(f"{name}:").split(":")[0]
            raise UserError(f"expected each key once, got {key!r} again (first in line {first})", place)
        places.keys[(*path, key)] = place
        found[key] = _build(value_node, (*path, key), name, places, around)
        if found[key] is None and not value_node.value:  # nothing was written: YAML's own place is the next line
            places.values[(*path, key)] = place
    return found


def _text(node: Any, place: str) -> str:
    """The text of a scalar; one with a NUL or half a character could be no file's name and could not be written."""
    if _CONTROL.search(node.value):
        raise UserError(f"expected text without control characters, got {kind(node.value)}", place)
    return node.value


def _place(node: Any, name: str) -> str:
    return f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def scalar(tag: str, text: str) -> str | int | float | bool | None:
    """The value of a scalar that YAML 1.2 resolved to ``tag``."""
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
    return text  # also dates, and the words that only YAML 1.1 took for booleans


def parse_assignments(items: Iterable[str]) -> dict[str, Any]:
    """``["train.steps=50", "variant=no_wo"]`` -> ``{"train.steps": 50, "variant": "no_wo"}``.

    Values are YAML, so ``{name: strided_sparse, stride: 16}`` is an assignment's value too.

    Raises:
        UserError: naming the assignment.
    """
    found: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        key = key.strip()
        if not equals or not key or not text.strip():
            raise UserError("expected key=value, such as train.steps=50", item)
        if key in found:
            raise UserError(f"expected each key once, got {key!r} again", item)
        try:
            found[key], _ = parse(text, name=item)
        except UserError as error:
            raise UserError(error.message, item) from None
    return found
