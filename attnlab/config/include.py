"""``include``: a study that a base file completes.

The base file is merged under the study: mappings are merged key by key, and all other values of the study replace the values of
the base file. A mapping with a ``name`` replaces the other one, because its options belong to that name. Paths in a base file
are relative to the study's file, like all paths in it.
"""

from pathlib import Path
from typing import Any

from attnlab.config.yaml import Loc, SourceMap, dotted, kind, read
from attnlab.errors import UserError

KEY = "include"
ONE_OF = {"steps": "epochs", "epochs": "steps"}  # keys of base.train of which a run has one


def with_included(
    fields: dict[str, Any], source_map: SourceMap, *, folder: Path, ancestors: tuple[Path, ...]
) -> tuple[dict[str, Any], SourceMap]:
    """Return the values of a study merged over the file that it includes, if any, and the places of all.

    Args:
        folder: that the path of the included file is relative to.
        ancestors: the files that include this one, and itself.

    Raises:
        UserError: the included file cannot be read, or includes one of ``ancestors``; with the place.
    """
    if KEY not in fields:
        return fields, source_map
    name, place = fields[KEY], source_map.at((KEY,))
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"include: expected the path of a file, got {kind(name)}", place)
    try:
        path = folder / Path(name).expanduser()
    except RuntimeError as error:  # an unknown ~user
        raise UserError(f"include: {error}", place) from None
    if path.resolve() in ancestors:
        cycle = ancestors[ancestors.index(path.resolve()) :]
        through = f", through {', '.join(file.name for file in cycle[1:])}" if cycle[1:] else ""
        raise UserError(f"include: {path.name} includes itself{through}", place)
    try:
        base, base_map = read(path, what="a study to include")
    except UserError as error:
        if error.where != str(path):  # a place in the file
            raise
        raise UserError(f"include: {error.message}", place) from None
    base, base_map = with_included(base, base_map, folder=path.parent, ancestors=(*ancestors, path.resolve()))
    if not source_map.values:
        source_map = _map_of(fields)
    own = {key: value for key, value in fields.items() if key != KEY}
    places = SourceMap({**base_map.values, **source_map.values}, {**base_map.keys, **source_map.keys})
    return _merged(base, own), places


def _merged(base: dict[str, Any], own: dict[str, Any], loc: Loc = ()) -> dict[str, Any]:
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        if loc == ("base", "train") and ONE_OF.get(key) not in own:
            merged.pop(ONE_OF.get(key, ""), None)
        if isinstance(value, dict) and isinstance(below, dict) and "name" not in value:
            value = _merged(below, value, (*loc, key))
        merged[key] = value
    return merged


def _map_of(fields: dict[str, Any]) -> SourceMap:
    """Return the dotted paths of a dictionary's values as their places."""
    places: dict[Loc, str] = {(): ""}

    def add(value: Any, loc: Loc) -> None:
        places[loc] = dotted(loc)
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, child in children:
            add(child, (*loc, key))

    add(fields, ())
    return SourceMap(places, {loc: place for loc, place in places.items() if loc})
