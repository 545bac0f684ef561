"""The files that a configuration, or C++ or CUDA code, builds on: read from their text, transitively.

A configuration in YAML, JSON or TOML names its base files under keys such as ``defaults``, ``extends``, ``base`` or
``_base_``, relative to itself or to the folder of the study, with or without a suffix. Entries of Hydra's ``defaults`` are
``group: option``. Sources include headers by ``#include "name"``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

CONFIGURATIONS = (".yaml", ".yml", ".toml", ".json")
SOURCES = (".cu", ".cuh", ".cpp", ".cxx", ".cc", ".c", ".hpp", ".hxx", ".h")
BASE_KEY = re.compile(
    r"[_$]*((defaults?|extends?|bases?|parents?|includes?|inherits?|imports?)([_-]?(from|files?|configs?|paths?))?)_*",
    re.IGNORECASE,
)
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
GROUP_PREFIX = re.compile(r"^(optional\s+|override\s+)+")  # of Hydra
LARGEST = 2**20  # bytes of a file that is read


def base_files(start: Iterable[Path], folders: Iterable[Path] = ()) -> set[Path]:
    """Return the files that configurations and sources name as their bases or headers, transitively.

    Args:
        start: the files; others than configurations and sources name nothing.
        folders: to which names are relative, in addition to the folder of each file.
    """
    found, waiting, folders = set[Path](), list(start), tuple(folders)
    while waiting:
        file = waiting.pop()
        new = set(_bases(file, folders)) - found
        found |= new
        waiting += new
    return found


def configuration_file(folder: Path, name: str) -> Path | None:
    """Return the configuration with a name in a folder, with or without its suffix; None when there is none."""
    if not name or "\0" in name or "\n" in name or len(name) > 200:
        return None
    has_suffix = name.lower().endswith((*CONFIGURATIONS, ".py"))
    for suffix in ("",) if has_suffix else CONFIGURATIONS:
        place = Path(os.path.normpath(folder / f"{name}{suffix}"))
        if place.is_file():
            return place
    return None


def _bases(file: Path, folders: tuple[Path, ...]) -> Iterator[Path]:
    suffix = file.suffix.lower()
    try:
        if suffix not in (*CONFIGURATIONS, *SOURCES) or file.stat().st_size > LARGEST:
            return
        content = file.read_bytes()
    except OSError:
        return
    if suffix in SOURCES:
        places = (Path(os.path.normpath(file.parent / os.fsdecode(name))) for name in INCLUDE.findall(content))
        yield from (place for place in places if place.is_file())
        return
    for name, is_option in _names(_parsed(content, suffix), set()):
        places = (file.parent, *folders)
        if is_option:  # of a group, whose folder is relative to the root of the configurations
            places += tuple(file.parents[1:3])
        found = (configuration_file(folder, name.lstrip("/") if is_option else name) for folder in places)
        yield from (path for path in found if path is not None)


def _parsed(content: bytes, suffix: str) -> Any:
    """Return the values of a file; None when it cannot be read: the program that reads it fails with its own message."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        text = content.decode("utf-8-sig")
        if suffix == ".json":
            return json.loads(text)
        if suffix == ".toml":
            import tomllib

            return tomllib.loads(text)
        known: dict[int, Any] = {}
        return [_plain(node, known) for node in YAML(typ="safe", pure=True).compose_all(text)]
    except (ValueError, RecursionError, YAMLError):
        return None


def _plain(node: Any, known: dict[int, Any]) -> Any:
    """Return the texts of a YAML node in lists and mappings, also nodes with a tag that the program defines.

    Args:
        node: of a composed document, in which aliases are the same node.
        known: id of a node -> its list or mapping, so that aliases of aliases cost nothing.
    """
    if isinstance(node.value, str):
        return node.value
    if id(node) not in known:
        known[id(node)] = result = [] if node.id == "sequence" else {}
        if isinstance(result, list):
            result += [_plain(child, known) for child in node.value]
        else:
            texts = ((key.value if isinstance(key.value, str) else "", value) for key, value in node.value)
            result |= {key: _plain(value, known) for key, value in texts}
    return known[id(node)]


def _names(value: Any, seen: set[int]) -> Iterator[tuple[str, bool]]:
    """Yield the names under the keys of bases, and whether each is an option of a group or of Hydra's ``defaults``.

    Args:
        value: of a file.
        seen: ids of the lists and mappings that were read.
    """
    if not isinstance(value, list | dict) or id(value) in seen:
        return
    seen.add(id(value))
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(key, str) and BASE_KEY.fullmatch(key):
            yield from _named(part, is_defaults=key.strip("_$").lower() == "defaults")
        yield from _names(part, seen)


def _named(value: Any, *, is_defaults: bool) -> Iterator[tuple[str, bool]]:
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, str):
            yield entry.partition("@")[0] if is_defaults else entry, is_defaults
        elif isinstance(entry, dict) and is_defaults:
            for group, options in entry.items():
                folder = GROUP_PREFIX.sub("", str(group)).partition("@")[0]
                for option in options if isinstance(options, list) else [options]:
                    if isinstance(option, str):
                        yield f"{folder}/{option}", True
