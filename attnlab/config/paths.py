"""Dotted paths into the configuration of a run, for example ``train.lr``: checks of them and of their values.

``StudySource`` has the places where a study sets them: its file, or an assignment over it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from attnlab.config.run import PARTS, RunConfig, set_path
from attnlab.config.types import WITH
from attnlab.config.validation import check_part, field_names
from attnlab.config.yaml import Loc, SourceMap, Where
from attnlab.errors import UserError, nearest

STAGES = "stages"  # the section of a study whose parts an axis sets as stages.NAME.PATH
NAMED = ("task", "variant", "position")  # fields with options, which the plan checks against their classes
OPTIMIZER = "train.optimizer"  # another one, within a section

NOT_OPTIONS = {  # keys of a field with options that are none -> what to write instead
    "name": "write the names themselves, such as variant: [dense, no_wo]",
    "options": "write the options themselves, such as variant.stride",
    "position": "write position",
    "components": "write variant.with",
}


def split_stage(path: str) -> tuple[str, str]:
    """Return the stage that a dotted path leads into, and the path there: ``stages.pretrain.train.lr`` is ``train.lr``.

    The stage of other paths is "".
    """
    first, _, rest = path.partition(".")
    if first != STAGES:
        return "", path
    stage, _, inner = rest.partition(".")
    return stage, inner


def check_path(path: str, *, place: str, stages: Collection[str] = ()) -> None:
    """Raise ``UserError`` at ``place`` unless the dotted path is a field of a run, or of a run of one of ``stages``."""
    stage, inner = split_stage(path)
    if stage in stages and inner:
        path = inner
    elif stages and path.partition(".")[0] == STAGES:
        known = [f"{STAGES}.{name}" for name in stages]
        expectation = f"expected {' or '.join(known)} and a path into it, such as {known[0]}.train.lr"
        raise UserError(f"{path!r} is not a field of a stage{nearest(f'{STAGES}.{stage}', known)}: {expectation}", place)
    if path == "seed":
        raise UserError("expected 'seeds: [...]' at the top level, got 'seed'", place)
    known = field_names(RunConfig, ())
    sections = [name for name in known if name not in (*NAMED, "backend")]
    parts = [f"model.{part}" for part in PARTS]
    paths = known + [f"{section}.{name}" for section in sections for name in field_names(RunConfig, (section,))]
    paths += [f"{part}.{name}" for part in parts for name in field_names(RunConfig, tuple(part.split(".")))]
    first, _, rest = path.partition(".")
    if first in NAMED and rest in NOT_OPTIONS:
        raise UserError(f"expected an option of the {first} after '{first}.', got {rest!r}: {NOT_OPTIONS[rest]}", place)
    parent, _, end = path.rpartition(".")
    if path in paths or parent in (*NAMED, OPTIMIZER, *(f"{part}.{name}" for part in parts for name in NAMED)):
        return
    same_end = [known for known in paths if known.rpartition(".")[2] == path.rpartition(".")[2]]
    near = f" (did you mean {same_end[0]!r}?)" if same_end else nearest(end, paths) or nearest(path, paths)
    expectation = f"expected one of {', '.join(known)}, or a path into one, such as train.lr"
    raise UserError(f"{path!r} is not a field of a run{near}: {expectation}", place)


def check_value(path: str, value: Any, *, where: Where) -> None:
    """Check the type of the value of a dotted path. The plan checks the options of a task, a variant or a position scheme.

    Args:
        where: the place of a location inside the value.
    """
    _, path = split_stage(path)
    parts = tuple(path.split("."))
    if path.startswith(f"{OPTIMIZER}."):
        return
    fields: dict[str, Any] = {}
    if len(parts) > 1 and parts[-2] in NAMED:
        if parts[-2:] != ("variant", WITH):
            return
        set_path(fields, ".".join(parts[:-1]), "dense")  # any name: a variant without one is a mistake of its own
    set_path(fields, path, value)
    check_part(RunConfig, fields, where=lambda loc, /, *, key=False: where(loc[len(parts) :], key=key))


@dataclass(frozen=True)
class StudySource:
    """The source of each part of a study: its file, or an assignment over it.

    Attributes:
        source_map: the places in the file.
        assignments: dotted path of a part of the study -> value.
        keys: the top-level keys of the file.
        over: the axis of the grid that the file has under ``over``.
        listed: names of the factors that the file has as a list of components.
    """

    source_map: SourceMap
    assignments: dict[str, Any]
    keys: frozenset[str] = frozenset()
    over: str = ""
    listed: tuple[str, ...] = ()

    def at(self, loc: Loc, /, *, key: bool = False) -> str:
        """Return the place of ``loc``: the most specific assignment over it, else the place in the file."""
        if self.over and loc[:2] == ("grid", self.over):
            loc = ("over", *loc[1:])
        if loc[:1] == ("factors",) and loc[1:2] and loc[1] in self.listed:  # the component itself, or an option of it
            loc = ("factors", self.listed.index(str(loc[1])), *loc[3:])
        paths = [".".join(map(str, loc[:length])) for length in range(len(loc), 0, -1)]
        if loc and loc[0] not in self.keys:  # a section that only assignments set
            paths += [path for path in self.assignments if path.startswith(f"{loc[0]}.")]
        path = next((path for path in paths if path in self.assignments), None)
        return self.source_map.at(loc, key=key) if path is None else assignment(path, self.assignments[path])


def assignment(key: str, value: Any) -> str:
    """Return an assignment in command-line syntax, for messages."""
    return f"{key}={value if isinstance(value, str) else json.dumps(value)}"
